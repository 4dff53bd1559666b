"""`client.quota.callback.class` in real processes: an operator's class decides who shares which limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.main import run
from barnabas.cluster import Node
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30
TOPIC = "orders"
LIMIT = 500_000
RECORD = bytes(10_000)
#: What an operator installs: clients share the limit of their team, the part of the client id before the dash.
MODULE = f"""
from pathlib import Path


class ByTeam:
    def __init__(self, settings):
        self.directory = Path(settings["team.directory"])
        self.name = settings["node.id"]
        self.limits = {{("producer_byte_rate", "slow"): {LIMIT}}}

    def quota_metric_tags(self, quota, principal, client_id):
        assert principal == "User:ANONYMOUS"
        return {{"client-id": client_id.partition("-")[0]}}

    def quota_limit(self, quota, tags):
        return self.limits.get((quota, tags["client-id"]))

    def update_quota(self, quota, entity, limit):
        self.limits[quota, entity["client-id"]] = limit

    def remove_quota(self, quota, entity):
        self.limits.pop((quota, entity["client-id"]), None)

    def quota_reset_required(self, quota):
        return False

    def update_cluster_metadata(self, cluster):
        (self.directory / f"cluster-{{self.name}}").write_text(repr((sorted(cluster.brokers), cluster.leaders)))
        return False

    def close(self):
        (self.directory / f"closed-{{self.name}}").touch()
"""


class WithTeams(BarnabasCluster):
    """Its processes find the operator's module; an installed one needs no PYTHONPATH, which servers ignore."""

    def command(self, node: Node) -> list[str]:
        return [part for part in super().command(node) if part != "-E"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the operator's class writes."""
    return tmp_path_factory.mktemp("teams")


@pytest.fixture(scope="module")
def cluster(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """One broker, with one topic."""
    modules = tmp_path_factory.mktemp("modules")
    (modules / "teams.py").write_text(MODULE)
    config = {
        "client.quota.callback.class": "teams:ByTeam",
        "team.directory": str(directory),
        "quota.window.num": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(modules))
        with WithTeams(tmp_path_factory.mktemp("quotas"), 1, 0, config) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
            yield running


def waits(cluster: BarnabasCluster, client_id: str) -> bool:
    """Produce what is allowed in three seconds; return whether the broker asked to wait."""
    events: list[ThrottleEvent] = []
    settings = {"client.id": client_id, "batch.size": 50_000, "throttle_cb": events.append}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for _ in range(3 * LIMIT // len(RECORD)):
        producer.produce(TOPIC, RECORD)
    assert producer.flush(TIMEOUT_S) == 0
    producer.poll(0)
    return any(event.throttle_time > 0 for event in events)


def test_a_class_decides_who_waits(cluster: BarnabasCluster) -> None:
    assert waits(cluster, "slow-1")
    assert waits(cluster, "slow-2")
    assert not waits(cluster, "fast-1")


def test_it_takes_limits_that_are_set_and_removed(cluster: BarnabasCluster) -> None:
    where = ("--client-id", "team", "--bootstrap", cluster.bootstrap)
    assert not waits(cluster, "team-1")
    assert run(["quota", "set", *where, f"producer_byte_rate={LIMIT}"]) == 0
    eventually("its client waits", lambda: waits(cluster, "team-1"))
    assert run(["quota", "delete", *where, "producer_byte_rate"]) == 0
    eventually("it waits no longer", lambda: not waits(cluster, "team-1"))


def test_it_sees_the_cluster_and_is_closed_at_the_end(cluster: BarnabasCluster, directory: Path) -> None:
    seen = directory / "cluster-0"
    eventually("it was shown the topic", lambda: seen.exists() and TOPIC in seen.read_text())
    assert seen.read_text().startswith("([0], ")
    cluster.stop_node(cluster.nodes[0])
    assert (directory / "closed-0").exists()
