"""The cluster under stress: three brokers that suspect each other quickly, each on a network of its own if possible."""

from __future__ import annotations

from pathlib import Path

from barnabas.cluster import CONTROLLER_ID, Node
from tests.stress.network import Network
from tests.support.cluster import BarnabasCluster

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
    "barnabas.metrics.port": "-1",
}


class StressCluster(BarnabasCluster):
    """`network` None: all nodes on the loopback interface, where no link can be cut."""

    def __init__(self, directory: Path, network: Network | None) -> None:
        super().__init__(directory, broker_count=BROKERS, first_port=0, config=CONFIG)
        self.network = network  # fixed before start

    def _host(self, node_id: int) -> str:
        return super()._host(node_id) if self.network is None else self.network.host(node_id)

    def _command(self, node: Node) -> list[str]:
        command = super()._command(node)
        return command if self.network is None else self.network.command(node.node_id, command)

    def partition_directory(self, broker_id: int, partition: int) -> Path:
        """Where a broker keeps its replica of a partition of the topic."""
        return self.nodes[broker_id].directory / "data" / f"{TOPIC}-{partition}"


def node_ids() -> list[int]:
    """Every node of the cluster."""
    return [*range(BROKERS), CONTROLLER_ID]
