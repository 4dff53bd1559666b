"""Prometheus of the compose cluster: it scrapes all processes, and no panel of our dashboards is empty."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.compose.test_cluster import PARTITIONS, create_topic, load_goes_on
from tests.support.docker.compose_cluster import CONTROLLERS, NODES, ComposeCluster, dashboards
from tests.support.waiting import eventually

VARIABLES = {"$cluster": ".*", "$broker": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "1m"}
TIMEOUT_MS = 60_000


def query(compose: ComposeCluster, expression: str) -> list[dict[str, Any]]:
    """Run an instant query on Prometheus."""
    address = f"{compose.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def panels() -> Iterator[tuple[str, str]]:
    """Return the title and expression of each panel's queries, with the dashboards' variables replaced."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel.get("targets") or ():
                expression = target["expr"]
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                yield f"{name}: {panel['title']}", expression


def test_every_process_is_scraped(compose: ComposeCluster) -> None:
    def up() -> set[str]:
        return {series["metric"]["instance"] for series in query(compose, "up == 1")}

    eventually("all are up", lambda: up() == set(NODES), TIMEOUT_MS)
    jobs = {series["metric"]["instance"]: series["metric"]["job"] for series in query(compose, "up")}
    assert jobs == {node: "kafka-controller" if node in CONTROLLERS else "kafka-broker" for node in NODES}


def test_no_panel_is_empty(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "pictures")
    consumer = Consumer({"bootstrap.servers": compose.bootstrap, "group.id": "viewers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)  # a group whose lag can be shown
    consumer.close()
    waiting = dict(panels())
    queries = list(panels())
    assert len(queries) > len(waiting) > 10

    def empty() -> list[str]:
        return [title for title, expression in queries if not has_number(query(compose, expression))]

    with load_goes_on(compose, topic):
        eventually(f"every panel over {PARTITIONS} busy partitions shows a number", lambda: empty() == [], TIMEOUT_MS)


def has_number(result: list[dict[str, Any]]) -> bool:
    """Check whether a series has a finite value."""
    return any(math.isfinite(float(series["value"][1])) for series in result)
