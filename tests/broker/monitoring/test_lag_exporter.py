"""The broker that exports consumer lag, and the export while brokers do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.metadata.metadata_cache import (
    BrokerInfo,
    Endpoint,
    MetadataCache,
    MetadataSnapshot,
    PartitionInfo,
    TopicInfo,
)
from barnabas.broker.monitoring.lag_exporter import LagExporter
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c

LISTENER = "PLAINTEXT"


def make_cache() -> MetadataCache:
    """Return the metadata of brokers 1 and 2, with a topic whose first partition only has broker 2."""
    brokers = {number: BrokerInfo(number, None, {LISTENER: Endpoint(f"b{number}", 9092, 0)}) for number in (1, 2)}
    partitions = {
        0: PartitionInfo(0, 2, 0, 0, (2,), (1, 2), ()),
        1: PartitionInfo(1, 1, 0, 0, (1, 2), (1, 2), ()),
    }
    cache = MetadataCache()
    cache.snapshot = MetadataSnapshot(brokers=brokers, topics={"t": TopicInfo("t", bytes(16), partitions)})
    return cache


class Unreachable:
    """A broker that does not answer."""

    def send(self, *_: Any) -> Any:
        raise NodeConnectionError("nobody there")


def lines(registry: Registry, row: c.Metric) -> dict[tuple[str, ...], float]:
    """Return a row's numbers by label values."""
    return {
        labels: numbers[table.rows.index(row)]
        for table in registry.tables()
        if row in table.rows
        for labels, numbers in table.read()
    }


@pytest.mark.parametrize(("broker_id", "tells"), [(1, True), (2, False)])
def test_the_live_broker_with_the_lowest_id_exports(broker_id: int, tells: bool) -> None:
    registry = Registry()
    LagExporter(registry, make_cache(), FakeClock(), broker_id, LISTENER)
    assert bool(lines(registry, c.BROKERS)) == tells
    assert bool(lines(registry, c.PARTITION_LEADER)) == tells


def test_another_broker_takes_over() -> None:
    registry, cache = Registry(), make_cache()
    exporter = LagExporter(registry, cache, FakeClock(), 2, LISTENER)
    assert not exporter.is_exporter()
    cache.snapshot = MetadataSnapshot(brokers={2: cache.snapshot.brokers[2]}, topics=cache.snapshot.topics)
    assert exporter.is_exporter()
    assert lines(registry, c.BROKERS) == {(): 1}


def test_partitions_as_in_the_metadata() -> None:
    registry = Registry()
    LagExporter(registry, make_cache(), FakeClock(), 1, LISTENER)
    assert lines(registry, c.TOPIC_PARTITIONS) == {("t",): 2}
    assert lines(registry, c.BROKER_INFO) == {("1", "b1:9092"): 1, ("2", "b2:9092"): 1}
    first, second = ("t", "0"), ("t", "1")
    assert lines(registry, c.PARTITION_LEADER) == {first: 2, second: 1}
    assert lines(registry, c.PARTITION_LEADER_IS_PREFERRED) == {first: 0, second: 1}
    assert lines(registry, c.PARTITION_IN_SYNC_REPLICA) == {first: 1, second: 2}
    assert lines(registry, c.PARTITION_UNDER_REPLICATED) == {first: 1, second: 0}


def test_brokers_that_do_not_answer_lose_only_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = LagExporter(Registry(), make_cache(), FakeClock(), 1, LISTENER)
    monkeypatch.setattr(exporter, "_connected", lambda _node: Unreachable())
    found = exporter.look()
    assert (found.newest, found.committed, found.lags.positions) == ({}, {}, {})
