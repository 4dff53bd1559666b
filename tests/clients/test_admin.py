"""The admin operations of librdkafka's and kafka-python's admin clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from tests.support.cluster import Target
from tests.support.kafka.clients import list_offsets
from tests.support.waiting import eventually

TIMEOUT_S = 20


@pytest.fixture
def kafka_python_admin(target: Target) -> Iterator[kafka.KafkaAdminClient]:
    """kafka-python's admin client."""
    client = kafka.KafkaAdminClient(bootstrap_servers=target.bootstrap)
    yield client
    client.close()


def produce(target: Target, topic: str, count: int, partition: int = 0) -> None:
    """Produce this many records to one partition, with timestamps 1000, 2000, ..."""
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(count):
        producer.produce(topic, f"value-{number}", partition=partition, timestamp=1000 * (number + 1))
    assert producer.flush(TIMEOUT_S) == 0


def topics(admin: AdminClient) -> dict[str, TopicMetadata]:
    """Return the topics that the broker knows, by name. A broker applies a change slightly after the controller."""
    listed: dict[str, TopicMetadata] = admin.list_topics(timeout=TIMEOUT_S).topics
    return listed


def error_code(call: Callable[[], object]) -> int:
    """Return the code of the Kafka error that the call raises."""
    with pytest.raises(KafkaException) as raised:
        call()
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error.code()


def test_a_cluster_describes_itself(target: Target, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [target.bootstrap]
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert len(cluster.cluster_id) == 22


def test_a_topic_is_created_listed_described_and_deleted(admin: AdminClient, unused_name: str) -> None:
    admin.create_topics([NewTopic(unused_name, 3, 1)])[unused_name].result(TIMEOUT_S)
    described = eventually("it is listed", lambda: topics(admin).get(unused_name))
    partitions = [(each.id, each.leader, each.replicas, each.isrs) for each in described.partitions.values()]
    assert sorted(partitions) == [(number, 0, [0], [0]) for number in range(3)]
    admin.delete_topics([unused_name])[unused_name].result(TIMEOUT_S)
    eventually("it is gone", lambda: unused_name not in topics(admin))


def test_a_topic_recreated_under_a_deleted_name_is_empty(
    target: Target, admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    produce(target, topic, 5)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    eventually("it is gone", lambda: topic not in topics(admin))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    eventually("it is back", lambda: topic in topics(admin))
    partition = TopicPartition(topic, 0)
    assert list_offsets(admin, {partition: OffsetSpec.latest()}) == {partition: 0}


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "expected"),
    [
        ("no spaces", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("..", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("too-few-partitions", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("too-many-replicas", 1, 5, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-config", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", 1, 1, {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_an_invalid_topic_is_rejected(
    admin: AdminClient, name: str, partitions: int, replicas: int, config: dict[str, str], expected: int
) -> None:
    topic = NewTopic(name, partitions, replicas, config=config)
    assert error_code(lambda: admin.create_topics([topic])[name].result(TIMEOUT_S)) == expected


def test_a_topic_that_exists_is_not_created_again(admin: AdminClient, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    again = NewTopic(topic, 1, 1)
    assert error_code(lambda: admin.create_topics([again])[topic].result(TIMEOUT_S)) == KafkaError.TOPIC_ALREADY_EXISTS


def test_an_unknown_topic_cannot_be_deleted(admin: AdminClient, unused_name: str) -> None:
    deletion = admin.delete_topics([unused_name])[unused_name]
    assert error_code(lambda: deletion.result(TIMEOUT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_added_partitions_accept_records(target: Target, admin: AdminClient, create_topic: Callable[..., str]) -> None:
    topic = create_topic(partitions=1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    eventually("three partitions", lambda: len(topics(admin)[topic].partitions) == 3)
    produce(target, topic, 4, partition=2)
    fewer = [NewPartitions(topic, 2)]
    assert error_code(lambda: admin.create_partitions(fewer)[topic].result(TIMEOUT_S)) == KafkaError.INVALID_PARTITIONS


def test_a_topics_configuration_is_described_with_its_sources(
    admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    resource = ConfigResource(ResourceType.TOPIC, create_topic(retention_ms="86400000"))
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert entries["retention.ms"].value == "86400000"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["segment.bytes"].value == "1073741824"
    assert entries["segment.bytes"].is_default


def test_a_topics_configuration_is_altered_and_reset(admin: AdminClient, create_topic: Callable[..., str]) -> None:
    topic = create_topic()

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def read(key: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        value: str = admin.describe_configs([resource])[resource].result(TIMEOUT_S)[key].value
        return value

    alter("retention.ms", "1234", AlterConfigOpType.SET)
    eventually("the new value is seen", lambda: read("retention.ms") == "1234")
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    eventually("both policies are seen", lambda: read("cleanup.policy") == "delete,compact")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    eventually("the default is back", lambda: read("retention.ms") == "604800000")
    assert error_code(lambda: alter("retention.ms", "soon", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG


def test_a_brokers_configuration_lists_every_key(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "0")
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert entries["num.io.threads"].value == "8"
    assert entries["node.id"].is_read_only
    assert len(entries) > 250


def test_offsets_are_listed_by_every_offset_spec(
    target: Target, admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    produce(target, topic, 5)
    partition = TopicPartition(topic, 0)

    def ask(spec: OffsetSpec) -> int:
        return list_offsets(admin, {partition: spec})[partition]

    assert ask(OffsetSpec.earliest()) == 0
    assert ask(OffsetSpec.latest()) == 5
    assert ask(OffsetSpec.max_timestamp()) == 4
    assert ask(OffsetSpec.for_timestamp(2500)) == 2
    assert ask(OffsetSpec.for_timestamp(9999)) == -1


def test_records_are_deleted_up_to_an_offset(
    target: Target, admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    produce(target, topic, 10)
    upto = TopicPartition(topic, 0, 4)
    assert admin.delete_records([upto])[upto].result(TIMEOUT_S).low_watermark == 4
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (4, 10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        offsets = [message.offset() for message in consumer.consume(6, TIMEOUT_S)]
    finally:
        consumer.close()
    assert offsets == list(range(4, 10))
    beyond = TopicPartition(topic, 0, 99)
    assert (
        error_code(lambda: admin.delete_records([beyond])[beyond].result(TIMEOUT_S)) == KafkaError.OFFSET_OUT_OF_RANGE
    )


def test_log_directories_show_the_size_of_a_partition(
    target: Target, kafka_python_admin: kafka.KafkaAdminClient, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    produce(target, topic, 10)
    (broker,) = kafka_python_admin.describe_log_dirs()
    (directory,) = broker["log_dirs"]
    sizes = {entry["name"]: entry["partitions"][0]["partition_size"] for entry in directory["topics"]}
    assert sizes[topic] > 100


def test_kafka_python_administers_topics(kafka_python_admin: kafka.KafkaAdminClient, unused_name: str) -> None:
    kafka_python_admin.create_topics({unused_name: {"num_partitions": 2, "replication_factor": 1}})
    eventually("it is listed", lambda: unused_name in kafka_python_admin.list_topics())
    (described,) = kafka_python_admin.describe_topics([unused_name])
    assert len(described["partitions"]) == 2
    kafka_python_admin.delete_topics([unused_name])
    eventually("it is gone", lambda: unused_name not in kafka_python_admin.list_topics())
