"""The measured clusters: three controllers that elect, and three brokers, with the same server properties."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.cluster import LocalCluster, Node
from barnabas.protocol.messages import k55_describe_quorum as quorum_wire
from benchmarks.report.figures import OURS, THEIRS
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.apache_kafka import SERVER_JVM
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.processes import resident_bytes

CONTROLLERS: Final = 3
DESCRIBE_TIMEOUT_MS: Final = 2_000
DESCRIBE_VERSION: Final = 1
CAUGHT_UP_RECORDS: Final = 10  # Apache Kafka's leader appends a record twice a second
#: Kafka's defaults, written out: both have the same.
SETTINGS: Final = {
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.request.timeout.ms": "2000",
    "controller.quorum.retry.backoff.ms": "20",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.segment.delete.delay.ms": "1000",
}


class Cluster(Protocol):
    """Controllers and brokers of either system, with the same methods."""

    @property
    def brokers(self) -> list[Node]:
        """The brokers' processes."""

    @property
    def controllers(self) -> list[Node]:
        """The controllers' processes."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""

    def start(self) -> None:
        """Start all nodes and wait until clients can use them."""

    def stop(self) -> None:
        """Stop all nodes."""

    def start_node(self, node: Node) -> None:
        """Start one node."""

    def stop_node(self, node: Node, number: signal.Signals) -> None:
        """End one node and wait until it is gone."""


def choose(systems: str, runtime: KafkaRuntime, directory: Path) -> Iterator[tuple[str, Cluster]]:
    """Yield the clusters that `systems` ("both", "barnabas", "apache") selects, with names. They are not started."""
    if systems in ("both", "apache"):
        apache = ApacheCluster(runtime, directory / "apache", SETTINGS, 3, SERVER_JVM, CONTROLLERS)
        yield THEIRS, apache
    if systems in ("both", "barnabas"):
        yield OURS, LocalCluster(directory / "barnabas", first_port=0, config=SETTINGS, controller_count=CONTROLLERS)


def connection(node: Node, timeout_ms: int) -> NodeConnection:
    """Return a connection to a node; it connects with its first request."""
    return NodeConnection(node.host, node.port, timeout_ms=timeout_ms)


def active_controller(cluster: Cluster) -> Node | None:
    """Return the controller that says that it leads, in the latest epoch; None if none does."""
    described = [(_described(node), node) for node in cluster.controllers]
    leaders = {quorum.leader_epoch: node for quorum, node in described if quorum is not None}
    return leaders[max(leaders)] if leaders else None


def have_caught_up(cluster: Cluster) -> bool:
    """Return whether all controllers run, and fetch from an active one."""
    active = active_controller(cluster)
    quorum = None if active is None else _described(active)
    if quorum is None or len(quorum.current_voters) < CONTROLLERS:
        return False
    ends = [voter.log_end_offset for voter in quorum.current_voters]
    return all(node.is_running for node in cluster.controllers) and max(ends) - min(ends) <= CAUGHT_UP_RECORDS


def memory_mb(nodes: list[Node]) -> float:
    """Return the resident memory of some nodes together, in MB of 10**6 bytes."""
    return sum(resident_bytes(node.child.pid) for node in nodes if node.child is not None) / 1e6


def _described(node: Node) -> quorum_wire.ResponsePartitionData | None:
    """Return the quorum as a controller that leads it describes it; None from any other node."""
    topic = quorum_wire.RequestTopicData(
        topic_name="__cluster_metadata", partitions=[quorum_wire.RequestPartitionData(partition_index=0)]
    )
    if not node.is_running:
        return None
    with contextlib.suppress(NodeConnectionError), connection(node, DESCRIBE_TIMEOUT_MS) as asked:
        answer = asked.send(quorum_wire.DescribeQuorumRequest(topics=[topic]), DESCRIBE_VERSION)
        if answer.error_code == 0 and answer.topics and answer.topics[0].partitions[0].error_code == 0:
            partition = answer.topics[0].partitions[0]
            assert isinstance(partition, quorum_wire.ResponsePartitionData)
            return partition
    return None
