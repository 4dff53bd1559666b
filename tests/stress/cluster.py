"""The cluster under stress: three brokers with short timeouts, each on its own network if possible.

It can also be a cluster of Apache Kafka on the loopback interface, to test the clients and the checker.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Protocol

from barnabas.cluster import CONTROLLER_ID, Node
from tests.stress.faults.network import Network
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.kafka_jars import KafkaRuntime

BROKERS = 3
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
NO_METRICS = {"barnabas.metrics.port": "-1"}
BROKEN = Path(__file__).with_name("faults") / "broken.py"


class StressTarget(Protocol):
    """A cluster as a run uses it."""

    network: Network | None

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

    def __init__(self, directory: Path, network: Network | None, broken: str | None) -> None:
        super().__init__(directory, broker_count=BROKERS, first_port=0, config={**CONFIG, **NO_METRICS})
        self.network = network  # fixed before start
        self._broken = broken  # fixed before start

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


class ApacheStressCluster(ApacheCluster):
    """Apache Kafka instead of Barnabas."""

    def __init__(self, runtime: KafkaRuntime, directory: Path) -> None:
        super().__init__(runtime, directory, CONFIG, BROKERS)
        self.network = None

    def partition_directory(self, broker_id: int, partition: int) -> Path:
        """Where a broker keeps its replica of a partition of the topic."""
        return _partition_directory(self.nodes[broker_id], partition)


def _partition_directory(node: Node, partition: int) -> Path:
    return node.directory / "data" / f"{TOPIC}-{partition}"


def node_ids() -> list[int]:
    """The ids of all nodes."""
    return [*range(BROKERS), CONTROLLER_ID]
