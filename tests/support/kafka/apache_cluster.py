"""A cluster of Apache Kafka 4.3.1 like Barnabas's: three brokers and a controller or more, each in a JVM.

It has the interface of `LocalCluster` that a test with faults needs: `nodes`, `brokers`, `start_node`, `stop_node`,
`signal_node`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from barnabas.cluster import CONTROLLER_ID, HOST, Node, free_ports
from tests.support.kafka.apache_kafka import CLUSTER_ID
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import MAIN_CLASSES, SMALL_JVM
from tests.support.processes import tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually
from tests.support.wire import listed_brokers

BROKER_JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
STOP_TIMEOUT_S = 330  # it retries for five minutes if no broker can take over its leaderships


@dataclass(slots=True)
class ApacheCluster:
    """Starts and stops the nodes; `with` does both. The directory is created and kept; `config` is for every node."""

    runtime: KafkaRuntime
    directory: Path
    config: Mapping[str, str] = field(default_factory=dict)
    broker_count: int = 3
    jvm_options: Sequence[str] = BROKER_JVM
    controller_count: int = 1
    nodes: dict[int, Node] = field(default_factory=dict)  # fixed by start

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def brokers(self) -> list[Node]:
        """The brokers in the order of their ids."""
        return [node for node in self.nodes.values() if node.role == "broker"]

    @property
    def controllers(self) -> list[Node]:
        """The controllers in the order of their ids."""
        return [node for node in self.nodes.values() if node.role == "controller"]

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers."""
        return ",".join(f"{node.host}:{node.port}" for node in self.brokers)

    def start(self) -> None:
        """Format every node's storage, start them all and return when every broker lists all brokers."""
        self.prepare()
        for node in self.nodes.values():
            self.start_node(node)
        self.await_ready()

    def prepare(self) -> None:
        """Choose ports and format every node's storage."""
        ports = free_ports(self.broker_count + self.controller_count)
        controller_ids = range(CONTROLLER_ID, CONTROLLER_ID + self.controller_count)
        for node_id in (*controller_ids, *range(self.broker_count)):
            role = "controller" if node_id in controller_ids else "broker"
            self.nodes[node_id] = Node(role, node_id, next(ports), -1, self.directory / f"{role}-{node_id}")
        for node in self.nodes.values():
            self._format(node)

    def stop(self) -> None:
        """End every process, the controllers last."""
        for node in [*self.brokers, *self.controllers]:
            if node.is_running:
                self.stop_node(node, signal.SIGKILL)

    def start_node(self, node: Node) -> None:
        """Start a node that is not running. Does not wait for it to be usable."""
        command = tied_to_parent(self.runtime.command("kafka.Kafka", *self.jvm_options))
        with node.log_file.open("ab") as log:
            node.child = subprocess.Popen(
                [*command, str(_properties_file(node))], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        node.paused = False

    def stop_node(self, node: Node, number: signal.Signals = signal.SIGTERM) -> None:
        """End a process (SIGTERM: controlled shutdown) and wait until it is gone."""
        if node.paused and number != signal.SIGKILL:
            self.signal_node(node, signal.SIGCONT)
        self.signal_node(node, number)
        assert node.child is not None
        node.child.wait(STOP_TIMEOUT_S)

    def signal_node(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to a running process."""
        assert node.child is not None
        node.child.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            node.paused = number == signal.SIGSTOP

    def await_ready(self) -> None:
        """Wait until every broker lists all brokers."""
        for node in self.brokers:
            eventually(f"{node.name} lists all", lambda n=node: self._is_ready(n), START_TIMEOUT_MS)  # type: ignore[misc]

    def _is_ready(self, node: Node) -> bool:
        assert node.is_running, f"{node.name} ended: {node.log_tail(20)}"
        return listed_brokers(node.port) == self.broker_count

    def _format(self, node: Node) -> None:
        node.directory.mkdir(parents=True, exist_ok=True)
        _properties_file(node).write_text("".join(f"{k}={v}\n" for k, v in self._properties(node).items()))
        command = self.runtime.command(MAIN_CLASSES["kafka-storage"], *SMALL_JVM)
        command += ["format", "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(_properties_file(node))]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    def _properties(self, node: Node) -> dict[str, str]:
        listener = "CONTROLLER" if node.role == "controller" else "PLAINTEXT"
        replicas = str(min(3, self.broker_count))
        in_sync = str(min(2, self.broker_count))
        return {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(f"{each.node_id}@{HOST}:{each.port}" for each in self.controllers),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{node.host}:{node.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": os.fspath(node.directory / "data"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }


def _properties_file(node: Node) -> Path:
    return node.directory / "server.properties"
