"""The metrics of finished requests between two scrapes."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.metrics.client_ids import NAME_MAX, bounded
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics

NS_PER_MS = 1_000_000


@pytest.mark.parametrize("count", [0, 1, 700])
def test_counts_and_times_are_those_of_all_requests_so_far(count: int) -> None:
    metrics = RequestMetrics(Registry(FakeClock()))
    for _ in range(count):
        metrics.recorder().record(
            "Produce", 12, (1 * NS_PER_MS, 2 * NS_PER_MS, 3 * NS_PER_MS, 0, 4 * NS_PER_MS, -5), 10
        )
    metrics.recorder().record("Fetch", 17, (NS_PER_MS, 0, 0, 0, 0, 0), 10, is_follower=True)
    metrics.recorder().record("Fetch", 16, (NS_PER_MS, 0, 0, 0, 0, 0), 10, is_follower=True)
    finished = {name: number for (_, name), number in metrics.finished().items()}
    assert finished == {"FetchFollower": 2} | ({"Produce": count} if count else {})
    spent = metrics.spent_ms()
    assert spent["FetchFollower"] == [2, 0, 0, 0, 0, 0]
    if count:
        assert spent["Produce"] == pytest.approx([count, 2 * count, 3 * count, 0, 4 * count, 0])


def record(metrics: RequestMetrics, client_id: str | None, request: str = "Heartbeat", version: int = 4) -> None:
    metrics.recorder().record(request, version, (0, 0, 0, 0, 0, 0), 10, client_id=client_id, header_bytes=20)


def test_long_client_ids_are_kept_cut_and_apart() -> None:
    registry = Registry(FakeClock())
    metrics = RequestMetrics(registry)
    one, other = "x" * 32_000 + "1", "x" * 32_000 + "2"
    for client_id in (one, other, other, "app", other, None):
        record(metrics, client_id)
    registry.collect()
    uses = metrics.client_uses()
    assert {name: use.requests for name, use in uses.items()} == {bounded(one): 1, bounded(other): 3, "app": 1, "": 1}
    kept = [recorder.client for recorder in metrics.recorder().recorders.values()]
    assert max(map(len, [*uses, *filter(None, kept)])) <= NAME_MAX
