"""Real processes that are brokers and controllers: one alone, and three that lose the active controller."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.inside.pages import find_pages, read_pages
from barnabas.cluster import Node
from tests.barnabas.cli.conftest import run_command
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

WAIT_MS = 60_000
# With a session this short, a killed broker is fenced, and can register again, soon.
SHORT_SESSION = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[BarnabasCluster]:
    config = {**SHORT_SESSION, "default.replication.factor": "3", "min.insync.replicas": "2"}
    with BarnabasCluster(tmp_path, broker_count=3, first_port=0, config=config, is_combined=True) as cluster:
        yield cluster


def producer(cluster: BarnabasCluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})


def produce(sender: Producer, topic: str, numbers: range) -> None:
    """Produce numbers to all partitions in turn; returns when all are acknowledged."""
    failures: list[object] = []
    for number in numbers:
        sender.produce(
            topic, str(number), partition=number % 3, on_delivery=lambda error, _: error and failures.append(error)
        )
    assert sender.flush(WAIT_MS / 1000) == 0
    assert failures == []


def end_offset(reader: Consumer, partition: TopicPartition) -> int:
    """The high watermark. A new leader has none to tell until its followers have fetched; librdkafka does not retry."""

    def ask() -> tuple[int, int] | None:
        try:
            return reader.get_watermark_offsets(partition, timeout=60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
                raise
            return None

    return eventually("the leader knows its high watermark", ask, WAIT_MS)[1]


def records(cluster: BarnabasCluster, topic: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    partitions = [TopicPartition(topic, number, 0) for number in range(3)]
    ends = sum(end_offset(reader, each) for each in partitions)
    reader.assign(partitions)
    found = []
    for _ in range(ends):
        message = reader.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b"-1"))
    reader.close()
    return sorted(found)


def create(cluster: BarnabasCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 3)], request_timeout=60, operation_timeout=60)[topic].result(60)


def active(cluster: BarnabasCluster) -> Node | None:
    """The node whose controller leads, as the running ones see it."""
    from barnabas.common.pages.page_client import ask

    for node in cluster.brokers:
        if not node.is_running:
            continue
        target = "/live.json?section=quorum&role=controller"
        answer = ask(node.host, node.metrics_port, "GET", target, cluster.page_access, timeout_s=10, bytes_max=1 << 20)
        if json.loads(answer.body)["quorum"]["role"] == "leader":
            return node
    return None


def test_the_active_node_is_killed_and_nothing_acknowledged_is_lost(three: BarnabasCluster, tools: KafkaTools) -> None:
    create(three, "before")
    sender = producer(three)
    produce(sender, "before", range(300))
    killed = active(three)
    assert killed is not None
    three.stop_node(killed, signal.SIGKILL)
    produce(sender, "before", range(300, 600))
    chosen = eventually("another controller is active", lambda: active(three), WAIT_MS)
    assert chosen.node_id != killed.node_id
    create(three, "meanwhile")
    assert records(three, "before") == list(range(600))
    three.start_node(killed)
    three.await_ready(nodes=[killed])

    def ask(tool: str, *arguments: str) -> str:
        return tools.run(tool, "--bootstrap-server", three.bootstrap, *arguments).check().stdout

    lines = ask("kafka-metadata-quorum", "describe", "--replication").splitlines()[1:]
    roles = sorted((line.split()[0], line.split()[-1]) for line in lines if line.split())
    expected = sorted(
        (str(node.node_id), "Leader" if node.node_id == chosen.node_id else "Follower") for node in three.brokers
    )
    assert roles == expected, "the voters are the brokers"
    eventually(
        "the killed node has caught up",
        lambda: "Isr: " not in ask("kafka-topics", "--describe", "--under-replicated-partitions"),
        WAIT_MS,
    )
    produce(sender, "before", range(600, 700))
    three.stop()
    three.start()
    assert records(three, "before") == list(range(700))
    assert {"before", "meanwhile"} <= set(
        AdminClient({"bootstrap.servers": three.bootstrap}).list_topics(timeout=60).topics
    )


def test_one_process_is_a_cluster_that_can_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**SHORT_SESSION, "default.replication.factor": "1"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config, is_combined=True) as one:
        assert len(one.nodes) == 1
        create(one, "t")
        produce(producer(one), "t", range(30))
        assert "It is the only voter" in run_command(capsys, "quorum", "status", "--bootstrap", one.bootstrap).out
        answers = read_pages(find_pages(one.bootstrap), {"section": "node,quorum"})
        assert [page.name for page in answers.found] == ["broker 0", "controller 0"]
        assert [live["quorum"]["leader"] for live in answers.controllers()] == [0]
        one.stop_node(one.brokers[0], signal.SIGKILL)
        one.start_node(one.brokers[0])
        one.await_ready()
        assert records(one, "t") == list(range(30))
    with BarnabasCluster(tmp_path, broker_count=3, first_port=0, config=config, is_combined=True) as grown:
        assert records(grown, "t") == list(range(30))
        leader = eventually("an active controller", lambda: active(grown), WAIT_MS)
        assert leader in grown.brokers
