"""A Barnabas cluster on one machine: one controller and N brokers as child processes of this one.

`LocalCluster` owns the processes; `barnabas up` and the tests are thin shells around it. The directory looks like this
and is reused by the next run on it:

    DIR/cluster.json            {"bootstrap", "supervisor_pid", "processes": [...]}, a process being
                                {"role", "id", "pid", "port", "metrics_port"}
    DIR/control.sock            where `barnabas node` asks the supervisor for a kill, stop, start, pause or resume
    DIR/controller-100/         server.properties, data/, process.log
    DIR/broker-0/ ...           the same, one a broker

*Threads*: all of a LocalCluster belongs to the thread that calls it. *Orphans*: children get SIGTERM from the kernel
when this process dies, however it dies (prctl PR_SET_PDEATHSIG in `barnabas.common.process`), so nothing is left
running.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.deadline import Deadline
from barnabas.common.process import PARENT_PID_VARIABLE
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.messages.k03_metadata import MetadataRequest

CONTROLLER_ID = 100
HOST = "127.0.0.1"
METADATA_VERSION = 12
POLL_MS = 5
STOP_TIMEOUT_MS = 30_000
READY_TIMEOUT_MS = 30_000


class ClusterError(Exception):
    """Something that the person who runs the cluster can mend; the message is one line."""


@dataclass(slots=True)
class Node:
    """One process of the cluster."""

    role: str  # "controller" or "broker"
    node_id: int
    port: int
    metrics_port: int
    directory: Path
    host: str = HOST
    child: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def name(self) -> str:
        """`broker-0`, `controller-100`: how people and directories call it."""
        return f"{self.role}-{self.node_id}"

    @property
    def is_running(self) -> bool:
        """Whether the process exists and has not ended."""
        return self.child is not None and self.child.poll() is None

    @property
    def log_file(self) -> Path:
        """What the process printed."""
        return self.directory / "process.log"

    def log_tail(self, lines: int = 5) -> str:
        """The last lines that the process printed."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


@dataclass(slots=True)
class LocalCluster:
    """Starts, watches and stops the processes of one local cluster.

    `config` holds Kafka server properties that every process gets; they win over the defaults for one machine.
    """

    directory: Path
    broker_count: int = 3
    first_port: int = 9092  # 0: any free ports
    config: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    nodes: dict[int, Node] = field(default_factory=dict)

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def brokers(self) -> list[Node]:
        """The brokers in the order of their ids."""
        return [node for node in self.nodes.values() if node.role == "broker"]

    @property
    def controller(self) -> Node:
        """The one controller."""
        return self.nodes[CONTROLLER_ID]

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers, for a client's bootstrap.servers."""
        return ",".join(f"{node.host}:{node.port}" for node in self.brokers)

    @property
    def metrics(self) -> str:
        """`host:port,...` of every process's metrics page, the controller last."""
        nodes = [*self.brokers, self.controller]
        return ",".join(f"{node.host}:{node.metrics_port}" for node in nodes if node.metrics_port > 0)

    def start(self) -> None:
        """Start all processes and return when clients can use every broker. Raises ClusterError, leaving none
        running.
        """
        self._plan()
        try:
            for node in self.nodes.values():
                self.start_node(node)
            self.await_ready()
        except BaseException:
            self.stop(STOP_TIMEOUT_MS)
            raise

    def _plan(self) -> None:
        """Choose ports and write each process's server.properties."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._refuse_second_supervisor()
        ports = list(self._broker_ports())
        spare = iter(free_ports(2 + len(ports)))
        controller_port = next(spare)
        self.nodes = {CONTROLLER_ID: self._node("controller", CONTROLLER_ID, controller_port, next(spare))}
        for broker_id, port in enumerate(ports):
            self.nodes[broker_id] = self._node("broker", broker_id, port, next(spare))
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            (node.directory / "server.properties").write_text(self._properties(node))

    def _refuse_second_supervisor(self) -> None:
        running = read_cluster_file(self.directory)
        if running is not None and is_supervisor(running):
            raise ClusterError(f"{self.directory} is in use by a running cluster (pid {running['supervisor_pid']})")

    def _broker_ports(self) -> Iterable[int]:
        if self.first_port == 0:
            return free_ports(self.broker_count)
        ports = range(self.first_port, self.first_port + self.broker_count)
        for port in ports:
            if not is_free(port):
                raise ClusterError(f"port {port} is taken: choose another with --port")
        return ports

    def _node(self, role: str, node_id: int, port: int, metrics_port: int) -> Node:
        metrics_port = int(self.config.get("barnabas.metrics.port", metrics_port))
        directory = self.directory / f"{role}-{node_id}"
        return Node(role, node_id, port, metrics_port, directory, self._host(node_id))

    def _host(self, node_id: int) -> str:
        """The address that a node listens on; a subclass may give each node one of its own."""
        return HOST

    def _properties(self, node: Node) -> str:
        listener = "CONTROLLER" if node.role == "controller" else "PLAINTEXT"
        replicas = str(min(3, self.broker_count))
        properties = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "controller.quorum.bootstrap.servers": f"{self.controller.host}:{self.controller.port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{node.host}:{node.port}",
            "advertised.listeners": f"{listener}://{node.host}:{node.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(node.directory / "data"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.broker_count)),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, self.broker_count)),
            "group.initial.rebalance.delay.ms": "0",
            "barnabas.metrics.port": str(node.metrics_port),
            **self.config,
        }
        if node.role == "controller":
            del properties["advertised.listeners"]
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def start_node(self, node: Node) -> None:
        """Start the process of a node that is not running. Does not wait for it to be ready."""
        if node.is_running:
            raise ClusterError(f"{node.name} is running already")
        command = self._command(node)
        environment = {**os.environ, PARENT_PID_VARIABLE: str(os.getpid())}
        with node.log_file.open("ab") as log:
            node.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        node.paused = False
        self._write_cluster_file()

    def _command(self, node: Node) -> list[str]:
        """What runs a node; a subclass may wrap it in a command that ends by executing it (the pid must stay)."""
        return [sys.executable, "-P", "-m", f"{node.role}.main", str(node.directory / "server.properties")]

    def await_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> None:
        """Wait until each running broker lists all running brokers. Raises ClusterError when a process ends or time
        is up.
        """
        deadline = Deadline(self.clock, timeout_ms)
        expected = {node.node_id for node in self.brokers if node.is_running and not node.paused}
        waiting = [node for node in self.brokers if node.node_id in expected]
        while waiting:
            for node in self.nodes.values():
                if node.child is not None and not node.is_running:
                    raise ClusterError(f"{node.name} ended at start: {node.log_tail(1) or 'it printed nothing'}")
            if deadline.is_expired():
                raise ClusterError(f"{waiting[0].name} was not ready after {timeout_ms} ms; see {waiting[0].log_file}")
            waiting = [node for node in waiting if not expected <= known_brokers(node.port, node.host)]
            if waiting:
                select.select([], [], [], POLL_MS / 1000)

    def signal_node(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to a running process. Raises ClusterError if it is not running."""
        if not node.is_running or node.child is None:
            raise ClusterError(f"{node.name} is not running")
        node.child.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            node.paused = number == signal.SIGSTOP

    def stop_node(self, node: Node, number: signal.Signals = signal.SIGTERM, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """End a process (SIGTERM: controlled shutdown; SIGKILL: at once) and wait until it is gone."""
        if node.paused and number != signal.SIGKILL:
            self.signal_node(node, signal.SIGCONT)
        self.signal_node(node, number)
        self._await_end(node, Deadline(self.clock, timeout_ms))

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop all: the brokers first, since a controlled shutdown needs the controller; whoever does not end is
        killed.
        """
        for group in (self.brokers, [node for node in self.nodes.values() if node.role == "controller"]):
            running = [node for node in group if node.is_running]
            for node in running:
                if node.paused:
                    self.signal_node(node, signal.SIGCONT)
                self.signal_node(node, signal.SIGTERM)
            deadline = Deadline(self.clock, timeout_ms)
            for node in running:
                self._await_end(node, deadline)
        (self.directory / "cluster.json").unlink(missing_ok=True)

    def _await_end(self, node: Node, deadline: Deadline) -> None:
        assert node.child is not None
        try:
            node.child.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired:
            node.child.kill()
            node.child.wait()

    def _write_cluster_file(self) -> None:
        processes = [
            {
                "role": node.role,
                "id": node.node_id,
                "pid": node.child.pid,
                "port": node.port,
                "metrics_port": node.metrics_port,
            }
            for node in self.nodes.values()
            if node.child is not None
        ]
        content = {"bootstrap": self.bootstrap, "supervisor_pid": os.getpid(), "processes": processes}
        temporary = self.directory / "cluster.json.tmp"
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(self.directory / "cluster.json")


def read_cluster_file(directory: Path) -> dict[str, object] | None:
    """The content of `cluster.json`, or None where there is none (or half of one)."""
    try:
        content: dict[str, object] = json.loads((directory / "cluster.json").read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return content


def is_supervisor(cluster_file: Mapping[str, object]) -> bool:
    """Whether the process that wrote the file still runs (and is a Python process: pids are reused)."""
    try:
        return b"python" in Path(f"/proc/{cluster_file['supervisor_pid']}/cmdline").read_bytes()
    except (OSError, KeyError):
        return False


def known_brokers(port: int, host: str = HOST) -> set[int]:
    """The broker ids that the broker on this port tells clients of; empty while it does not answer."""
    try:
        with NodeConnection(host, port, timeout_ms=1000) as connection:
            response = connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), METADATA_VERSION)
    except (OSError, MalformedMessageError):
        return set()
    return {broker.node_id for broker in response.brokers}


def is_free(port: int) -> bool:
    """Whether a listener could be opened on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> Iterator[int]:
    """Distinct ports that were free a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        ports = [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
    return iter(ports)
