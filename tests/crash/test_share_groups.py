"""Share consumers of the Java client while every broker is killed once: kill -9.

Each broker leads partitions of the topic, and coordinates share state or the group. What must hold afterwards: every
record was delivered, a record that one member settled (accepted or rejected, as the broker confirmed) was not delivered
again, and nothing is left to be delivered.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.share_members import Deliveries, ShareMembers, java_members
from tests.support.waiting import eventually

TOPIC, GROUP, PARTITIONS = "shared", "workers", 4
RECORDS = 50  # of each partition, before each kill
BROKERS = 3
LIMIT = 10  # deliveries
PRODUCE_TIMEOUT_S = 30
SETTLED_TIMEOUT_MS = 60_000
CONFIG = {
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.delivery.count.limit": str(LIMIT),
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Three brokers, with a topic that all of them have."""
    with BarnabasCluster(tmp_path, broker_count=BROKERS, first_port=0, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(20)
        yield cluster


def test_every_record_is_settled_once_whichever_broker_is_killed(cluster: BarnabasCluster, tools: KafkaTools) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    of_group = ("--entity-type", "groups", "--entity-name", GROUP)
    tools.run(
        "kafka-configs", *where, "--alter", *of_group, "--add-config", "share.auto.offset.reset=earliest"
    ).check()  # fmt: skip
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "max.poll.records": "10"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    deliveries = Deliveries()
    with ShareMembers(
        java_members(kafka_runtime()), settings, TOPIC, deliveries, members=4, releases=7, rejects=11
    ) as members:  # fmt: skip
        for node in cluster.brokers:
            before = len(deliveries.settled)
            produce(producer)
            eventually("members are at work", lambda before=before: len(deliveries.settled) > before + RECORDS)
            cluster.stop_node(node, signal.SIGKILL)
            cluster.start_node(node)
        produce(producer)
        wanted = {(p, offset) for p in range(PARTITIONS) for offset in range(RECORDS * (BROKERS + 1))}
        eventually(
            "every record is settled, or may be",
            lambda: members.has_failed or not wanted - deliveries.settled.keys() - deliveries.unknown.keys(),
            SETTLED_TIMEOUT_MS,
        )
        eventually("nothing is left", lambda: lag(tools, cluster) == 0, SETTLED_TIMEOUT_MS)
    members.stop()
    assert deliveries.mistakes == []
    assert deliveries.got.keys() == wanted
    unsettled = wanted - deliveries.settled.keys()
    print(f"{len(deliveries.settled)} settled, {len(unsettled)} perhaps; {sum(deliveries.got.values())} deliveries")
    assert max(deliveries.counts.values()) <= LIMIT


def produce(producer: Producer) -> None:
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, str(number), partition=partition)
    assert producer.flush(PRODUCE_TIMEOUT_S) == 0


def lag(tools: KafkaTools, cluster: BarnabasCluster) -> int:
    """Return the records that the group has not settled, by kafka-share-groups; -1: not known of some partition."""
    result = tools.run("kafka-share-groups", "--bootstrap-server", cluster.bootstrap, "--describe", "--group", GROUP)
    lags = [line.split()[4] for line in result.stdout.splitlines() if line.startswith(f"{GROUP} ")]
    return sum(map(int, lags)) if len(lags) == PARTITIONS and "-" not in lags else -1
