"""Eligible leader replicas (KIP-966) under clean stops and kill -9, as `kafka-topics --describe` shows them.

With `--target apache` the same happens to three brokers of Apache Kafka 4.3.1.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.cluster import Node
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

Cluster = BarnabasCluster | ApacheCluster
State = tuple[str, str, str, str]
TIMEOUT_MS = 60_000


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers."""
    config = {
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "200",
        "auto.leader.rebalance.enable": "false",
    }
    if request.config.getoption("target") == "apache":
        with ApacheCluster(kafka_runtime(), tmp_path, config) as apache:
            yield apache
    else:
        with BarnabasCluster(tmp_path, broker_count=3, first_port=0, config=config) as barnabas:
            yield barnabas


class Story:
    """Topic t with replicas 0 and 1; broker 2 always runs."""

    def __init__(self, cluster: Cluster, tools: KafkaTools) -> None:
        self._cluster = cluster
        self._tools = tools
        self._bootstrap = f"{cluster.brokers[2].host}:{cluster.brokers[2].port}"

    def run(self, tool: str, *arguments: str) -> str:
        """Run a tool and return its output."""
        return self._tools.run(tool, "--bootstrap-server", self._bootstrap, *arguments).check().stdout

    def state(self) -> State:
        """(leader, ISR, ELR, last known ELR)."""
        described = self.run("kafka-topics", "--describe", "--topic", "t")
        fields = dict(re.findall(r"(\w+): ?([^\t\n]*)", described.splitlines()[-1]))
        isr, elr, last = (",".join(sorted(fields[key].split(","))) for key in ("Isr", "Elr", "LastKnownElr"))
        return fields["Leader"], isr, elr, last

    def becomes(self, *expected: str) -> None:
        """Wait for a state."""
        eventually(f"{expected}, is {self.state()}", lambda: self.state() == expected, TIMEOUT_MS)

    def broker(self, broker_id: int) -> Node:
        """Return a broker."""
        return self._cluster.brokers[broker_id]

    def stop(self, broker_id: int, number: signal.Signals) -> None:
        """Stop a broker cleanly (SIGTERM) or not (SIGKILL)."""
        self._cluster.stop_node(self.broker(broker_id), number)

    def start(self, broker_id: int) -> None:
        """Start a broker again."""
        self._cluster.start_node(self.broker(broker_id))

    def produce(self, count: int, acks: str) -> None:
        """Produce records, acknowledged by all or by the leader."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": acks})
        errors = []
        for number in range(count):
            producer.produce("t", str(number), on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors == [None] * count

    def readable(self) -> int:
        """Return the high watermark."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "none"})
        try:
            return consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=20)[1]
        finally:
            consumer.close()


def test_eligible_replicas_lead_after_clean_stops_and_the_last_leader_after_kills(
    cluster: Cluster, tools: KafkaTools
) -> None:
    story = Story(cluster, tools)
    story.run(
        "kafka-topics", "--create", "--topic", "t", "--replica-assignment", "0:1", "--config", "min.insync.replicas=2"
    )
    story.becomes("0", "0,1", "", "")
    story.produce(5, "all")

    story.stop(1, signal.SIGKILL)
    story.becomes("0", "0", "1", "")
    story.produce(3, "1")
    assert story.readable() == 5, "nothing is committed below min.insync.replicas"
    story.stop(0, signal.SIGTERM)
    story.becomes("none", "", "0,1", "0")
    story.start(1)
    story.becomes("none", "", "0", "0")  # it may have lost records
    story.start(0)
    story.becomes("0", "0,1", "", "")  # its stop was clean
    eventually("all is readable", lambda: story.readable() == 8, TIMEOUT_MS)

    story.stop(1, signal.SIGTERM)
    story.becomes("0", "0", "1", "")
    story.stop(0, signal.SIGKILL)
    story.becomes("none", "", "0,1", "0")
    story.start(1)
    story.becomes("1", "1", "0", "")  # an election from the ELR
    story.start(0)
    story.becomes("1", "0,1", "", "")

    story.stop(0, signal.SIGKILL)
    story.becomes("1", "1", "0", "")
    story.stop(1, signal.SIGKILL)
    story.becomes("none", "", "0,1", "1")
    story.start(0)
    story.becomes("none", "", "1", "1")
    story.start(1)
    story.becomes("1", "0,1", "", "")  # the last leader, though it is not eligible
    assert story.readable() == 8


def test_the_only_replica_leads_again_after_a_clean_stop_and_after_a_kill(cluster: Cluster, tools: KafkaTools) -> None:
    """One replica, min.insync.replicas=1, as on one broker."""
    story = Story(cluster, tools)
    story.run("kafka-topics", "--create", "--topic", "t", "--replica-assignment", "0")
    story.produce(3, "all")
    for number in (signal.SIGTERM, signal.SIGKILL):
        story.stop(0, number)
        story.becomes("none", "", "0", "0")
        story.start(0)
        story.becomes("0", "0", "", "")
    assert story.readable() == 3
