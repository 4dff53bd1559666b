"""Metrics of the network layer."""

from __future__ import annotations

import pytest

from barnabas.broker.network.network_metrics import IdleMeter, ProcessorMetrics
from barnabas.common.clock import NS_PER_S, FakeClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.metrics.table import catalogue


def test_the_idle_share_covers_the_recent_past_and_an_ongoing_sleep() -> None:
    clock = FakeClock()
    meter = IdleMeter(clock)
    meter.begin(clock.monotonic_ns())
    clock.advance_ns(10 * NS_PER_S)
    assert meter.share() == 1.0
    meter.end(clock.monotonic_ns())
    clock.advance_ns(10 * NS_PER_S)
    assert meter.share() == 0.5
    for _ in range(3):
        clock.advance_ns(40 * NS_PER_S)
        share = meter.share()
    assert share == 0.0, "the distant past does not count"


def test_connections_are_counted_by_software() -> None:
    registry = Registry()
    requests = RequestMetrics(registry)
    metrics = ProcessorMetrics(registry, FakeClock(), "PLAINTEXT", 3, requests)

    def software() -> dict[tuple[str, ...], float]:
        return {
            labels[:2]: instrument.read()  # type: ignore[union-attr]
            for row, instruments in registry.collect()
            if row is catalogue.CONNECTIONS
            for labels, instrument in instruments
        }

    metrics.opened()
    metrics.opened()
    assert software() == {("unknown", "unknown"): 2}
    metrics.identified(None, ("kcat", "1.7"))
    assert software() == {("unknown", "unknown"): 1, ("kcat", "1.7"): 1}
    metrics.closed(("kcat", "1.7"))
    assert software() == {("unknown", "unknown"): 1}
    assert metrics.connection_count == 1
    metrics.remove()
    assert list(registry.collect()) == []


@pytest.mark.parametrize("elapsed_ns", [0, 1])
def test_a_new_meter_has_a_share(elapsed_ns: int) -> None:
    clock = FakeClock()
    meter = IdleMeter(clock)
    clock.advance_ns(elapsed_ns)
    assert 0 <= meter.share() <= 1
