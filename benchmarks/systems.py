"""The measured systems behind one interface: one broker or three, all with the same server properties.

Barnabas runs as `barnabas up`, of this environment or of another one (another interpreter, another version). Apache
Kafka runs with the JVM settings of its own start script. Its single broker is also the controller, as in its
quickstart. With three brokers, the controller is a separate process, as in Barnabas. A single broker can be secured
(`security/access.py`). franz-go's kfake, a broker in memory for tests in Go, is there to compare with: one broker, and
no storage.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from barnabas.cluster import HOST, free_ports, read_cluster_file
from barnabas.common.processes.ports import is_free
from benchmarks.report.figures import OURS, THEIRS
from benchmarks.security import acls
from benchmarks.security.access import OPEN, USER, Access, access_to, apache_properties, scram_options, secure
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.apache_kafka import SERVER_JVM, ApacheKafka
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.processes import cpu_seconds, end_process, resident_bytes, tied_to_parent
from tests.support.waiting import eventually
from tests.support.wire import listed_brokers

USABLE_TIMEOUT_MS = 120_000
END_TIMEOUT_S = 60
PORT = "{port}"  # in the command of another make: where its port stands
FREE_PORTS_TRIED = 20  # at least one of them should be followed by free ports
SETTINGS = {
    "num.partitions": "6",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.segment.bytes": str(1 << 30),
    "log.segment.delete.delay.ms": "1000",
    "log.retention.hours": "168",
}
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # for nodes and for creating topics, whose listeners have no logins
}


class System(Protocol):
    """One or more brokers and their controller, on this machine. Stopping keeps the directory."""

    @property
    def name(self) -> str:
        """Name in reports."""

    @property
    def directory(self) -> Path:
        """Directory of all its files."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""

    @property
    def access(self) -> Access:
        """How clients connect to it; known from `prepare` on."""

    @property
    def data_directory(self) -> Path:
        """The first broker's log.dirs."""

    @property
    def pids(self) -> dict[str, int]:
        """The running processes: "broker 0", "controller 100", "supervisor" -> process id."""

    def prepare(self) -> None:
        """Prepare a start, without being part of it: choose ports, format storage."""

    def launch(self) -> None:
        """Start the processes without waiting for them."""

    def await_usable(self) -> None:
        """Wait until each broker lists all brokers to a client. A secured one gets its clients' ACLs then."""

    def stop(self) -> None:
        """Stop the processes, if they run, and wait for their end."""


@dataclass(slots=True)
class Barnabas:
    """A cluster of `barnabas up`."""

    directory: Path
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
    name: str = OURS
    executable: Path = field(default_factory=lambda: own_executable())
    is_secured: bool = False
    access: Access = OPEN  # replaced by `prepare`, if it is secured
    _ports: range = range(0)
    _supervisor: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    @property
    def data_directory(self) -> Path:
        """The first broker's log.dirs."""
        return self.directory / "broker-0" / "data"

    @property
    def pids(self) -> dict[str, int]:
        """The running processes."""
        content = read_cluster_file(self.directory)
        assert content is not None, f"{self.name} does not run"
        named = {f"{process['role']} {process['id']}": process["pid"] for process in content["processes"]}
        return {**named, "supervisor": content["supervisor_pid"]}

    def prepare(self) -> None:
        """Choose ports, and passwords for a secured system: it takes over those in its directory."""
        free = free_ports(FREE_PORTS_TRIED)
        ranges = (range(port, port + self.brokers) for port in free)
        self._ports = next(ports for ports in ranges if all(is_free(port) for port in ports))
        if self.is_secured:
            self.access = access_to(secure(self.directory))

    def launch(self) -> None:
        """Run `barnabas up`."""
        size = ("--brokers", str(self.brokers), "--port", str(self._ports[0]), "--data-dir", str(self.directory))
        settings = [word for key, value in self.settings.items() for word in ("--config", f"{key}={value}")]
        security = ("--security", "sasl_ssl") if self.is_secured else ()
        command = tied_to_parent([str(self.executable), "up", *size, *security, *settings])
        self._supervisor = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def await_usable(self) -> None:
        """Wait until each broker lists all brokers to a client; add the ACLs of clients."""
        if self.is_secured:
            await_secured(self, self._is_alive)
        else:
            await_listed(self.name, self._ports, self._is_alive)

    def beside(self, suffix: str, settings: Mapping[str, str]) -> Barnabas:
        """Return another one like it, with more settings, in a directory beside its own."""
        directory = self.directory.with_name(f"{self.directory.name}-{suffix}")
        return replace(self, directory=directory, settings={**self.settings, **settings}, _ports=range(0))

    def stop(self) -> None:
        """Stop the processes."""
        if self._supervisor is not None:
            end_process(self._supervisor, END_TIMEOUT_S)
            self._supervisor = None

    def _is_alive(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is None


@dataclass(slots=True)
class ApacheOne:
    """One node of Apache Kafka, both broker and controller."""

    node: ApacheKafka
    name: str = THEIRS
    is_secured: bool = False
    access: Access = OPEN  # replaced by `prepare`, if it is secured

    @property
    def directory(self) -> Path:
        """Directory of all its files."""
        return self.node.directory

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return self.node.bootstrap

    @property
    def data_directory(self) -> Path:
        """Its log.dirs."""
        return self.node.data_directory

    @property
    def pids(self) -> dict[str, int]:
        """The running process."""
        return {"broker 0": self.node.pid}

    def prepare(self) -> None:
        """Format the storage, with the users of a secured system."""
        if self.is_secured:
            self._secure()
        self.node.format()

    def launch(self) -> None:
        """Start the process."""
        self.node.launch()

    def await_usable(self) -> None:
        """Wait until the broker lists itself to a client; add the ACLs of clients."""
        if self.is_secured:
            await_secured(self, self._is_alive)
        else:
            await_listed(self.name, range(self.node.port, self.node.port + 1), self._is_alive)

    def stop(self) -> None:
        """Stop the process."""
        self.node.stop()

    def _secure(self) -> None:
        security = secure(self.directory)
        client, controller, internal = free_ports(3)
        self.node.ports = (client, controller)
        self.node.config = {
            **self.node.config,
            **apache_properties(security, self.directory, (client, controller, internal)),
        }
        self.node.format_options = scram_options(security)
        self.access = access_to(security)

    def _is_alive(self) -> bool:
        return self.node.child is None or self.node.child.poll() is None


@dataclass(slots=True)
class ApacheMany:
    """Several brokers of Apache Kafka and a controller."""

    cluster: ApacheCluster
    name: str = THEIRS
    access: Access = OPEN

    @property
    def directory(self) -> Path:
        """Directory of all its files."""
        return self.cluster.directory

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""
        return self.cluster.bootstrap

    @property
    def data_directory(self) -> Path:
        """The first broker's log.dirs."""
        return self.cluster.brokers[0].directory / "data"

    @property
    def pids(self) -> dict[str, int]:
        """The running processes."""
        nodes = self.cluster.nodes.values()
        return {f"{node.role} {node.node_id}": node.child.pid for node in nodes if node.child is not None}

    def prepare(self) -> None:
        """Choose ports and format every node's storage."""
        self.cluster.prepare()

    def launch(self) -> None:
        """Start the processes."""
        for node in self.cluster.nodes.values():
            self.cluster.start_node(node)

    def await_usable(self) -> None:
        """Wait until each broker lists all brokers to a client."""
        self.cluster.await_ready()

    def stop(self) -> None:
        """Stop the processes."""
        if self.cluster.nodes:
            self.cluster.stop()


@dataclass(slots=True)
class Peer:
    """One broker of another make (`load/peers.py`). It keeps its records in memory, and has no settings of ours."""

    directory: Path
    command: Sequence[str]
    name: str
    access: Access = OPEN
    _port: int = 0
    _child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{HOST}:{self._port}"

    @property
    def data_directory(self) -> Path:
        """A directory that it does not use."""
        return self.directory

    @property
    def pids(self) -> dict[str, int]:
        """The running process."""
        assert self._child is not None, f"{self.name} does not run"
        return {"broker 0": self._child.pid}

    def prepare(self) -> None:
        """Choose a port."""
        (self._port,) = free_ports(1)

    def launch(self) -> None:
        """Start the process."""
        command = tied_to_parent([word.replace(PORT, str(self._port)) for word in self.command])
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def await_usable(self) -> None:
        """Wait until the broker lists itself to a client."""
        await_listed(self.name, range(self._port, self._port + 1), self._is_alive)

    def stop(self) -> None:
        """Stop the process; its records are gone then."""
        if self._child is not None:
            end_process(self._child, END_TIMEOUT_S)
            self._child = None

    def _is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None


@dataclass(frozen=True, slots=True)
class Kind:
    """What kind of system a measurement needs."""

    brokers: int = 1
    is_secured: bool = False  # SASL_SSL and ACLs; for one broker


# Creates a system that does not run yet, from its directory, its kind and its settings.
Make = Callable[[Path, Kind, Mapping[str, str]], System]


def apache(runtime: KafkaRuntime) -> Make:
    """Return a factory for Apache Kafka."""

    def make(directory: Path, kind: Kind, settings: Mapping[str, str]) -> System:
        if kind.brokers == 1:
            node = ApacheKafka(runtime, directory, settings, SERVER_JVM)
            return ApacheOne(node, is_secured=kind.is_secured)
        assert not kind.is_secured, "only a single broker can be secured"
        return ApacheMany(ApacheCluster(runtime, directory, settings, kind.brokers, SERVER_JVM))

    return make


def barnabas(name: str = OURS, executable: Path | None = None) -> Callable[[Path, Kind, Mapping[str, str]], Barnabas]:
    """Return a factory for the Barnabas of this environment, or for another executable under another name."""

    def make(directory: Path, kind: Kind, settings: Mapping[str, str]) -> Barnabas:
        used = executable or own_executable()
        return Barnabas(directory, kind.brokers, settings, name, used, is_secured=kind.is_secured)

    return make


def peer(name: str, command: Sequence[str]) -> Make:
    """Return a factory for a broker of another make; its command has PORT where the port stands."""

    def make(directory: Path, kind: Kind, settings: Mapping[str, str]) -> Peer:
        assert kind == Kind(), f"{name} is measured with one broker that is not secured"
        return Peer(directory, command, name)

    return make


def own_executable() -> Path:
    """Return the path of this environment's `barnabas`."""
    return Path(sys.executable).with_name("barnabas")


def await_listed(name: str, ports: range, is_alive: Callable[[], bool]) -> None:
    """Wait until the broker on each port lists as many brokers as there are ports."""

    def is_usable(port: int) -> bool:
        assert is_alive(), f"{name} ended during its start"
        return listed_brokers(port) == len(ports)

    for port in ports:
        eventually(f"{name} is usable", lambda port=port: is_usable(port), USABLE_TIMEOUT_MS)  # type: ignore[misc]


def await_secured(system: System, is_alive: Callable[[], bool]) -> None:
    """Wait until the broker of a secured system lists itself to its administrator, and add the ACLs of clients."""

    def is_usable() -> bool:
        assert is_alive(), f"{system.name} ended during its start"
        return system.access.listed_brokers(system.bootstrap) == 1

    eventually(f"{system.name} is usable", is_usable, USABLE_TIMEOUT_MS)
    acls.add(system.access.admin(system.bootstrap), acls.needed(f"User:{USER}"))


def start(system: System) -> None:
    """Start a system and wait until clients can use it."""
    system.prepare()
    system.launch()
    system.await_usable()


@contextmanager
def running(system: System) -> Iterator[System]:
    """Run a system and keep its data."""
    try:
        start(system)
        yield system
    finally:
        system.stop()


def remove(system: System) -> None:
    """Remove all data of a stopped system."""
    shutil.rmtree(system.directory, ignore_errors=True)


def port_of(system: System) -> int:
    """Return the first broker's port."""
    return int(system.bootstrap.split(",")[0].rpartition(":")[2])


def broker_pid(system: System) -> int:
    """Return the first broker's process id."""
    return system.pids["broker 0"]


def used_cpu_seconds(system: System) -> float:
    """Return the CPU time of all running processes since their start."""
    return sum(map(cpu_seconds, system.pids.values()))


def memory_mb(system: System) -> dict[str, float]:
    """Return the resident memory of each process, in MB of 10**6 bytes."""
    return {process: resident_bytes(pid) / 1e6 for process, pid in system.pids.items()}
