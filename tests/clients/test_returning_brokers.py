"""Brokers that restart after topics were deleted, and brokers that restart with an empty disk."""

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


class Setup:
    """A cluster and the operations of the tests."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self.cluster = cluster

    @property
    def admin(self) -> AdminClient:
        """A new client each time: librdkafka's sends to the controller that its last Metadata named, and waits on
        and on when that broker has been stopped since.
        """
        # Kept, since a client's pending calls fail when it is destroyed.
        self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        return self._admin

    def create(self, name: str, *replicas: list[int]) -> None:
        """Create a topic on these replicas, with `COUNT` records in its first partition."""
        topic = NewTopic(name, len(replicas), replica_assignment=[*replicas])
        self.admin.create_topics([topic])[name].result(30)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(COUNT):
            producer.produce(name, str(number), partition=0)
        assert producer.flush(30) == 0

    def partition(self, name: str) -> Any:
        """Describe the first partition."""
        described = self.admin.describe_topics(TopicCollection([name]))[name].result(30)
        return described.partitions[0]

    def isr(self, name: str) -> set[int]:
        """Return the ISR of the first partition."""
        return {node.id for node in self.partition(name).isr}

    def leader(self, name: str) -> int | None:
        """Return the leader of the first partition, or None."""
        leader = self.partition(name).leader
        return None if leader is None or leader.id < 0 else int(leader.id)

    def start(self, node: Node) -> None:
        """Start a broker and wait until it is ready."""
        self.cluster.start_node(node)
        self.cluster.await_ready(nodes=[node])

    def read(self, name: str) -> int:
        """Count the records that a consumer gets."""
        config = {"group.id": name, "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, **config})
        consumer.assign([TopicPartition(name, 0, 0)])
        count = 0
        while (message := consumer.poll(30)) is not None and message.error() is None:
            count += 1
        consumer.close()
        return count


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """Three brokers."""
    settings = {"file.delete.delay.ms": "100", "log.segment.delete.delay.ms": "100"}
    with BarnabasCluster(tmp_path_factory.mktemp("c"), broker_count=3, first_port=0, config=settings) as cluster:
        yield Setup(cluster)


def logs_of(node: Node, topic: str) -> list[str]:
    """Return the names of a topic's log directories on a broker."""
    return [path.name for path in (node.directory / "data").iterdir() if path.name.startswith(f"{topic}-")]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_deleted_while_a_broker_was_down_is_deleted_there_too(setup: Setup, is_created_again: bool) -> None:
    name = f"deleted-{is_created_again}"
    node = setup.cluster.nodes[2]
    setup.create(name, [0, 1, 2], [2, 0, 1])
    setup.cluster.stop_node(node)
    setup.admin.delete_topics([name])[name].result(30)
    if is_created_again:
        setup.admin.create_topics([NewTopic(name, 1, replica_assignment=[[0, 2]])])[name].result(30)
    assert len(logs_of(node, name)) == 2
    setup.start(node)
    if is_created_again:
        eventually("it has the new one only", lambda: logs_of(node, name) == [f"{name}-0"], TIMEOUT_MS)
        eventually("it is in sync", lambda: setup.isr(name) == {0, 2}, TIMEOUT_MS)
        assert setup.read(name) == 0
    else:
        eventually("its logs are gone", lambda: not logs_of(node, name), TIMEOUT_MS)


def emptied(setup: Setup, node: Node) -> None:
    """Stop a broker, and start it on an empty disk."""
    setup.cluster.stop_node(node)
    shutil.rmtree(node.directory / "data")
    setup.start(node)


def test_a_broker_with_an_emptied_disk_copies_everything_again(setup: Setup) -> None:
    setup.create("copied", [1, 0])
    emptied(setup, setup.cluster.nodes[1])
    eventually("it is in sync", lambda: setup.isr("copied") == {0, 1}, TIMEOUT_MS)
    setup.cluster.stop_node(setup.cluster.nodes[0])
    try:
        eventually("it leads", lambda: setup.leader("copied") == 1, TIMEOUT_MS)
        assert setup.read("copied") == COUNT
    finally:
        setup.start(setup.cluster.nodes[0])


def test_a_last_replica_with_an_emptied_disk_leads_only_after_an_unclean_election(setup: Setup) -> None:
    setup.create("lost", [1])
    emptied(setup, setup.cluster.nodes[1])
    assert (setup.leader("lost"), setup.isr("lost")) == (None, set())
    setup.admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("lost", 0)]).result(30)
    eventually("it leads, empty", lambda: setup.leader("lost") == 1, TIMEOUT_MS)
    assert setup.read("lost") == 0


def test_the_right_disk_brings_the_data_back(setup: Setup) -> None:
    setup.create("back", [2])
    node = setup.cluster.nodes[2]
    data = node.directory / "data"
    setup.cluster.stop_node(node)
    data.rename(node.directory / "kept")
    setup.start(node)
    assert setup.leader("back") is None
    setup.cluster.stop_node(node)
    shutil.rmtree(data)
    (node.directory / "kept").rename(data)
    setup.start(node)
    eventually("it leads", lambda: setup.leader("back") == 2, TIMEOUT_MS)
    assert setup.read("back") == COUNT


def test_admin_commands_do_not_wait_for_a_broker_that_was_just_killed(setup: Setup) -> None:
    node = setup.cluster.nodes[0]
    setup.cluster.stop_node(node, signal.SIGKILL)  # its session has not expired yet: the others consider it alive
    try:
        for number in range(6):  # a random "controller" in Metadata would be the dead broker at some time
            name = f"prompt-{number}"
            setup.admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2]])])[name].result(8)
    finally:
        setup.start(node)
