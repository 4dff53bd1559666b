"""The cluster of a test: Barnabas as real processes or, to check the test itself, Apache Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from barnabas.cluster import LocalCluster, Node
from tests.support.kafka.apache_kafka import ApacheKafka

LOG_TAIL_LINES = 60


class Target(Protocol):
    """A cluster as the client tests use it."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""

    def broker_data_directory(self) -> Path:
        """The log.dirs of broker 0."""

    def logs(self) -> dict[str, str]:
        """The last lines of each process's output, by its name."""


class ListenerAddress(NamedTuple):
    """A listener of a node, and where it listens."""

    listener: str  # its name: PLAINTEXT, INTERNAL, CONTROLLER
    host: str
    port: int


def addresses(cluster: LocalCluster, node: Node) -> list[ListenerAddress]:
    """The listeners of a node, from its server properties."""
    found = []
    for text in cluster.properties(node)["listeners"].split(","):
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        found.append(ListenerAddress(listener, host.strip("[]") or node.host, int(port)))
    return found


class BarnabasCluster(LocalCluster):
    """A controller and brokers on free ports, in a test's directory."""

    def broker_data_directory(self) -> Path:
        """The log.dirs of broker 0."""
        return self.nodes[0].directory / "data"

    def logs(self) -> dict[str, str]:
        """The last lines of each process's output, by its name."""
        return {node.name: node.log_tail(LOG_TAIL_LINES) for node in self.nodes.values()}


class ApacheKafkaTarget(ApacheKafka):
    """Apache Kafka instead of Barnabas."""

    def broker_data_directory(self) -> Path:
        """Its log.dirs."""
        return self.data_directory

    def logs(self) -> dict[str, str]:
        """The last lines of its output."""
        return {"apache-kafka": "\n".join(self.log_file.read_text().splitlines()[-LOG_TAIL_LINES:])}
