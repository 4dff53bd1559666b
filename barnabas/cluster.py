"""A Barnabas cluster on one machine: one controller and N brokers as child processes of this one.

`LocalCluster` owns the processes; `barnabas up` and the tests are thin shells around it. The directory looks like this
and is reused by the next run on it:

    DIR/cluster.json            {"bootstrap", "supervisor_pid", "processes": [...]}, a process being
                                {"role", "id", "pid", "port", "metrics_port"}; there only while the cluster runs
    DIR/supervisor.lock         locked (flock) by the one process that runs a cluster here
    DIR/control.sock            where `barnabas node` asks the supervisor for a kill, stop, start, pause or resume
    DIR/controller-100/         server.properties, data/, process.log
    DIR/broker-0/ ...           the same, one a broker

*Threads*: all of a LocalCluster belongs to the thread that calls it; only `kill` may also be called by a signal
handler.

*Orphans*: nothing is left running, however this process dies: the kernel then kills the children, paused ones too
(prctl PR_SET_PDEATHSIG in `barnabas.common.process`). Each child is a session of its own: a Ctrl-C on the terminal is
for this process alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.common import interpreter, linux
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.cluster_file import (
    ClusterFile,
    ProcessEntry,
    await_leftover,
    is_supervisor,
    read_cluster_file,
    write_cluster_file,
)
from barnabas.common.deadline import Deadline
from barnabas.common.ports import HOST, free_ports, refusal, reserve_port
from barnabas.common.process import PARENT_PID_VARIABLE

linux.require()

__all__ = ["HOST", "ClusterFile", "free_ports", "is_supervisor", "read_cluster_file"]  # what goes with a cluster

CONTROLLER_ID = 100
METADATA_VERSION = 12
POLL_MS_MIN, POLL_MS_MAX = 8, 100
POLL_SHARE = 20  # a pause is at most this part of the time waited so far
STOP_TIMEOUT_MS = 30_000
READY_TIMEOUT_MS = 30_000
PROBE_TIMEOUT_MS = 5_000  # for one answer: in slow motion it takes seconds
FAILED_START_STOP_MS = 3_000
STANDSTILL_TIMEOUT_MS = 5_000

# What makes the processes one cluster is not for `config` to change.
RESERVED_KEYS = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "controller.listener.names",
    }
)
BROKER_ONLY_KEYS = frozenset(
    {"listeners", "advertised.listeners", "inter.broker.listener.name", "security.inter.broker.protocol"}
)
# Who sets one of these decides on his own where nodes talk to each other.
LISTENER_KEYS = BROKER_ONLY_KEYS | {"listener.security.protocol.map"}
INTERNAL = "INTERNAL"  # the listener for nodes, beside the one for clients, PLAINTEXT
DIRECTORY_KEYS = frozenset({"log.dirs", "log.dir", "metadata.log.dir"})
METRICS_PORT_KEY = "barnabas.metrics.port"
PEERS_KEY = "barnabas.live.peers"


class ClusterError(Exception):
    """Something that the person who runs the cluster can mend; the message is one line."""


class ProcessDiedError(ClusterError):
    """A process that was started ended, or never became ready, for a reason that its log knows."""


class CancelledError(ClusterError):
    """Waiting ended because `is_cancelled` said so."""


@dataclass(slots=True)
class Node:
    """One process of the cluster."""

    role: str  # "controller" or "broker"
    node_id: int
    port: int
    metrics_port: int
    directory: Path
    host: str = HOST
    internal_port: int = 0  # where other nodes reach a broker; 0: where clients do
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

    def terminate(self) -> None:
        """Ask the process to end, if it has not."""
        if self.child is not None:
            self.child.terminate()

    def last_words(self) -> str:
        """Why the process ended: the one line of its own if it says so, else its last line and where the log is."""
        last = self.log_tail(1)
        complaint = last.removeprefix(f"{self.role}: ")
        if last != complaint:
            return complaint
        return f"{last or 'it printed nothing'}; its log is {self.log_file}"

    def log_tail(self, lines: int = 5) -> str:
        """The last lines that the process printed."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def never() -> bool:
    """The answer of who cancels nothing."""
    return False


@dataclass(slots=True)
class LocalCluster:
    """Starts, watches and stops the processes of one local cluster.

    `config` holds Kafka server properties that every process gets; they win over the defaults for one machine. Where a
    value can serve one process only, each gets its own: the ports in `listeners` and `advertised.listeners` count up
    from the first broker's, that of `barnabas.metrics.port` too (the controller's is the last), and a log directory
    gets a subdirectory for each process.
    """

    directory: Path
    broker_count: int = 3
    first_port: int = 9092  # 0: any free ports
    config: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    nodes: dict[int, Node] = field(default_factory=dict)
    is_cancelled: Callable[[], bool] = never  # asked while waiting for processes to be ready
    control_url: str = ""  # where the supervisor answers HTTP; it sets this before the start
    first_id: int = 0  # of the brokers
    _lock: int | None = field(default=None, init=False)  # descriptor of supervisor.lock, while this cluster holds it
    _reserved: list[socket.socket] = field(default_factory=list, init=False)  # keep the ports that were drawn

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _broker_ids(self) -> range:
        return range(self.first_id, self.first_id + self.broker_count)

    def left_out(self) -> list[str]:
        """The brokers whose data is in the directory, and which are not part of this cluster: `broker-1`, in order."""
        found = [path.parent.name for path in self.directory.glob("broker-*/server.properties")]
        ids = sorted(int(number) for name in found if (number := name.removeprefix("broker-")).isdecimal())
        return [f"broker-{broker_id}" for broker_id in ids if broker_id not in self._broker_ids]

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
        if self._lock is None:
            self.plan()
        try:
            for node in self.nodes.values():
                self.start_node(node)
            self.await_ready()
        except BaseException:
            self.stop(FAILED_START_STOP_MS)
            raise

    def plan(self) -> None:
        """Take the directory and choose the ports; `start` does it unless it is done."""
        reserved = sorted(RESERVED_KEYS & self.config.keys())
        if reserved:
            raise ClusterError(f"{reserved[0]} is what makes the processes one cluster: it cannot be set here")
        if CONTROLLER_ID in self._broker_ids:
            raise ClusterError(f"{CONTROLLER_ID} is the controller's id: no broker can have it")
        self._take_directory()
        try:
            self._await_leftovers()
            self._choose_ports()
        except BaseException:
            self._release_directory()
            raise

    def _take_directory(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ClusterError(f"cannot use {self.directory}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            running = read_cluster_file(self.directory)
            pid = f" (pid {running['supervisor_pid']})" if running is not None else ""
            raise ClusterError(f"{self.directory} is in use by a running cluster{pid}") from error
        self._lock = lock

    def _release_directory(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        while self._reserved:
            self._reserved.pop().close()

    def _await_leftovers(self) -> None:
        """The processes of a supervisor that was killed a moment ago may not be quite gone, and hold the data."""
        left = read_cluster_file(self.directory)
        for process in left["processes"] if left is not None else ():
            await_leftover(process["pid"], self.directory)

    def _choose_ports(self) -> None:
        listeners = self.config.get("listeners")
        if listeners is not None:
            brokers = [self._listener(listeners, index) for index in range(self.broker_count)]
        else:
            hosts = map(self._host, self._broker_ids)
            brokers = list(zip(hosts, self._broker_ports(), strict=True))
        taken = {port for _, port in brokers}
        metrics = self._metrics_ports([self._draw_port(avoid=taken) for _ in range(self.broker_count + 1)])
        controller = (self._host(CONTROLLER_ID), self._draw_port(avoid=taken))
        self.nodes = {CONTROLLER_ID: self._node("controller", CONTROLLER_ID, controller, metrics[-1])}
        for broker_id, address, metrics_port in zip(self._broker_ids, brokers, metrics, strict=False):
            self.nodes[broker_id] = self._node("broker", broker_id, address, metrics_port)
            if not LISTENER_KEYS & self.config.keys():
                self.nodes[broker_id].internal_port = self._draw_port(avoid=taken)

    def _broker_ports(self) -> Iterable[int]:
        if self.first_port == 0:
            return [self._draw_port() for _ in range(self.broker_count)]
        ports = range(self.first_port, self.first_port + self.broker_count)
        for index, port in enumerate(ports):
            error = refusal(port, self._host(self.first_id + index))
            if error is not None:
                raise ClusterError(f"{_port_refusal(port, error)}: choose another with --port")
        return ports

    def _draw_port(self, avoid: Collection[int] = ()) -> int:
        """A free port that no other cluster draws while this one has it."""
        port, reservation = reserve_port(avoid)
        self._reserved.append(reservation)
        return port

    def _listener(self, listeners: str, index: int) -> tuple[str, int]:
        """Where clients reach a broker that has `listeners` of the person's choice: the first of them."""
        host, _, port = ports_up(listeners, index).split(",")[0].partition("://")[2].rpartition(":")
        if not port.isdecimal() or int(port) == 0:
            raise ClusterError(f"listeners={listeners}: NAME://HOST:PORT with a fixed port is expected here")
        return (HOST if host in ("", "0.0.0.0", "[::]") else host.strip("[]")), int(port)

    def _metrics_ports(self, spare: list[int]) -> list[int]:
        """The ports of the brokers' metrics pages and of the controller's."""
        text = self.config.get(METRICS_PORT_KEY, "0")
        try:
            first = int(text)
        except ValueError as error:
            raise ClusterError(f"Invalid value {text} for configuration {METRICS_PORT_KEY}: not a number") from error
        if first == 0:
            return spare
        return [first + index if first > 0 else first for index in range(len(spare))]

    def _node(self, role: str, node_id: int, address: tuple[str, int], metrics_port: int) -> Node:
        host, port = address
        return Node(role, node_id, port, metrics_port, self.directory / f"{role}-{node_id}", host)

    def _host(self, node_id: int) -> str:
        """The address that a node listens on; a subclass may give each node one of its own."""
        return HOST

    def properties(self, node: Node) -> dict[str, str]:
        """The server properties of a node, once there is a plan."""
        replicas = str(min(3, self.broker_count))
        in_sync = str(min(2, self.broker_count))
        listener = "CONTROLLER" if node.role == "controller" else "PLAINTEXT"
        properties = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "controller.quorum.bootstrap.servers": f"{self.controller.host}:{self.controller.port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{node.host}:{node.port}",
            "log.dirs": str(node.directory / "data"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
        }
        if node.internal_port:
            properties["listeners"] += f",{INTERNAL}://{node.host}:{node.internal_port}"
            properties["inter.broker.listener.name"] = INTERNAL
            properties["listener.security.protocol.map"] = ",".join(
                f"{name}:PLAINTEXT" for name in ("CONTROLLER", "PLAINTEXT", INTERNAL)
            )
            properties[f"listener.name.{INTERNAL.lower()}.num.network.threads"] = "1"
        for key, value in self.config.items():
            if node.role == "broker" or key not in BROKER_ONLY_KEYS:
                properties[key] = self._own_value(node, key, value)
        properties[METRICS_PORT_KEY] = str(node.metrics_port)
        properties.setdefault(PEERS_KEY, self._page_addresses())
        return properties

    def _page_addresses(self) -> str:
        """Where the pages of all processes are, for the switch on the live page."""
        nodes = [node for node in self.nodes.values() if node.metrics_port > 0]
        return ",".join(f"{node.name}={node.host}:{node.metrics_port}" for node in nodes)

    def _own_value(self, node: Node, key: str, value: str) -> str:
        """What a setting of the whole cluster means for one of its processes."""
        if key in ("listeners", "advertised.listeners"):
            return ports_up(value, node.node_id - self.first_id)
        if key in DIRECTORY_KEYS:
            base = self.directory
            return ",".join(str(base / part.strip() / node.name) for part in value.split(","))
        if key == "listener.security.protocol.map" and "CONTROLLER:" not in value:
            return f"CONTROLLER:PLAINTEXT,{value}"
        return value

    def start_node(self, node: Node) -> None:
        """Start the process of a node that is not running. Does not wait for it to be ready."""
        if node.is_running:
            raise ClusterError(f"{node.name} is running already")
        environment = {**os.environ, PARENT_PID_VARIABLE: str(os.getpid())}
        try:
            node.directory.mkdir(parents=True, exist_ok=True)
            properties = "".join(f"{key}={value}\n" for key, value in self.properties(node).items())
            (node.directory / "server.properties").write_text(properties)
            with node.log_file.open("ab") as log:
                node.child = subprocess.Popen(
                    self._command(node),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(f"cannot use {error.filename or node.directory}: {error.strerror}") from error
        node.paused = False
        self._write_cluster_file()

    def _command(self, node: Node) -> list[str]:
        """What runs a node; a subclass may wrap it in a command that ends by executing it (the pid must stay)."""
        return [*interpreter.command(f"barnabas.{node.role}.main"), str(node.directory / "server.properties")]

    def await_ready(self, timeout_ms: int = READY_TIMEOUT_MS, nodes: Sequence[Node] | None = None) -> None:
        """Wait until each of these nodes (default: all that run) can be used: a broker when it lists all running
        brokers. Raises ProcessDiedError when one of them ends or time is up.
        """
        start_ms = self.clock.monotonic_ms()
        deadline = Deadline(self.clock, timeout_ms)
        expected = {node.node_id for node in self.brokers if node.is_running and not node.paused}
        waiting = [node for node in (self.nodes.values() if nodes is None else nodes) if node.child is not None]
        while waiting:
            for node in waiting:
                if not node.is_running:
                    raise ProcessDiedError(f"{node.name} ended at start: {node.last_words()}")
            if self.is_cancelled():
                raise CancelledError("cancelled while starting")
            if deadline.is_expired():
                raise ProcessDiedError(
                    f"{waiting[0].name} was not ready after {timeout_ms} ms; its log is {waiting[0].log_file}"
                )
            waiting = [node for node in waiting if not is_ready(node, expected)]
            if waiting:
                waited_ms = self.clock.monotonic_ms() - start_ms
                pause_ms = min(max(waited_ms / POLL_SHARE, POLL_MS_MIN), POLL_MS_MAX)
                select.select([], [], [], pause_ms / 1000)

    def signal_node(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to a running process; after SIGSTOP return when it stands still. Raises ClusterError if it is
        not running.
        """
        if not node.is_running or node.child is None:
            raise ClusterError(f"{node.name} is not running")
        node.child.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            node.paused = number == signal.SIGSTOP
        if number == signal.SIGSTOP:
            self._await_standstill(node.child.pid)

    def stop_node(self, node: Node, number: signal.Signals = signal.SIGTERM, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """End a process (SIGTERM: controlled shutdown; SIGKILL: at once) and wait until it is gone."""
        if node.paused and number != signal.SIGKILL:
            self.signal_node(node, signal.SIGCONT)
        self.signal_node(node, number)
        self._await_end(node, Deadline(self.clock, timeout_ms))

    def kill(self) -> None:
        """Kill every process at once, from a signal handler too; whoever waits for their ends goes on."""
        for node in self.nodes.values():
            if node.child is not None:
                node.child.kill()

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop all: the brokers first, since a controlled shutdown needs the controller; whoever does not end in time
        is killed.
        """
        for group in (self.brokers, [node for node in self.nodes.values() if node.role == "controller"]):
            running = [node for node in group if node.is_running]
            for node in running:
                if node.paused:
                    self.signal_node(node, signal.SIGCONT)
                node.terminate()
            deadline = Deadline(self.clock, timeout_ms)
            for node in running:
                self._await_end(node, deadline)
        if self._lock is not None:
            (self.directory / "cluster.json").unlink(missing_ok=True)
            self._release_directory()

    def _await_standstill(self, pid: int) -> None:
        """Wait until the last thread of a child has stopped, but not for one that is in the hands of the disk for long.

        Why: one thread takes the signal and tells the others. Until it gets a core they answer as if nothing were.
        """
        deadline = Deadline(self.clock, STANDSTILL_TIMEOUT_MS)
        asked = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, pid, asked) is None and not deadline.is_expired():
            select.select([], [], [], POLL_MS_MIN / 1000)

    def _await_end(self, node: Node, deadline: Deadline) -> None:
        assert node.child is not None
        try:
            node.child.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired:
            node.child.kill()
            node.child.wait()

    def _write_cluster_file(self) -> None:
        processes: list[ProcessEntry] = [
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
        content: ClusterFile = {"bootstrap": self.bootstrap, "supervisor_pid": os.getpid(), "processes": processes}
        if self.control_url:
            content["control_url"] = self.control_url
        write_cluster_file(self.directory, content)


def _port_refusal(port: int, error: OSError) -> str:
    """What keeps a listener from a port, in words."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken"
    if error.errno == errno.EACCES:
        return f"port {port} may not be opened by this user ({error.strerror}; ports below 1024 are usually for root)"
    return f"port {port} cannot be opened ({error.strerror})"


def is_ready(node: Node, expected: set[int]) -> bool:
    """Whether clients can use a broker, which then knows the `expected` ones; whether a controller answers."""
    if node.role == "broker":
        return expected <= known_brokers(node.port, node.host)
    from barnabas.client.connection import NodeConnection  # Why here: as in known_brokers
    from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

    try:
        with NodeConnection(node.host, node.port, timeout_ms=PROBE_TIMEOUT_MS) as connection:
            connection.send(ApiVersionsRequest(), 0)
    except OSError:
        return False
    return True


def known_brokers(port: int, host: str = HOST) -> set[int]:
    """The broker ids that the broker on this port tells clients of; empty while it does not answer."""
    # Why here: the processes are started by now, so these imports cost no time.
    from barnabas.client.connection import NodeConnection
    from barnabas.protocol.messages.k03_metadata import MetadataRequest

    try:
        with NodeConnection(host, port, timeout_ms=PROBE_TIMEOUT_MS) as connection:
            response = connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), METADATA_VERSION)
    except OSError:
        return set()
    return {broker.node_id for broker in response.brokers}


def ports_up(listeners: str, count: int) -> str:
    """The listeners with their ports that much higher; what is no port, or 0, stays."""
    shifted = []
    for listener in listeners.split(","):
        address, separator, port = listener.strip().rpartition(":")
        if separator and port.isdecimal() and int(port):
            shifted.append(f"{address}:{int(port) + count}")
        else:
            shifted.append(listener.strip())
    return ",".join(shifted)
