"""Brokers that come back: after topics were deleted, and with disks that were emptied meanwhile."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import Node
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

TIMEOUT_MS = 60_000
COUNT = 100


class Room:
    """A cluster, and what the tests ask of it."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self.cluster = cluster

    @property
    def admin(self) -> AdminClient:
        """A new client each time: librdkafka's sends to the controller that its last Metadata named, and waits on
        and on when that broker has been stopped since.
        """
        # Why kept: what a client was asked fails when it goes.
        self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        return self._admin

    def create(self, name: str, *replicas: list[int]) -> None:
        """A topic on these replicas, with `COUNT` records in its first partition."""
        topic = NewTopic(name, len(replicas), replica_assignment=[*replicas])
        self.admin.create_topics([topic])[name].result(30)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(COUNT):
            producer.produce(name, str(number), partition=0)
        assert producer.flush(30) == 0

    def partition(self, name: str) -> Any:
        """The first partition as the cluster sees it."""
        described = self.admin.describe_topics(TopicCollection([name]))[name].result(30)
        return described.partitions[0]

    def isr(self, name: str) -> set[int]:
        return {node.id for node in self.partition(name).isr}

    def leader(self, name: str) -> int | None:
        leader = self.partition(name).leader
        return None if leader is None or leader.id < 0 else int(leader.id)

    def start(self, node: Node) -> None:
        self.cluster.start_node(node)
        self.cluster.await_ready(nodes=[node])

    def read(self, name: str) -> int:
        """How many records a consumer gets."""
        config = {"group.id": name, "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, **config})
        consumer.assign([TopicPartition(name, 0, 0)])
        count = 0
        while (message := consumer.poll(30)) is not None and message.error() is None:
            count += 1
        consumer.close()
        return count


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Three brokers."""
    settings = {"file.delete.delay.ms": "100", "log.segment.delete.delay.ms": "100"}
    with BarnabasCluster(tmp_path_factory.mktemp("c"), broker_count=3, first_port=0, config=settings) as cluster:
        yield Room(cluster)


def logs_of(node: Node, topic: str) -> list[str]:
    return [path.name for path in (node.directory / "data").iterdir() if path.name.startswith(f"{topic}-")]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_deleted_while_a_broker_was_down_is_deleted_there_too(room: Room, is_created_again: bool) -> None:
    name = f"deleted-{is_created_again}"
    node = room.cluster.nodes[2]
    room.create(name, [0, 1, 2], [2, 0, 1])
    room.cluster.stop_node(node)
    room.admin.delete_topics([name])[name].result(30)
    if is_created_again:
        room.admin.create_topics([NewTopic(name, 1, replica_assignment=[[0, 2]])])[name].result(30)
    assert len(logs_of(node, name)) == 2
    room.start(node)
    if is_created_again:
        eventually("it has the new one only", lambda: logs_of(node, name) == [f"{name}-0"], TIMEOUT_MS)
        eventually("it is in sync", lambda: room.isr(name) == {0, 2}, TIMEOUT_MS)
        assert room.read(name) == 0
    else:
        eventually("its logs are gone", lambda: not logs_of(node, name), TIMEOUT_MS)


def emptied(room: Room, node: Node) -> None:
    """Stop a broker, and start it on an empty disk."""
    room.cluster.stop_node(node)
    shutil.rmtree(node.directory / "data")
    room.start(node)


def test_a_broker_with_an_emptied_disk_copies_everything_anew(room: Room) -> None:
    room.create("copied", [1, 0])
    emptied(room, room.cluster.nodes[1])
    eventually("it is in sync", lambda: room.isr("copied") == {0, 1}, TIMEOUT_MS)
    room.cluster.stop_node(room.cluster.nodes[0])
    try:
        eventually("it leads", lambda: room.leader("copied") == 1, TIMEOUT_MS)
        assert room.read("copied") == COUNT
    finally:
        room.start(room.cluster.nodes[0])


def test_the_last_replica_does_not_lead_from_an_emptied_disk_unless_told_to(room: Room) -> None:
    room.create("lost", [1])
    emptied(room, room.cluster.nodes[1])
    assert (room.leader("lost"), room.isr("lost")) == (None, {1})
    room.admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("lost", 0)]).result(30)
    eventually("it leads, empty", lambda: room.leader("lost") == 1, TIMEOUT_MS)
    assert room.read("lost") == 0


def test_the_right_disk_brings_the_data_back(room: Room) -> None:
    room.create("back", [2])
    node = room.cluster.nodes[2]
    data = node.directory / "data"
    room.cluster.stop_node(node)
    data.rename(node.directory / "kept")
    room.start(node)
    assert room.leader("back") is None
    room.cluster.stop_node(node)
    shutil.rmtree(data)
    (node.directory / "kept").rename(data)
    room.start(node)
    eventually("it leads", lambda: room.leader("back") == 2, TIMEOUT_MS)
    assert room.read("back") == COUNT


def test_admin_commands_do_not_wait_for_a_broker_that_was_just_killed(room: Room) -> None:
    node = room.cluster.nodes[0]
    room.cluster.stop_node(node, signal.SIGKILL)  # its session lasts on: the others still take it for alive
    try:
        for number in range(6):  # a random choice of "controller" would meet the dead one
            name = f"prompt-{number}"
            room.admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2]])])[name].result(8)
    finally:
        room.start(node)
