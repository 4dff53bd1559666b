"""The traffic of the connections to another node, as Kafka's NetworkClient counts it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from barnabas.common.clock import FakeClock
from barnabas.metrics.channel_metrics import ChannelMetrics
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import Registry


def test_connections_requests_and_bytes_are_counted() -> None:
    registry = Registry(FakeClock())
    channel = ChannelMetrics(registry, "heartbeat", BrokerId=7)
    channel.connected()
    channel.connected()
    channel.closed()
    for size_bytes in (100, 300):
        channel.sent(size_bytes)
    channel.received(50)
    samples = [
        sample
        for family in text_string_to_metric_families(render(registry).decode())
        for sample in family.samples
        if sample.name.startswith("kafka_server_heartbeat_metrics_")
    ]
    assert {sample.labels["BrokerId"] for sample in samples} == {"7"}
    values = {sample.name.removeprefix("kafka_server_heartbeat_metrics_"): sample.value for sample in samples}
    expected = {
        "connection_creation_total": 2,
        "connection_close_total": 1,
        "connection_count": 1,
        "request_total": 2,
        "response_total": 1,
        "network_io_total": 3,
        "outgoing_byte_total": 400,
        "incoming_byte_total": 50,
        "request_size_avg": 200,
        "request_size_max": 300,
    }
    assert {name: values[name] for name in expected} == expected
