"""The consumer protocol (KIP-848) with real clients: librdkafka, the Java consumer, Apache's tools.

The cluster is one of its own, whose members heartbeat ten times a second instead of every five seconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.compare.consumer_group_questions import Member
from tests.compare.conversation import Conversation
from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

PARTITIONS = 4
TIMEOUT_S = 20
JOIN_TO_ASSIGNMENT_MS = 50
TRIES_MAX = 50  # of a busy machine to be quick once
BY_DEFAULT_MS = 20_000  # less than half of a session by default
CONFIG = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
MakeConsumer = Callable[..., Consumer]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker with short intervals for consumer groups."""
    directory: Path = tmp_path_factory.mktemp("quick")
    if request.config.getoption("target") == "apache":
        node: ApacheKafka = ApacheKafkaTarget(kafka_runtime(), directory, CONFIG)
        with node:
            yield node  # type: ignore[misc]
    else:
        with BarnabasCluster(directory, broker_count=1, first_port=0, config=CONFIG) as barnabas:
            yield barnabas  # type: ignore[misc]


@pytest.fixture(scope="module")
def admin(cluster: Target) -> AdminClient:
    """confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def create(admin: AdminClient, unused_name: str) -> Callable[..., str]:
    """Creates a topic and returns its name, which is also used for a group."""

    def create_topic(suffix: str = "", partitions: int = PARTITIONS) -> str:
        name = unused_name + suffix
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
        eventually("the broker knows the topic", lambda: name in admin.list_topics(timeout=TIMEOUT_S).topics)
        return name

    return create_topic


@pytest.fixture
def make(cluster: Target) -> Iterator[MakeConsumer]:
    """Makes consumers and closes them at the test's end. They use the consumer protocol unless configured otherwise."""
    made: list[Consumer] = []

    def make_consumer(group: str, *topics: str, **config: object) -> Consumer:
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        settings = {
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "group.protocol": "consumer", **overrides,
        }  # fmt: skip
        if settings["group.protocol"] == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
        consumer = Consumer(settings)
        consumer.subscribe(list(topics))
        made.append(consumer)
        return consumer

    yield make_consumer
    for consumer in made:
        consumer.close()


@pytest.fixture
def run(tools: KafkaTools, cluster: Target) -> Run:
    """Runs a tool against the cluster and returns its output."""

    def run_tool(tool: str, *arguments: str) -> str:
        return tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments).check().stdout

    return run_tool


def produce(cluster: Target, topic: str, count: int) -> None:
    """Produce 0, 1, 2, ... round robin over the partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def poll(*consumers: Consumer) -> list[str]:
    """Poll each consumer shortly and return the received values. Retriable coordinator errors are ignored."""
    values = []
    for consumer in consumers:
        for message in consumer.consume(1000, 0.02):
            error = message.error()
            assert error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
            if error is None:
                values.append(message.value().decode())
    return values


def owned(consumer: Consumer) -> set[tuple[str, int]]:
    """Return a consumer's current partitions."""
    return {(assigned.topic, assigned.partition) for assigned in consumer.assignment()}


def share(*consumers: Consumer) -> Callable[[], bool]:
    """Check whether these consumers have all partitions of a topic, evenly and each once."""

    def is_shared() -> bool:
        poll(*consumers)
        parts = [owned(consumer) for consumer in consumers]
        is_whole = len(set().union(*parts)) == sum(map(len, parts)) == PARTITIONS
        return is_whole and max(map(len, parts)) - min(map(len, parts)) <= 1

    return is_shared


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_take_over_when_one_leaves(
    cluster: Target, make: MakeConsumer, create: Run, assignor: str
) -> None:
    topic = create()
    first, second, third = (make(topic, topic, group_remote_assignor=assignor) for _ in range(3))
    eventually("three share", share(first, second, third))
    produce(cluster, topic, 100)
    values: list[str] = []
    eventually("all values arrived", lambda: len(values.extend(poll(first, second, third)) or values) >= 100)
    assert sorted(values, key=int) == [str(number) for number in range(100)]
    second.close()
    eventually("two share", share(first, third))


def test_a_group_continues_at_its_committed_offset(cluster: Target, make: MakeConsumer, create: Run) -> None:
    topic = create()
    produce(cluster, topic, 40)
    first = make(topic, topic)
    values: list[str] = []
    eventually("all values arrived", lambda: len(values.extend(poll(first)) or values) >= 40)
    first.commit(offsets=[TopicPartition(topic, number, 7) for number in range(PARTITIONS)], asynchronous=False)
    first.close()
    second = make(topic, topic)
    rest: list[str] = []
    eventually("the values after the commit arrived", lambda: len(rest.extend(poll(second)) or rest) >= 12)
    assert sorted(rest, key=int) == [str(number) for number in range(28, 40)]


def test_new_partitions_are_assigned(admin: AdminClient, make: MakeConsumer, create: Run) -> None:
    topic = create(partitions=2)
    consumer = make(topic, topic)
    eventually("it has both", lambda: poll(consumer) is not None and len(owned(consumer)) == 2)
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    eventually("it has the new ones too", share(consumer))


def test_created_topics_are_assigned_and_deleted_ones_revoked(
    admin: AdminClient, make: MakeConsumer, create: Run, unused_name: str
) -> None:
    later = f"{unused_name}-later"
    topic = create()
    consumer = make(topic, topic, later)
    eventually("it has the first", share(consumer))
    create("-later", partitions=1)
    eventually("it has the second", lambda: poll(consumer) is not None and (later, 0) in owned(consumer))
    admin.delete_topics([later])[later].result(TIMEOUT_S)
    eventually("it has only the first", share(consumer))


def test_a_regular_expression_is_resolved_by_the_broker(make: MakeConsumer, create: Run, unused_name: str) -> None:
    create("-a-1", partitions=2)
    create("-b-1", partitions=2)
    create("-c-1", partitions=2)
    consumer = make(unused_name, f"^{unused_name}-[ab]-\\d+$")
    eventually("it has two topics", share(consumer))
    assert {topic for topic, _ in owned(consumer)} == {f"{unused_name}-a-1", f"{unused_name}-b-1"}


def test_a_static_member_gets_its_partitions_back(make: MakeConsumer, create: Run) -> None:
    topic = create()
    first, second = (make(topic, topic, group_instance_id=f"i{number}") for number in range(2))
    eventually("two share", share(first, second))
    before = owned(first)
    first.close()
    again = make(topic, topic, group_instance_id="i0")
    eventually("it is back", share(again, second))
    assert owned(again) == before


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_group_moves_from_the_classic_to_the_consumer_protocol_and_back(
    cluster: Target, make: MakeConsumer, create: Run, run: Run, strategy: str
) -> None:
    topic = create()
    old = [make(topic, topic, group_protocol="classic", partition_assignment_strategy=strategy) for _ in range(2)]
    eventually("the classic ones share", share(*old))
    assert "classic" in type_of(run, topic)
    new = make(topic, topic)
    eventually("all three share", share(*old, new))
    assert "consumer" in type_of(run, topic)
    produce(cluster, topic, 100)
    values: list[str] = []
    eventually("all values arrived", lambda: len(values.extend(poll(*old, new)) or values) >= 100)
    assert sorted(values, key=int) == [str(number) for number in range(100)]
    for consumer in (*old, new):
        consumer.commit(asynchronous=False) if owned(consumer) and values else None
    new.close()
    eventually("the classic ones share again", share(*old))
    assert "classic" in type_of(run, topic)
    new = make(topic, topic)
    eventually("the group is upgraded again", share(*old, new))
    for consumer in old:
        consumer.close()
    eventually("only the new one is left", share(new))
    assert poll(new) == []


def type_of(run: Run, group: str) -> str:
    """Return the row of kafka-groups for a group."""
    return next(line for line in run("kafka-groups", "--list").splitlines() if line.split()[0] == group).lower()


def test_the_java_consumer_reads_in_a_consumer_group(cluster: Target, create: Run, run: Run) -> None:
    topic = create()
    produce(cluster, topic, 50)
    read = run(
        "kafka-console-consumer", "--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "50",
        "--timeout-ms", "20000", "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert sorted(read.split(), key=int) == [str(number) for number in range(50)]
    assert "consumer" in type_of(run, topic)
    described = run("kafka-consumer-groups", "--describe", "--group", topic)
    assert described.count(topic) >= PARTITIONS
    where = ("--group", topic, "--topic", topic)
    assert run("kafka-consumer-groups", *where, "--reset-offsets", "--to-offset", "3", "--execute").count(topic)
    lines = run("kafka-consumer-groups", "--describe", "--group", topic).splitlines()
    assert [line.split()[3] for line in lines if line.startswith(topic)] == ["3"] * PARTITIONS
    run("kafka-consumer-groups", *where, "--delete-offsets")
    assert run("kafka-consumer-groups", "--delete", "--group", topic).count("successful")
    assert topic not in run("kafka-consumer-groups", "--list").split()


def test_kafka_configs_gives_a_group_its_own_session(
    cluster: Target, make: MakeConsumer, create: Run, run: Run
) -> None:
    topic = create()
    entity = ("--entity-type", "groups", "--entity-name", topic)
    run("kafka-configs", *entity, "--alter", "--add-config", "consumer.session.timeout.ms=1500")
    eventually("it is seen", lambda: "session.timeout.ms=1500" in run("kafka-configs", *entity, "--describe"))
    consumer = make(topic, topic)
    eventually("it has partitions", share(consumer))
    conversation = Conversation(int(cluster.bootstrap.rpartition(":")[2]))
    silent = Member(conversation, topic, topic, bytes(16), "silent")
    assert silent.join().error_code == ErrorCode.NONE
    assert len(silent.describe().groups[0].members) == 2
    eventually(
        "the silent one is removed", lambda: poll(consumer) == [] and len(members_of(silent)) == 1, BY_DEFAULT_MS
    )


def members_of(member: Member) -> list[object]:
    """Describe the members of the group."""
    members: list[object] = member.describe().groups[0].members
    return members


def test_kafka_consumer_perf_test_reads_in_a_consumer_group(cluster: Target, create: Run, run: Run) -> None:
    topic = create()
    produce(cluster, topic, 5000)
    output = run(
        "kafka-consumer-perf-test", "--topic", topic, "--group", topic, "--num-records", "5000",
        "--timeout", "20000", "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert "5000" in output


def test_a_new_group_of_one_has_its_assignment_at_once(cluster: Target, admin: AdminClient, create: Run) -> None:
    """The first heartbeat returns the assignment, within 50 ms."""
    topic = create()
    conversation = Conversation(int(cluster.bootstrap.rpartition(":")[2]))
    eventually(
        "the group has a coordinator", lambda: conversation.ask(FindCoordinatorRequest(key=topic), 2).error_code == 0
    )
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    topic_id = base64.b64decode(f"{described.topic_id}==")
    clock, times_ms = SystemClock(), []
    for number in range(TRIES_MAX):
        member = Member(conversation, f"{topic}-{number}", topic, topic_id)
        eventually(
            "it has loaded", lambda member=member: member.heartbeat(1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        )
        started_ms = clock.monotonic_ms()
        (assigned,) = member.join().assignment.topic_partitions
        times_ms.append(clock.monotonic_ms() - started_ms)
        assert len(assigned.partitions) == PARTITIONS
        member.leave()
        if times_ms[-1] < JOIN_TO_ASSIGNMENT_MS:
            break
    assert times_ms[-1] < JOIN_TO_ASSIGNMENT_MS, times_ms


def test_kafka_dump_log_reads_the_records_of_a_consumer_group(
    cluster: Target, make: MakeConsumer, create: Run, tools: KafkaTools
) -> None:
    topic = create()
    consumer = make(topic, f"^{topic}$")
    eventually("it has partitions", share(consumer))
    files = [
        str(path) for path in cluster.broker_data_directory().glob("__consumer_offsets-*/*.log") if path.stat().st_size
    ]
    output = (
        tools.run("kafka-dump-log", "--offsets-decoder", "--deep-iteration", "--files", ",".join(files)).check().stdout
    )
    ours = [line for line in output.splitlines() if f'"groupId":"{topic}"' in line]
    types = {int(found) for line in ours for found in re.findall(r'key: \{"type":"?(\d+)', line)}
    assert types == {3, 5, 6, 7, 8, 16}, ours


def test_the_tools_describe_a_consumer_group(make: MakeConsumer, create: Run, run: Run) -> None:
    topic = create()
    first, second = (make(topic, topic, client_id=f"reader-{number}") for number in range(2))
    eventually("two share", share(first, second))
    first.commit(offsets=[TopicPartition(topic, number, 0) for _, number in owned(first)], asynchronous=False)
    group = ("--describe", "--group", topic)
    offsets = run("kafka-consumer-groups", *group)
    assert all(name in offsets for name in ("reader-0", "reader-1"))
    state = run("kafka-consumer-groups", *group, "--state", "--verbose")
    assert all(word in state for word in ("Stable", "uniform"))
    members = run("kafka-consumer-groups", *group, "--members", "--verbose")
    assert all(column in members for column in ("CURRENT-EPOCH", "TARGET-ASSIGNMENT"))
    assert members.count(topic) >= 2
    listed = run("kafka-consumer-groups", "--list", "--state", "--type", "consumer")
    assert any(line.split() == [topic, "Consumer", "Stable"] for line in listed.splitlines()), listed
