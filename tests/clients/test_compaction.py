"""Compacted topics as clients see them: the cleaner takes its settings at run time and leaves each key's last record;
records without a key are refused, each by its number.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.cluster import Target
from tests.support.waiting import eventually

KEYS = 5
PER_KEY = 40


def set_on_the_broker(admin: AdminClient, name: str, value: str) -> None:
    """Set a dynamic configuration of the broker."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)


def produce(target: Target, topic: str, key: str | None, *values: str) -> list[KafkaError]:
    """Produce values with a key and return the delivery errors."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(30) == 0
    return errors


def test_the_last_record_of_each_key_stays(
    target: Target, admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    set_on_the_broker(admin, "log.cleaner.backoff.ms", "50")
    topic = create_topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100")
    for number in range(PER_KEY):
        for key in range(KEYS):
            assert produce(target, topic, f"k{key}", str(number)) == []

    def left() -> list[tuple[str, str]]:
        produce(target, topic, "k0", "end")  # after segment.ms: the segment is rolled and its records can be cleaned
        return [(key, value) for key, value in read_all(target, topic) if key != "k0"]

    expected = [(f"k{key}", str(PER_KEY - 1)) for key in range(1, KEYS)]
    eventually("the topic is compacted", lambda: left() == expected)


def read_all(target: Target, topic: str) -> list[tuple[str, str]]:
    """Read (key, value) of every record, in order."""
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": topic, "enable.partition.eof": True, "check.crcs": True}
    )
    found: list[tuple[str, str]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(20)
            assert message is not None, "the partition has no end"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.key().decode(), message.value().decode()))
    finally:
        consumer.close()


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_without_a_key_are_rejected(target: Target, create_topic: Callable[..., str], policy: str) -> None:
    topic = create_topic(cleanup_policy=policy)
    (error,) = produce(target, topic, None, "no key")
    assert error.code() == KafkaError.INVALID_RECORD
    assert produce(target, topic, "key", "value") == []
