"""The registry: making, finding and removing instruments."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.metrics.meters import Meter
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import ForeignFamily, Registry
from barnabas.metrics.table import catalogue as c


def labels_of(registry: Registry, row: c.Metric) -> list[tuple[str, ...]]:
    return [labels for found, items in registry.collect() if found is row for labels, _ in items]


def test_the_same_labels_are_the_same_instrument() -> None:
    registry = Registry()
    all_topics = registry.meter(c.BYTES_IN_PER_SEC)
    assert registry.meter(c.BYTES_IN_PER_SEC) is all_topics
    assert registry.meter(c.BYTES_IN_PER_SEC, topic="t") is not all_topics
    assert registry.histogram(c.LOCAL_TIME_MS, request="Fetch") is registry.histogram(c.LOCAL_TIME_MS, request="Fetch")
    assert labels_of(registry, c.BYTES_IN_PER_SEC) == [("",), ("t",)]


def test_remove() -> None:
    registry = Registry()
    for topic in ("a", "b"):
        for partition in (0, 1):
            registry.gauge(c.LOG_SIZE, lambda: 1, topic=topic, partition=partition)
    registry.remove(c.LOG_SIZE, topic="a", partition=0)
    assert labels_of(registry, c.LOG_SIZE) == [("a", "1"), ("b", "0"), ("b", "1")]
    registry.remove(c.LOG_SIZE, topic="b")
    assert labels_of(registry, c.LOG_SIZE) == [("a", "1")]
    registry.remove(c.LOG_SIZE)
    assert labels_of(registry, c.LOG_SIZE) == []
    registry.remove(c.BYTES_IN_PER_SEC, topic="never was")


def test_a_gauge_is_replaced() -> None:
    registry = Registry()
    registry.gauge(c.BROKER_STATE, lambda: 1)
    gauge = registry.gauge(c.BROKER_STATE, lambda: 3)
    assert [table for _, table in registry.collect()] == [[((), gauge)]]


def test_mistakes_are_caught() -> None:
    registry = Registry()
    with pytest.raises(AssertionError, match="BytesInPerSec is a meter"):
        registry.gauge(c.BYTES_IN_PER_SEC, lambda: 1)
    with pytest.raises(AssertionError, match="has no label"):
        registry.meter(c.BYTES_IN_PER_SEC, partition=1)


def test_tables_have_rows_with_the_same_labels_and_each_row_once() -> None:
    registry = Registry()
    registry.table((c.LOG_SIZE, c.LOG_END_OFFSET), lambda: [(("t", "0"), (1, 2))])
    assert [table.rows for table in registry.tables()] == [(c.LOG_SIZE, c.LOG_END_OFFSET)]
    registry.table((c.LOG_SIZE, c.LOG_END_OFFSET), list)
    assert len(registry.tables()) == 1, "the same rows again replace the table"
    with pytest.raises(AssertionError, match="a row is in one table"):
        registry.table((c.LOG_SIZE,), list)
    with pytest.raises(AssertionError, match="the same labels"):
        registry.table((c.LOG_START_OFFSET, c.BROKER_STATE), list)
    with pytest.raises(AssertionError, match="gauges and counters only"):
        registry.table((c.BYTES_IN_PER_SEC,), list)


def test_sources_of_changing_instruments() -> None:
    registry, meter = Registry(), Meter()
    registry.meter(c.BYTES_IN_PER_SEC)
    topics = ["t"]
    registry.source(lambda: [(c.BYTES_IN_PER_SEC, (topic,), meter) for topic in topics])
    assert labels_of(registry, c.BYTES_IN_PER_SEC) == [("",), ("t",)]
    assert registry.last_count == 2
    topics.clear()
    assert labels_of(registry, c.BYTES_IN_PER_SEC) == [("",)]


def test_hooks_run_before_a_scrape() -> None:
    registry, calls = Registry(), list[int]()
    registry.before_scrape(lambda: calls.append(1))
    registry.collect()
    assert calls == [1]


def test_families_that_clients_named_come_last_and_a_failure_costs_only_them(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(FakeClock())
    registry.gauge(c.TOPIC_PARTITIONS, lambda: 1, topic="t")
    series = [({"client_id": "a"}, 1.0)]

    def read() -> list[ForeignFamily]:
        return [ForeignFamily("client_x", "gauge", "Text.", series)]

    registry.foreign(read)
    assert render(registry).decode().endswith('# TYPE client_x gauge\nclient_x{client_id="a"} 1.0\n')

    def fail() -> list[ForeignFamily]:
        raise OSError

    registry.foreign(fail)
    page = render(registry).decode()
    assert "kafka_topic_partitions" in page
    assert "client_x" not in page
    assert "what clients pushed cannot be read" in caplog.text
