"""One broker of either system that can be stopped and started on its data, behind one face."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from barnabas.cluster import LocalCluster
from tests.support.apache_kafka import SERVER_JVM, ApacheKafka
from tests.support.kafka_jars import KafkaRuntime


class Node:
    """A broker that can be stopped and started on its data."""

    name = ""

    def running(self) -> AbstractContextManager[tuple[str, int, Path]]:
        """Run it; gives (bootstrap servers, process id, data directory)."""
        raise NotImplementedError


class Barnabas(Node):
    """Our broker, as `barnabas up --brokers 1` runs it."""

    name = "Barnabas"

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._directory = directory / "barnabas"
        self._settings = settings

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, int, Path]]:
        cluster = LocalCluster(self._directory, broker_count=1, first_port=0, config=self._settings)
        with cluster:
            child = cluster.brokers[0].child
            assert child is not None
            yield cluster.bootstrap, child.pid, cluster.brokers[0].directory / "data"


class Apache(Node):
    """Apache Kafka with the JVM settings of its start script."""

    name = "Apache Kafka"

    def __init__(self, directory: Path, runtime: KafkaRuntime, settings: Mapping[str, str]) -> None:
        self._node = ApacheKafka(runtime, directory / "apache", settings, SERVER_JVM)

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, int, Path]]:
        with self._node as node:
            yield node.bootstrap, node.pid, node.data_directory
