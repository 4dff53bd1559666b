"""Share groups (KIP-932) with the Java client, librdkafka, franz-go and Apache Kafka's console share consumer.

The cluster is one of its own, whose members heartbeat ten times a second instead of every five seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.share_members import (
    ACCEPT,
    REJECT,
    Deliveries,
    Program,
    ShareMembers,
    go_members,
    java_members,
    librdkafka_members,
)
from tests.support.waiting import eventually

PARTITIONS = 3
RECORDS = 90  # in each partition
TIMEOUT_S = 20
CONFIG = {
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker with short intervals for share groups."""
    directory: Path = tmp_path_factory.mktemp("shares")
    if request.config.getoption("target") == "apache":
        node: ApacheKafka = ApacheKafkaTarget(kafka_runtime(), directory, CONFIG)
        with node:
            yield node  # type: ignore[misc]
    else:
        with BarnabasCluster(directory, broker_count=1, first_port=0, config=CONFIG) as barnabas:
            yield barnabas  # type: ignore[misc]


@pytest.fixture(scope="module")
def target(cluster: Target) -> Target:
    """The cluster under test."""
    return cluster


@pytest.fixture(scope="module")
def admin(cluster: Target) -> AdminClient:
    """confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def topic(cluster: Target, create_topic: Callable[..., str]) -> str:
    """A topic with numbered records in each of its partitions."""
    name = create_topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(name, f"{partition}-{number}", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def group(tools: KafkaTools, cluster: Target, unused_name: str) -> str:
    """A group that begins with the first record."""
    settings = ("--alter", "--entity-type", "groups", "--entity-name", unused_name)
    where = ("--bootstrap-server", cluster.bootstrap)
    tools.run("kafka-configs", *where, *settings, "--add-config", "share.auto.offset.reset=earliest").check()
    return unused_name


@pytest.fixture(
    params=[
        pytest.param(lambda: java_members(kafka_runtime()), id="java"),
        pytest.param(librdkafka_members, id="librdkafka"),
        pytest.param(go_members, id="franz-go", marks=pytest.mark.needs("go")),
    ]
)
def program(request: pytest.FixtureRequest) -> list[str]:
    """The members of one client."""
    return request.param()  # type: ignore[no-any-return]


def test_the_console_consumer_reads_every_record(tools: KafkaTools, cluster: Target, topic: str, group: str) -> None:
    total = RECORDS * PARTITIONS
    output = tools.run(
        "kafka-console-share-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group,
        "--max-messages", str(total), "--timeout-ms", "20000",
    ).check().stdout  # fmt: skip
    assert sorted(output.split()) == sorted(f"{p}-{n}" for p in range(PARTITIONS) for n in range(RECORDS))


def test_members_share_the_records(program: list[str], cluster: Target, topic: str, group: str) -> None:
    """Each record is accepted by one member or rejected; some are released first, and delivered again."""
    deliveries = Deliveries()
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "max.poll.records": "10"}
    with ShareMembers(
        [Program(program, members=4)], settings, topic, deliveries, releases=10, rejects=15
    ) as members:  # fmt: skip
        total = RECORDS * PARTITIONS
        eventually("every record is settled", lambda: members.has_failed or len(deliveries.settled) == total)
    members.stop()
    assert deliveries.mistakes == []
    assert set(deliveries.settled.values()) == {ACCEPT, REJECT}
    for (partition, offset), count in deliveries.got.items():
        is_released = offset % 10 == 0
        assert count == deliveries.counts[partition, offset] == 1 + is_released, (partition, offset)
        assert deliveries.settled[partition, offset] == (REJECT if offset % 15 == 14 else ACCEPT)
    assert len(deliveries.by_member) > 1


def test_a_group_goes_on_where_it_stopped(program: list[str], cluster: Target, topic: str, group: str) -> None:
    deliveries = Deliveries()
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    total = RECORDS * PARTITIONS
    for wanted in (total, total + PARTITIONS):
        with ShareMembers([Program(program)], settings, topic, deliveries) as members:
            eventually("the records are settled", lambda at=wanted: members.has_failed or len(deliveries.settled) == at)
        members.stop()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce(topic, "later", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
    assert deliveries.mistakes == []
    assert set(deliveries.got.values()) == {1}
