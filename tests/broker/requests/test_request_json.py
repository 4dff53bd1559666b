"""Requests and responses as Kafka's request log shows them."""

from __future__ import annotations

from barnabas.broker.requests.request_json import HIDDEN, camel, message_json
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest

TOPIC_ID = bytes(range(16))


def produce(records: bytes | None = b"12345") -> ProduceRequest:
    data = [PartitionProduceData(index=2, records=None if records is None else memoryview(records))]
    return ProduceRequest(acks=-1, timeout_ms=30, topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=data)])


def test_names_are_kafkas() -> None:
    assert [camel(name) for name in ("acks", "timeout_ms", "is_kraft_controller")] == [
        "acks", "timeoutMs", "isKraftController",
    ]  # fmt: skip


def test_records_are_shown_by_their_size_and_uuids_as_text() -> None:
    assert message_json(produce(), 13) == {
        "transactionalId": None,
        "acks": -1,
        "timeoutMs": 30,
        "topicData": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitionData": [{"index": 2, "recordsSizeInBytes": 5}]}],
    }
    assert message_json(produce(None), 13)["topicData"][0]["partitionData"][0]["recordsSizeInBytes"] == 0


def test_a_version_shows_its_own_fields_only() -> None:
    assert "topicId" not in message_json(produce(), 12)["topicData"][0]
    assert "name" in message_json(produce(), 12)["topicData"][0]


def test_tagged_fields_are_shown_when_they_differ_from_their_default() -> None:
    assert "clusterId" not in message_json(FetchRequest(), 17)
    assert message_json(FetchRequest(cluster_id="c"), 17)["clusterId"] == "c"


def test_secrets_are_hidden() -> None:
    assert message_json(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2) == {"authBytes": HIDDEN}
    registration = message_json(BrokerRegistrationRequest(incarnation_id=TOPIC_ID), 4)
    assert registration["incarnationId"] == HIDDEN
    assert message_json(EnvelopeRequest(request_data=b"secret"), 0)["requestData"] == HIDDEN
    configs = [
        AlterableConfig(name="ssl.keystore.password", value="secret"),
        AlterableConfig(name="listener.name.a.scram-sha-256.sasl.jaas.config", value="secret"),
        AlterableConfig(name="vendor.api.key", value="secret"),
        AlterableConfig(name="log.retention.ms", value="7"),
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    shown = message_json(IncrementalAlterConfigsRequest(resources=[resource]), 1)["resources"][0]["configs"]
    assert [config["value"] for config in shown] == [HIDDEN, HIDDEN, HIDDEN, "7"]
