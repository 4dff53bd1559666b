"""Consumer groups as applications use them: sharing, leaving, committing, resetting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.compare.conversation import Conversation
from tests.compare.group_life_questions import Member
from tests.support.cluster import Target
from tests.support.waiting import eventually

PARTITIONS = 4
TIMEOUT_S = 20
JOIN_TO_ASSIGNMENT_MS = 50
TRIES_MAX = 50  # of a busy machine to be quick once
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def make_consumer(target: Target) -> Iterator[MakeConsumer]:
    """Makes consumers and closes them at the test's end."""
    made: list[Consumer] = []

    def make(group: str, topic: str, **config: object) -> Consumer:
        defaults = {"bootstrap.servers": target.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        consumer = Consumer({**defaults, "group.id": group, "session.timeout.ms": 10_000, **overrides})
        consumer.subscribe([topic])
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def produce(target: Target, topic: str, count: int) -> None:
    """Produce 0, 1, 2, ... round robin over the partitions."""
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def poll_all(*consumers: Consumer) -> list[str]:
    """Poll each consumer shortly and return the received values."""
    messages = [message for consumer in consumers for message in consumer.consume(1000, 0.05)]
    assert [message.error() for message in messages] == [None] * len(messages)
    return [message.value().decode() for message in messages]


def owned(consumer: Consumer) -> set[int]:
    """Return a consumer's current partitions."""
    return {assigned.partition for assigned in consumer.assignment()}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_consumers_share_the_partitions_and_take_over_when_one_leaves(
    target: Target, make_consumer: MakeConsumer, create_topic: Callable[..., str], strategy: str
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    first, second = (make_consumer(topic, topic, partition_assignment_strategy=strategy) for _ in range(2))

    def is_shared() -> bool:
        poll_all(first, second)
        return (len(owned(first)), len(owned(second))) == (2, 2) and not owned(first) & owned(second)

    eventually("each consumer has two partitions", is_shared)
    produce(target, topic, 100)
    values: list[str] = []
    eventually("all values arrived", lambda: len(values.extend(poll_all(first, second)) or values) >= 100)
    assert sorted(values, key=int) == [str(number) for number in range(100)]
    second.close()
    eventually("the other has them all", lambda: poll_all(first) is not None and owned(first) == set(range(PARTITIONS)))


def test_a_group_continues_at_its_committed_offset(
    target: Target, make_consumer: MakeConsumer, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    produce(target, topic, 40)
    first = make_consumer(topic, topic)
    values: list[str] = []
    eventually("all values arrived", lambda: len(values.extend(poll_all(first)) or values) >= 40)
    first.commit(offsets=[TopicPartition(topic, number, 7) for number in range(PARTITIONS)], asynchronous=False)
    first.close()
    second = make_consumer(topic, topic)
    rest: list[str] = []
    eventually("the values after the commit arrived", lambda: len(rest.extend(poll_all(second)) or rest) >= 12)
    assert sorted(rest, key=int) == [str(number) for number in range(28, 40)]


def test_committed_offsets_and_metadata_are_returned(
    target: Target, make_consumer: MakeConsumer, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    consumer = make_consumer(topic, topic)
    eventually("it has joined", lambda: poll_all(consumer) is not None and owned(consumer))
    consumer.commit(offsets=[TopicPartition(topic, 1, 5, metadata="half way")], asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, number) for number in (0, 1)], TIMEOUT_S)
    assert [(position.offset, position.metadata) for position in committed] == [(-1001, None), (5, "half way")]


def test_the_admin_client_describes_alters_and_deletes_a_group(
    target: Target, admin: AdminClient, make_consumer: MakeConsumer, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    consumer = make_consumer(topic, topic, client_id="reader")
    eventually("it has joined", lambda: poll_all(consumer) is not None and owned(consumer))
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert described.state == ConsumerGroupState.STABLE
    (member,) = described.members
    assert member.client_id == "reader"
    assert {assigned.partition for assigned in member.assignment.topic_partitions} == set(range(PARTITIONS))
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    assert topic in {group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    move = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([move])[topic].result(TIMEOUT_S)
    ask = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])]
    answer = admin.list_consumer_group_offsets(ask)[topic].result(TIMEOUT_S)
    assert [position.offset for position in answer.topic_partitions] == [1]
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid}


def test_a_static_member_gets_its_partitions_back(
    make_consumer: MakeConsumer, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    first, second = (make_consumer(topic, topic, group_instance_id=f"member-{number}") for number in range(2))
    eventually("shared", lambda: poll_all(first, second) is not None and len(owned(first)) == len(owned(second)) == 2)
    before = owned(first), owned(second)
    second.close()
    third = make_consumer(topic, topic, group_instance_id="member-1")
    eventually("it is back", lambda: poll_all(first, third) is not None and len(owned(third)) == 2)
    assert (owned(first), owned(third)) == before


def test_a_kafka_python_group_consumes_and_commits(target: Target, create_topic: Callable[..., str]) -> None:
    topic = create_topic(partitions=PARTITIONS)
    produce(target, topic, 20)
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=target.bootstrap, group_id=topic, auto_offset_reset="earliest",
        enable_auto_commit=False, consumer_timeout_ms=TIMEOUT_S * 1000,
    )  # fmt: skip
    try:
        values = [next(consumer).value.decode() for _ in range(20)]
        consumer.commit()
        positions = [consumer.committed(kafka.TopicPartition(topic, number)) for number in range(PARTITIONS)]
    finally:
        consumer.close()
    assert sorted(values, key=int) == [str(number) for number in range(20)]
    assert positions == [5] * PARTITIONS


def test_an_aiokafka_group_consumes_and_commits(target: Target, create_topic: Callable[..., str]) -> None:
    topic = create_topic(partitions=PARTITIONS)
    produce(target, topic, 20)

    async def consume() -> tuple[list[str], list[int | None]]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=target.bootstrap, group_id=topic, auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
        async with consumer:
            values = [(await consumer.getone()).value.decode() for _ in range(20)]
            await consumer.commit()
            partitions = [aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
            return values, [await consumer.committed(partition) for partition in partitions]

    values, positions = asyncio.run(asyncio.wait_for(consume(), TIMEOUT_S))
    assert sorted(values, key=int) == [str(number) for number in range(20)]
    assert positions == [5] * PARTITIONS


def test_a_new_group_of_one_has_its_assignment_at_once(target: Target, create_topic: Callable[..., str]) -> None:
    """Without an initial delay, JoinGroup for a member id, JoinGroup and SyncGroup take less than 50 ms together."""
    topic = create_topic()
    any_broker = Conversation(int(target.bootstrap.rpartition(":")[2]))
    clock, times_ms = SystemClock(), []
    for number in range(TRIES_MAX):
        group = f"{topic}-{number}"
        find = FindCoordinatorRequest(key=group)
        eventually("the group has a coordinator", lambda find=find: any_broker.ask(find, 2).error_code == 0)  # type: ignore[misc]
        member = Member(Conversation(any_broker.ask(find, 2).port), group, topic)
        eventually("it has loaded", lambda m=member: m.heartbeat().error_code == UNKNOWN_MEMBER_ID)  # type: ignore[misc]
        started_ms = clock.monotonic_ms()
        member.join()
        member.join()
        assert member.sync().assignment == b"all"
        times_ms.append(clock.monotonic_ms() - started_ms)
        member.leave()
        if times_ms[-1] < JOIN_TO_ASSIGNMENT_MS:
            break
    assert times_ms[-1] < JOIN_TO_ASSIGNMENT_MS, times_ms
