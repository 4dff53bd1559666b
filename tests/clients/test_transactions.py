"""Transactions: what is committed is read once, what is aborted never, offsets go along with records."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import Target
from tests.support.waiting import eventually

TIMEOUT_S = 30


def transactional(target: Target, transactional_id: str, **config: object) -> Producer:
    """A producer that has its epoch."""
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **config}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def read_committed(target: Target, topic: str, until: int, partition: int = 0) -> list[str]:
    """The values of a partition up to offset `until` (exclusive), as a read_committed consumer sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap, "group.id": "unused", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    values: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        for _ in range(1000):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing after {values}"
            if message.error():
                position = consumer.position([TopicPartition(topic, partition)])[0].offset
                if position >= until:
                    return values
                continue
            values.append(message.value().decode())
    finally:
        consumer.close()
    raise AssertionError(f"never came to {until}: {values}")


@pytest.fixture
def topic(create_topic: Callable[..., str]) -> str:
    return create_topic()


def test_committed_records_are_read_and_aborted_ones_are_not(target: Target, topic: str) -> None:
    producer = transactional(target, topic)
    for values, ends_with in (
        (["a", "b"], producer.commit_transaction),
        (["x", "y"], producer.abort_transaction),
        (["c"], producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(TIMEOUT_S)
        ends_with(TIMEOUT_S)
    assert read_committed(target, topic, 8) == ["a", "b", "c"]


def test_offsets_count_when_the_transaction_is_committed(target: Target, topic: str) -> None:
    producer = transactional(target, topic)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.subscribe([topic])
    eventually("the consumer has its partition", lambda: consumer.poll(0.1) or consumer.assignment())
    for offset, ends_with in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(offset))
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        ends_with(TIMEOUT_S)
    committed = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset
    consumer.close()
    assert committed == 7
    assert read_committed(target, topic, 4) == ["7"]
