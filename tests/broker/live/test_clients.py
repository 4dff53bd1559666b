"""Clients that push their metrics, on the live page."""

from __future__ import annotations

import pytest

from barnabas.broker.live.clients import clients
from barnabas.broker.live.look import Look
from barnabas.broker.telemetry.instance import ClientInstance
from barnabas.broker.telemetry.otlp import Point
from barnabas.broker.telemetry.series import SeriesStore
from barnabas.broker.telemetry.subscriptions import Wanted
from barnabas.common.clock import FakeClock
from barnabas.common.ids import uuid_to_string
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue

LOOK = Look(now_ns=0, now_ms=1500, wall_ms=0)


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeClock())


def store_of(*pushes: tuple[str, list[tuple[str, float]]]) -> SeriesStore:
    """What clients with these ids have pushed; a number by name, without its beginning."""
    store = SeriesStore()
    for number, (client_id, numbers) in enumerate(pushes):
        attributes = {
            "client_id": client_id,
            "client_software_name": "librdkafka",
            "client_software_version": "2.6",
            "client_source_address": "10.0.0.1",
            "client_source_port": "5000",
        }
        instance = ClientInstance(bytes([number]) * 16, attributes, Wanted(("*",), 1000), 1)
        points = [
            Point(f"org_apache_kafka_{name}", (("n", str(at)),), value) for at, (name, value) in enumerate(numbers)
        ]
        store.take(instance, points, 1000)
    return store


def test_a_producers_view_is_beside_the_brokers(registry: Registry) -> None:
    for ms in (4.0, 5.0, 6.0):
        registry.histogram(catalogue.TOTAL_TIME_MS, request="Produce").update(ms)
    measured = [
        ("producer_request_latency_avg", 7.5),
        ("producer_request_latency_max", 88.0),
        ("producer_record_queue_time_avg", 2.0),
    ]
    (shown,) = clients(store_of(("etl", measured)), registry, LOOK)["items"]
    assert 4 <= shown["broker_median_ms"] <= 6.4
    assert shown == {
        "client_id": "etl",
        "client_instance_id": uuid_to_string(bytes(16)),
        "kind": "producer",
        "software": "librdkafka 2.6",
        "address": "10.0.0.1:5000",
        "interval_ms": 1000,
        "pushed_ms": 500,
        "series": 3,
        "latency_avg_ms": 7.5,
        "latency_max_ms": 88.0,
        "queue_avg_ms": 2.0,
        "broker_api": "Produce",
        "broker_median_ms": shown["broker_median_ms"],
    }


def test_a_client_that_measures_by_node_shows_its_slowest_node(registry: Registry) -> None:
    measured = [("consumer_node_request_latency_avg", 1.0), ("consumer_node_request_latency_avg", 3.0)]
    (shown,) = clients(store_of(("c", measured)), registry, LOOK)["items"]
    assert (shown["kind"], shown["latency_avg_ms"], shown["latency_max_ms"]) == ("consumer", 3.0, None)
    assert (shown["broker_api"], shown["broker_median_ms"]) == ("FetchConsumer", None)


def test_other_clients_and_the_limit(registry: Registry) -> None:
    store = store_of(("b", [("admin_x", 1.0)]), ("a", [("admin_x", 1.0)]))
    found = clients(store, registry, LOOK._replace(limit=1))
    assert (found["total"], [shown["client_id"] for shown in found["items"]]) == (2, ["a"])
    assert (found["items"][0]["kind"], found["items"][0]["latency_avg_ms"]) == ("", None)
    assert clients(SeriesStore(), registry, LOOK) == {"total": 0, "items": []}


def test_an_infinite_number_does_not_break_the_page(registry: Registry) -> None:
    measured = [("producer_request_latency_avg", float("inf")), ("producer_request_latency_max", float("-inf"))]
    (shown,) = clients(store_of(("etl", measured)), registry, LOOK)["items"]
    assert (shown["latency_avg_ms"], shown["latency_max_ms"]) == (None, None)
