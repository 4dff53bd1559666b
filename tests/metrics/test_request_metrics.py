"""The metrics of finished requests between two scrapes."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.metrics.client_ids import NAME_MAX, bounded
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import CLIENTS_MAX, RequestMetrics, ThreadRecorder

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


def record(
    metrics: RequestMetrics | ThreadRecorder, client_id: str | None, request: str = "Heartbeat", version: int = 4
) -> None:
    recorder = metrics.recorder() if isinstance(metrics, RequestMetrics) else metrics
    recorder.record(request, version, (0, 0, 0, 0, 0, 0), 10, client_id=client_id, header_bytes=20)


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


def counts(registry: Registry, metrics: RequestMetrics) -> dict[str, int]:
    """Scrape; return the number of requests by client id."""
    registry.collect()
    return {client_id: use.requests for client_id, use in metrics.client_uses().items()}


def test_the_clients_that_were_idle_for_the_longest_time_are_forgotten() -> None:
    registry = Registry(FakeClock())
    metrics = RequestMetrics(registry)
    record(metrics, "idle")
    record(metrics, "busy")
    for number in range(3 * CLIENTS_MAX):
        record(metrics, f"made-up-{number}")
        record(metrics, "busy", "Produce" if number % 2 else "Heartbeat")
    found = counts(registry, metrics)
    assert len(found) <= CLIENTS_MAX
    assert found["busy"] == 1 + 3 * CLIENTS_MAX
    assert "idle" not in found
    newest = [f"made-up-{number}" for number in range(3 * CLIENTS_MAX - CLIENTS_MAX // 2, 3 * CLIENTS_MAX)]
    assert all(found[client_id] == 1 for client_id in newest)


def test_a_client_that_is_forgotten_returns_with_new_counts() -> None:
    registry = Registry(FakeClock())
    metrics = RequestMetrics(registry)
    for request in ("Heartbeat", "Produce"):
        record(metrics, "back", request)
    for number in range(CLIENTS_MAX):
        record(metrics, f"made-up-{number}")
    assert "back" not in counts(registry, metrics)
    record(metrics, "back")
    assert counts(registry, metrics)["back"] == 1


def test_the_number_of_clients_of_a_thread_is_bounded_whatever_they_request() -> None:
    registry = Registry(FakeClock())
    metrics = RequestMetrics(registry)
    for number in range(2 * CLIENTS_MAX):
        record(metrics, f"made-up-{number}", f"Api{number % 7}", number % 5)
    assert len(counts(registry, metrics)) <= CLIENTS_MAX


def test_the_count_of_a_client_does_not_decrease_when_one_thread_forgets_it() -> None:
    registry = Registry(FakeClock())
    metrics = RequestMetrics(registry)
    one, other = (metrics._threads.setdefault(ident, ThreadRecorder(metrics._add)) for ident in (-1, -2))
    record(one, "app")
    for _ in range(5):
        record(other, "app")
    assert counts(registry, metrics)["app"] == 6
    record(other, "app")
    for number in range(CLIENTS_MAX):
        record(other, f"made-up-{number}")
    assert "app" not in other.clients
    assert counts(registry, metrics)["app"] == 7
    record(one, "app")
    record(other, "app")
    assert counts(registry, metrics)["app"] == counts(registry, metrics)["app"] == 9
    assert metrics.client_uses("Heartbeat")["app"].requests == 9
