"""Apache Kafka's answers to clients that get subscriptions and push metrics, beside ours: ids, numbers and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.client.connection import NodeConnection
from barnabas.common.ids import METADATA_TOPIC_ID, ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from barnabas.protocol.records.compression import CompressionType, compress
from tests.broker.telemetry.payloads import Payload
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.waiting import eventually

SOURCE = Path(__file__).parent / "TelemetryExporter.java"
CLIENT_METRICS = 16  # the type of the config resource
BYTES_MAX = 5000
DATA = Payload().gauge("a", 1.0).encoded()
ZSTD = CompressionType.ZSTD
#: Pushes of a client each, after it asked for its subscription: a list of what differs from a good one.
PUSHES: dict[str, list[dict[str, Any]]] = {
    "one": [{}],
    "two at once": [{}, {}],
    "nothing": [{"metrics": b""}],
    **{f"in {kind.name}": [{"metrics": compress(kind, DATA), "compression_type": kind}] for kind in CompressionType},
    "an unknown compression": [{"compression_type": 5}],
    "a negative compression": [{"compression_type": -1}],
    "damaged": [{"metrics": b"\xff\xff\xff\xff\xff", "compression_type": ZSTD}],
    "too large": [{"metrics": bytes(BYTES_MAX + 1)}],
    "too large when decompressed": [{"metrics": compress(ZSTD, bytes(BYTES_MAX + 1)), "compression_type": ZSTD}],
    "another subscription": [{"subscription_id": 1}],
    "the last, and one more": [{"terminating": True}, {}],
    "the last at once, and again": [{}, {"terminating": True}, {"terminating": True}],
    "the last of another subscription, and one more": [{"subscription_id": 1, "terminating": True}, {}],
}


def answers(port: int) -> dict[str, Any]:
    """What a broker answers to the same clients."""
    with NodeConnection("127.0.0.1", port, client_id="compare") as connection:
        settings = {"metrics": "*", "interval.ms": "60000", "match": "client_id=comp.*"}
        changes = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=changes)
        connection.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        eventually("it is known", lambda: get(connection, ZERO_UUID).requested_metrics == ["*"])
        found: dict[str, Any] = {}
        for number, (name, pushes) in enumerate(PUSHES.items(), 2):
            instance_id = bytes([number]) * 16
            subscription = get(connection, instance_id)
            asked = {"subscription_id": subscription.subscription_id}
            codes = [push(connection, instance_id, **{**asked, **fields}) for fields in pushes]
            found[name] = [subscription, *codes, ErrorCode(get(connection, instance_id).error_code)]
        for instance_id in (ZERO_UUID, METADATA_TOPIC_ID):
            found[f"a push of {instance_id.hex()}"] = push(connection, instance_id, subscription_id=1)
        found["a push without asking"] = push(connection, bytes([1]) * 16, subscription_id=1)
        return found


def get(connection: NodeConnection, instance_id: bytes) -> Any:
    return connection.send(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(connection: NodeConnection, instance_id: bytes, **fields: Any) -> ErrorCode:
    message = PushTelemetryRequest(**{"client_instance_id": instance_id, "metrics": DATA, **fields})
    return ErrorCode(connection.send(message, 0).error_code)


def test_the_answers_are_apache_kafkas(apache_runtime: KafkaRuntime, tmp_path: Path) -> None:
    config = {"telemetry.max.bytes": str(BYTES_MAX)}
    plugin = {**config, "metric.reporters": SOURCE.stem}
    classes = apache_runtime.compiled(SOURCE)
    with ApacheKafka(apache_runtime, tmp_path / "apache", plugin, classes=classes) as apache:
        theirs = answers(apache.port)
    with BarnabasCluster(tmp_path / "ours", broker_count=1, first_port=0, config=config) as cluster:
        ours = answers(cluster.brokers[0].port)
    assert ours["one"][1:] == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    # In Apache Kafka a last push counts although it was refused, until the next ordinary one is. A client that sends
    # the two in turn is never throttled. Here only a last push that was taken counts.
    story = "the last of another subscription, and one more"
    assert theirs[story].pop(2) == ErrorCode.INVALID_REQUEST
    assert ours[story].pop(2) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ours == theirs
