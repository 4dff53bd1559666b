"""The compose cluster's pages, `barnabas top` and `barnabas explain`: from this machine and from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from barnabas.cli.inside.pages import BROKER, find_pages
from tests.compose.test_cluster import create_topic
from tests.support.docker.compose_cluster import BROKERS, CONTROLLERS, IDS, NODES, ComposeCluster
from tests.support.waiting import eventually


def get(compose: ComposeCluster, node: str, path: str) -> bytes:
    """Fetch a page of a node."""
    with urllib.request.urlopen(f"http://{compose.page(node)}{path}", timeout=10) as answer:
        return bytes(answer.read())


def barnabas(*arguments: str) -> str:
    """Run a command on this machine. It knows only the cluster's bootstrap address."""
    command = [sys.executable, "-P", "-m", "barnabas.cli", *arguments]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("node", NODES)
def test_each_process_shows_its_own_pages_here(compose: ComposeCluster, node: str) -> None:
    shown = json.loads(get(compose, node, "/live.json?section=node"))["node"]
    assert (shown["role"], shown["id"]) == (node.partition("-")[0], IDS[node])
    assert b"<html" in get(compose, node, "/live")
    assert b"process_resident_memory_bytes " in get(compose, node, "/metrics")


@pytest.mark.parametrize("node", NODES)
def test_each_page_links_to_all_others(compose: ComposeCluster, node: str) -> None:
    peers = json.loads(get(compose, node, "/live.json?section=node"))["node"]["peers"]
    links = {peer["id"]: peer["address"] for peer in peers}
    assert links == {IDS[each]: compose.page(each) for each in NODES}
    assert [peer["id"] for peer in peers if peer["is_self"]] == [IDS[node]]


@pytest.mark.parametrize("node", NODES)
def test_nothing_is_published_beyond_this_machine(compose: ComposeCluster, node: str) -> None:
    published = json.loads(compose.inspect(node, "{{json .NetworkSettings.Ports}}"))
    hosts = {binding["HostIp"] for bindings in published.values() for binding in bindings or ()}
    assert hosts == {"127.0.0.1"}


def test_top_from_this_machine(compose: ComposeCluster) -> None:
    frame = json.loads(barnabas("top", "--once", "--json", "--interval", "0.2", "--bootstrap", compose.bootstrap))
    states = {row["broker"]: row["state"] for row in frame["brokers"]}
    assert states == {0: "running", 1: "running", 2: "running"}
    assert frame["controller"]["controller"] in {IDS[node] for node in CONTROLLERS}


def test_explain_from_this_machine(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "explained")
    words = barnabas("explain", "partition", f"{topic}-0", "--bootstrap", compose.bootstrap)
    assert "in sync (ISR): 0, 1 and 2." in words


def test_top_inside(compose: ComposeCluster) -> None:
    command = ("barnabas", "top", "--once", "--json", "--interval", "0.2", "--bootstrap", "broker-2:19092")
    frame: dict[str, Any] = json.loads(compose.execute("broker-1", *command))
    assert {row["broker"]: row["state"] for row in frame["brokers"]} == {0: "running", 1: "running", 2: "running"}


def test_a_stopped_broker_is_shown_until_it_returns(compose: ComposeCluster) -> None:
    """Its peers remember its page's address. They show it as silent, and find it after the restart."""
    compose.compose("stop", "broker-1")
    pages = {page.id: page.address for page in find_pages(compose.bootstrap) if page.role == BROKER}
    assert pages == {IDS[broker]: compose.page(broker) for broker in BROKERS}
    compose.start("broker-1")
    compose.wait_healthy("broker-1")
    eventually("its page is back", lambda: b'"running"' in get(compose, "broker-1", "/live.json?section=node"))
