"""The cluster under stress: three brokers with short timeouts, each on its own network if possible.

It can also be a cluster of Apache Kafka on the loopback interface, to test the clients and the checker.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from functools import cached_property
from pathlib import Path
from typing import Protocol

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.cluster import CONTROLLER_ID, Node
from barnabas.protocol.messages import k55_describe_quorum as quorum_wire
from tests.stress.faults.network import Network
from tests.support import security_faults
from tests.support.access import PLAINTEXT, Access, security_of
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.kafka_jars import KafkaRuntime

BROKERS = 3
LIBRDKAFKA, JAVA, READER, WATCHER = "librdkafka", "java", "reader", "watcher"
USERS = (LIBRDKAFKA, JAVA, READER, WATCHER, *security_faults.USERS)
TOPIC = "history"
PARTITIONS = 6
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": str(1024 * 1024)}
CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
}
#: With several controllers: no-op records between the decisions, since the active one is idle for longer than this.
IDLE_CONFIG = {"metadata.max.idle.interval.ms": "50"}
#: Also an authorizer that decides nothing, so that there are ACLs.
QUORUM_CONFIG = {
    **IDLE_CONFIG,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CONTROLLER_TIMEOUT_MS = 1_000
DESCRIBE_QUORUM_VERSION = 2
NO_METRICS = {"barnabas.metrics.port": "-1"}
BROKEN = Path(__file__).with_name("faults") / "broken.py"


class StressTarget(Protocol):
    """A cluster as a run uses it."""

    network: Network | None

    @property
    def access(self) -> Access:
        """How clients connect to it."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def nodes(self) -> dict[int, Node]: ...
    @property
    def brokers(self) -> list[Node]: ...
    def start_node(self, node: Node) -> None: ...
    def stop_node(self, node: Node, number: signal.Signals) -> None: ...
    def signal_node(self, node: Node, number: signal.Signals) -> None: ...
    def partition_directory(self, broker_id: int, partition: int) -> Path:
        """The directory of a broker's replica of a partition of the topic."""


class StressCluster(BarnabasCluster):
    """`network` None: all nodes on the loopback interface, where no link can be cut. `broken`: see `broken.py`."""

    def __init__(
        self,
        directory: Path,
        network: Network | None,
        broken: str | None,
        security: str = PLAINTEXT,
        controllers: int = 1,
        *,
        is_combined: bool = False,
    ) -> None:
        own = security_of(directory, security, USERS)
        config = {**CONFIG, **NO_METRICS, **security_faults.config_of(own)}
        if controllers > 1 or is_combined:
            config |= QUORUM_CONFIG if own is None else IDLE_CONFIG
        super().__init__(
            directory,
            broker_count=BROKERS,
            first_port=0,
            config=config,
            security=own,
            controller_count=controllers,
            is_combined=is_combined,
        )
        self.network = network  # fixed before start
        self._broken = broken  # fixed before start

    @cached_property
    def access(self) -> Access:
        """How clients connect to it; once it is planned."""
        return Access(self.directory, self.bootstrap, self.security)

    def host_of(self, node_id: int) -> str:
        return super().host_of(node_id) if self.network is None else self.network.host(node_id)

    def command(self, node: Node) -> list[str]:
        command = super().command(node)
        if self._broken is not None and node.role == "broker":
            command = [sys.executable, "-P", str(BROKEN), self._broken, *command[-1:]]
        return command if self.network is None else self.network.command(node.node_id, command)

    def partition_directory(self, broker_id: int, partition: int) -> Path:
        """Where a broker keeps its replica of a partition of the topic."""
        return _partition_directory(self.nodes[broker_id], partition)

    # Several controllers

    def active_controller(self) -> Node | None:
        """The controller that says that it leads the quorum, in the latest epoch; None if none does."""
        answers = [(self._described(node), node) for node in self.controllers]
        leaders = [(answer.leader_epoch, node.node_id) for answer, node in answers if answer is not None]
        return self.nodes[max(leaders)[1]] if leaders else None

    def controller_log_ends(self) -> dict[int, int]:
        """Where the logs of the voters end that fetch from the active controller, by id; empty without one."""
        node = self.active_controller()
        partition = None if node is None else self._described(node)
        if partition is None:
            return {}
        return {voter.replica_id: voter.log_end_offset for voter in partition.current_voters}

    def format_controllers(self) -> None:
        """Format the directories of controllers that have none."""
        self._prepare_quorum()

    def _described(self, node: Node) -> quorum_wire.ResponsePartitionData | None:
        """The quorum according to a controller that leads it."""
        if not node.is_running or node.paused:
            return None
        topic = quorum_wire.RequestTopicData(
            topic_name="__cluster_metadata", partitions=[quorum_wire.RequestPartitionData(partition_index=0)]
        )
        connect = self._connect() or NodeConnection
        with (
            contextlib.suppress(NodeConnectionError),
            connect(node.host, node.controller_port or node.port, timeout_ms=CONTROLLER_TIMEOUT_MS) as connection,
        ):
            answer = connection.send(quorum_wire.DescribeQuorumRequest(topics=[topic]), DESCRIBE_QUORUM_VERSION)
            partition = answer.topics[0].partitions[0]
            assert isinstance(partition, quorum_wire.ResponsePartitionData)
            return None if partition.error_code else partition
        return None


class ApacheStressCluster(ApacheCluster):
    """Apache Kafka instead of Barnabas."""

    def __init__(self, runtime: KafkaRuntime, directory: Path) -> None:
        super().__init__(runtime, directory, CONFIG, BROKERS)
        self.network = None

    @property
    def access(self) -> Access:
        """How clients connect to it."""
        return Access(self.directory, self.bootstrap)

    def partition_directory(self, broker_id: int, partition: int) -> Path:
        """Where a broker keeps its replica of a partition of the topic."""
        return _partition_directory(self.nodes[broker_id], partition)


def _partition_directory(node: Node, partition: int) -> Path:
    return node.directory / "data" / f"{TOPIC}-{partition}"


def node_ids(controllers: int = 1) -> list[int]:
    """The ids of all nodes; 0 controllers: the brokers are the controllers, too."""
    return [*range(BROKERS), *range(CONTROLLER_ID, CONTROLLER_ID + controllers)]
