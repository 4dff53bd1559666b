"""Processes with a copied configuration or address, and a broker that the controller's pushes cannot reach."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.processes import interpreter
from barnabas.common.processes.ports import free_ports
from barnabas.faults import Faults
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

CONFIG = {
    "barnabas.faults.enable": "true",
    "barnabas.metadata.lag.max.ms": "1000",
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "200",
    "initial.broker.registration.timeout.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Two brokers."""
    with BarnabasCluster(tmp_path / "cluster", broker_count=2, first_port=0, config=CONFIG) as cluster:
        yield cluster


def copied(cluster: BarnabasCluster, directory: Path, **changes: str) -> str:
    """Run a broker from a changed copy of broker 0's file until it ends. Returns its last line."""
    properties = cluster.properties(cluster.nodes[0])
    own, internal = free_ports(2)
    changed = {
        **properties,
        "listeners": f"PLAINTEXT://127.0.0.1:{own},INTERNAL://127.0.0.1:{internal}",
        "log.dirs": str(directory / "data"),
        "barnabas.metrics.port": "0",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    directory.mkdir()
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in changed.items()))
    command = [*interpreter.command("barnabas.broker.main"), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1] if ended.stderr.splitlines() else ""


def test_a_broker_with_a_copied_file_ends_and_affects_no_other(cluster: BarnabasCluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(20)
    line = copied(cluster, tmp_path / "same-id")
    assert re.match(r"broker: the controller has refused this broker for 2000 ms: Another broker is registered", line)
    address = cluster.properties(cluster.nodes[0])["listeners"]
    line = copied(cluster, tmp_path / "same-address", node_id="7", broker_id="7", advertised_listeners=address)
    assert re.match(r"broker: .* broker 0 advertises 127\.0\.0\.1:\d+ already; give broker 7 an address", line)
    assert {id_ for id_, node in cluster.nodes.items() if node.is_running} == set(cluster.nodes)
    admin.create_topics([NewTopic("u", 2, 2)])["u"].result(20)
    for name in ("t", "u"):
        eventually(f"{name} is whole", lambda name=name: in_sync(admin, name) == [{0, 1}] * 2)


def test_a_broker_that_pushes_cannot_reach_is_fenced_until_one_arrives(cluster: BarnabasCluster) -> None:
    admin = AdminClient({"bootstrap.servers": f"{cluster.nodes[0].host}:{cluster.nodes[0].port}"})
    admin.create_topics([NewTopic("before", 2, 2)])["before"].result(20)
    with Faults(cluster) as faults:
        cut = faults.node(1).cut_off("controller", direction="from", mode="refuse")
        admin.create_topics([NewTopic("after", 2, 1)])["after"].result(20)
        eventually("fenced", lambda: in_sync(admin, "before") == [{0}] * 2)
        assert "Fencing broker 1: its heartbeats arrive, but" in cluster.controller.log_tail(200)
        assert cluster.nodes[1].is_running
        cut.remove()
        eventually("in sync again", lambda: in_sync(admin, "before") == [{0, 1}] * 2)


def in_sync(admin: AdminClient, topic: str) -> list[set[int]]:
    """Return the ISR of each partition."""
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return [set(partitions[index].isrs) for index in sorted(partitions)]
