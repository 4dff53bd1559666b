"""Gauges of quotas on the page, and the rates that `broker_metrics.ClientMetrics` shows while limits exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.monitoring.broker_metrics import ClientMetrics
from barnabas.broker.monitoring.quota_metrics import register_exempt, register_mutations, register_queues
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.mutations import MutationQuotas
from barnabas.broker.quotas.rates import Window
from barnabas.broker.quotas.throttle import Throttle
from barnabas.common.clock import FakeClock
from barnabas.metrics.page.exposition import Exposition
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.security.values import QuotaEntity

EVERYBODY = QuotaEntity.of({"user": None})
WINDOW = Window(11, 1000)


def series(registry: Registry, name: str) -> dict[tuple[str, ...], float]:
    """Return the series of a name, by the values of its labels."""
    page = Exposition(registry).render().decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def test_waiting_connections_are_counted_by_quota() -> None:
    registry = Registry(FakeClock())
    throttles = [Throttle(5, "producer_byte_rate"), Throttle(5, "producer_byte_rate"), None]
    waiting: Any = [SimpleNamespace(throttle=throttle) for throttle in throttles]
    register_queues(registry, lambda: waiting)
    sizes = {name: series(registry, f"kafka_server_{name}_queue_size")[()] for name in ("produce", "fetch", "request")}
    assert sizes == {"produce": 2, "fetch": 0, "request": 1}
    assert series(registry, "kafka_server_controllermutation_queue_size") == {(): 0}


def test_the_rates_of_clients_are_those_that_their_quotas_measure() -> None:
    clock = FakeClock()
    registry = Registry(clock)
    quotas = ClientQuotas(WINDOW, clock)
    ClientMetrics(registry, RequestMetrics(registry), quotas)
    register_exempt(registry, quotas)
    assert series(registry, "kafka_server_produce_byte_rate") == {}
    assert series(registry, "kafka_server_request_exempt_request_time") == {(): 0}
    quotas.update({EVERYBODY: {"producer_byte_rate": 100, "request_percentage": 50}})
    assert quotas.produce is not None
    assert quotas.request is not None
    throttle = quotas.produce.count("CN=a", "app", 2000, clock.monotonic_ms())
    quotas.produce.note(throttle, clock.monotonic_ms())
    quotas.request.count_exempt(300_000_000, clock.monotonic_ms())
    assert series(registry, "kafka_server_produce_byte_rate") == {("CN%3Da",): 200}
    assert series(registry, "kafka_server_produce_throttle_time") == {("CN%3Da",): 10_000}
    assert series(registry, "kafka_server_request_exempt_request_time") == {(): 1}


def test_what_one_quota_throttles_is_not_shown_as_throttled_by_another() -> None:
    clock = FakeClock()
    registry = Registry(clock)
    quotas = ClientQuotas(WINDOW, clock)
    requests = RequestMetrics(registry)
    ClientMetrics(registry, requests, quotas)
    quotas.update({EVERYBODY: {"producer_byte_rate": 100}})
    requests.recorder().record("Produce", 9, (0, 1_000_000, 0, 700_000_000, 0, 0), 70, client_id="app")
    assert series(registry, "kafka_server_request_throttle_time") == {("app",): 0}
    assert series(registry, "kafka_server_fetch_throttle_time") == {}


def test_a_controller_shows_tokens() -> None:
    clock = FakeClock()
    registry = Registry(clock)
    quotas = MutationQuotas(WINDOW, clock)
    register_mutations(registry, quotas)
    assert series(registry, "kafka_server_controllermutation_tokens") == {}
    quotas.update({EVERYBODY: {"controller_mutation_rate": 2}})
    assert quotas.manager is not None
    now_ms = clock.monotonic_ms()
    quotas.manager.count(quotas.manager.sensor("alice", "", now_ms), 30, now_ms, is_strict=False)
    assert series(registry, "kafka_server_controllermutation_tokens") == {("alice",): -8}
    assert series(registry, "kafka_server_controllermutation_mutation_rate") == {("alice",): 1}
