"""The data that must survive the fuzzer (topics with records, groups with offsets), and the check that it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.cluster import LocalCluster
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from tests.fuzz.hostile import Protected
from tests.support.waiting import eventually

TOPICS = ("treasure-plain", "treasure-compacted")
GROUPS = ("treasure-group",)
PARTITIONS = 3
RECORDS = 50  # a partition
COMMITTED = 20
TIMEOUT_S = 30
METADATA_VERSION = 12


class Treasure:
    """Creates protected data in a running cluster, and checks that it is still there."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._settings = {"bootstrap.servers": cluster.bootstrap, "broker.address.family": "v4", "log_level": 2}
        self.protected = Protected((), (), (), (), "")

    def plant(self) -> Protected:
        """Create the topics, their records and the groups' offsets."""
        admin = AdminClient(self._settings)
        replicas = min(3, len(self._cluster.brokers))
        new = [
            NewTopic(TOPICS[0], PARTITIONS, replicas),
            NewTopic(TOPICS[1], PARTITIONS, replicas, config={"cleanup.policy": "compact"}),
        ]
        for made in admin.create_topics(new).values():
            made.result(TIMEOUT_S)
        producer = Producer({**self._settings, "acks": "all"})
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                for number in range(RECORDS):
                    producer.produce(topic, _value(topic, partition, number), _key(number), partition)
        assert producer.flush(TIMEOUT_S) == 0
        self._commit()
        self.protected = Protected(
            TOPICS,
            tuple(self._topic_ids().values()),
            GROUPS,
            tuple(node.node_id for node in self._cluster.brokers),
            self._cluster_id(),
        )
        return self.protected

    def check(self) -> None:
        """Raise AssertionError if any of it is missing or changed."""
        assert tuple(self._topic_ids().values()) == self.protected.topic_ids, "a protected topic is another one now"
        self._check_directories()
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                self._check_records(topic, partition)
        self._check_group()
        eventually("every replica of the protected topics is in sync again", self._is_whole)
        self._check_producing()

    def _commit(self) -> None:
        consumer = Consumer({**self._settings, "group.id": GROUPS[0], "enable.auto.commit": False})
        try:
            consumer.commit(
                offsets=[TopicPartition(TOPICS[0], partition, COMMITTED) for partition in range(PARTITIONS)],
                asynchronous=False,
            )
        finally:
            consumer.close()

    def _ask(self, message: object, version: int) -> object:
        node = next(node for node in self._cluster.brokers if node.is_running)
        with NodeConnection(node.host, node.port, timeout_ms=TIMEOUT_S * 1000) as connection:
            return connection.send(message, version)

    def _cluster_id(self) -> str:
        return str(self._ask(DescribeClusterRequest(), 0).cluster_id)  # type: ignore[attr-defined]

    def _topic_ids(self) -> Mapping[str, bytes]:
        answer = self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION)
        known = {topic.name: topic.topic_id for topic in answer.topics}  # type: ignore[attr-defined]
        gone = [topic for topic in TOPICS if topic not in known]
        assert not gone, f"protected topics are gone: {gone}"
        return {topic: known[topic] for topic in TOPICS}

    def _is_whole(self) -> bool:
        answer = self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION)
        return all(
            len(partition.isr_nodes) == len(partition.replica_nodes) and partition.leader_id >= 0
            for topic in answer.topics  # type: ignore[attr-defined]
            if topic.name in TOPICS
            for partition in topic.partitions
        )

    def _check_directories(self) -> None:
        """Check that each broker has a directory for each partition, since all brokers are replicas."""
        for node in self._cluster.brokers:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    log = _data(node.directory) / f"{topic}-{partition}"
                    assert log.is_dir(), f"{node.name} has no {log.name} any more"

    def _check_records(self, topic: str, partition: int) -> None:
        """Check the first records of each partition; the fuzzer may have appended others."""
        settings = {**self._settings, "group.id": "fuzz-reader", "isolation.level": "read_uncommitted"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            for number in range(RECORDS):
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, f"{topic}-{partition}: offset {number} cannot be read"
                assert message.error() is None, f"{topic}-{partition}: {message.error()}"
                found = (message.offset(), message.key(), message.value())
                assert found == (number, _key(number), _value(topic, partition, number)), (
                    f"{topic}-{partition}: {found}"
                )
        finally:
            consumer.close()

    def _check_group(self) -> None:
        admin = AdminClient(self._settings)
        asked = [ConsumerGroupTopicPartitions(GROUPS[0])]
        for answer in admin.list_consumer_group_offsets(asked).values():
            found = {(tp.topic, tp.partition): tp.offset for tp in answer.result(TIMEOUT_S).topic_partitions}
            expected = {(TOPICS[0], partition): COMMITTED for partition in range(PARTITIONS)}
            assert found == expected, f"the group's offsets are {found}"

    def _check_producing(self) -> None:
        errors: list[object] = []
        producer = Producer({**self._settings, "acks": "all"})
        for topic in TOPICS:
            producer.produce(topic, b"after", b"after", 0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0, "nothing can be produced any more"
        assert errors == [None] * len(TOPICS), errors


def _data(directory: Path) -> Path:
    return directory / "data"


def _key(number: int) -> bytes:
    return b"key-%d" % number


def _value(topic: str, partition: int, number: int) -> bytes:
    return f"{topic}/{partition}/{number}".encode()
