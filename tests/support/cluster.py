"""The cluster that a test talks to: Barnabas as real processes or, to check the test itself, Apache Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from barnabas.cluster import LocalCluster
from tests.support.apache_kafka import ApacheKafka

LOG_TAIL_LINES = 60


class Target(Protocol):
    """What the client tests need to know of a cluster."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""

    def broker_data_directory(self) -> Path:
        """The log.dirs of broker 0."""

    def logs(self) -> dict[str, str]:
        """The end of what each process printed, by its name."""


class BarnabasCluster(LocalCluster):
    """A controller and brokers on free ports, in a directory of the test's."""

    def broker_data_directory(self) -> Path:
        """The log.dirs of broker 0."""
        return self.nodes[0].directory / "data"

    def logs(self) -> dict[str, str]:
        """The end of what each process printed, by its name."""
        return {node.name: node.log_tail(LOG_TAIL_LINES) for node in self.nodes.values()}


class ApacheKafkaTarget(ApacheKafka):
    """Apache Kafka in Barnabas's place."""

    def broker_data_directory(self) -> Path:
        """Its log.dirs."""
        return self.data_directory

    def logs(self) -> dict[str, str]:
        """The end of what the process printed."""
        return {"apache-kafka": "\n".join(self.log_file.read_text().splitlines()[-LOG_TAIL_LINES:])}
