"""What clients push, on the page of metrics."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.telemetry import otlp, series
from barnabas.broker.telemetry.instance import ClientInstance
from barnabas.broker.telemetry.receiver import TelemetryReceiver
from barnabas.broker.telemetry.subscriptions import Wanted
from barnabas.common.clock import FakeClock
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from barnabas.protocol.records.compression import CompressionType, compress
from tests.broker.telemetry.payloads import PREFIX, Payload

BYTES_MAX = 1 << 20


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeClock())


def push(receiver: TelemetryReceiver, payload: Payload, client_id: str = "c", number: int = 1) -> None:
    client = ClientInstance(bytes([number]) * 16, {"client_id": client_id}, Wanted(("*",), 1000), 1)
    data = compress(CompressionType.LZ4, payload.encoded())
    receiver.export(client, CompressionType.LZ4, data, BYTES_MAX, 0)


def test_families_have_the_types_that_clients_gave_them(registry: Registry) -> None:
    receiver = TelemetryReceiver(registry)
    push(receiver, Payload().sum(f"{PREFIX}sent.total", 3).gauge(f"{PREFIX}latency", 1.5).sum(f"{PREFIX}odd", 1))
    push(receiver, Payload().sum(f"{PREFIX}sent.total", 4).sum(f"{PREFIX}latency", 1), 'a"\n\\b', number=2)
    page = render(registry).decode()
    found = {family.name: family for family in text_string_to_metric_families(page)}
    assert found["org_apache_kafka_sent"].type == "counter"
    assert [(s.labels["client_id"], s.value) for s in found["org_apache_kafka_sent"].samples] == [
        ("c", 3.0),
        ('a"\n\\b', 4.0),
    ]
    assert found["org_apache_kafka_latency"].type == "unknown", "one client says gauge, the other one sum"
    assert found["org_apache_kafka_odd"].type == "unknown", "a counter's name ends in _total"
    assert found["barnabas_telemetry_series"].samples[0].value == 5


def test_what_is_left_out_is_counted(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_MAX", 1)
    receiver = TelemetryReceiver(registry)
    push(receiver, Payload().gauge("a", 1.0).gauge("b", 1.0).histogram("h"))
    assert registry.counter(catalogue.TELEMETRY_LEFT_OUT).count == 2


def test_a_client_that_is_gone_is_not_on_the_page(registry: Registry) -> None:
    receiver = TelemetryReceiver(registry)
    push(receiver, Payload().gauge("a", 1.0))
    push(receiver, Payload().gauge("a", 1.0), number=2)
    receiver.forget(b"\x01" * 16)
    assert len(next(receiver.families()).series) == 1
    receiver.expire(3001)
    assert list(receiver.families()) == []


def test_the_labels_of_a_full_store_have_a_bound() -> None:
    longest = otlp.LABELS_MAX * (otlp.NAME_CHARACTERS_MAX + otlp.VALUE_CHARACTERS_MAX) + otlp.NAME_CHARACTERS_MAX
    assert longest * series.SERIES_MAX < 100 << 20
