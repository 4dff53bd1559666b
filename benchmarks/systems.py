"""The two systems that are measured, behind one face. Both get the same server properties."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from barnabas.cluster import HOST, LocalCluster, free_ports, read_cluster_file
from barnabas.common.clock import Clock
from barnabas.common.ports import is_free
from tests.support.apache_kafka import SERVER_JVM, ApacheKafka
from tests.support.kafka_jars import KafkaRuntime
from tests.support.processes import cpu_seconds, tied_to_parent
from tests.support.waiting import eventually
from tests.support.wire import is_serving, listed_brokers

END_TIMEOUT_S = 30
FREE_PORTS_ASKED = 20  # one of them has free ports behind it
SETTINGS = {
    "num.partitions": "6",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.segment.bytes": str(1 << 30),
    "log.segment.delete.delay.ms": "1000",
    "log.retention.hours": "168",
}


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a system: how long until a client could use it, and the processes that then ran."""

    seconds: float
    pids: dict[str, int]  # "broker 0", "controller 100", "supervisor" -> process id


class System(Protocol):
    """A broker with its controller on this machine."""

    name: str

    @property
    def port(self) -> int:
        """Where clients connect."""

    def start(self) -> None:
        """Start it and return when clients can use it."""

    def stop(self) -> None:
        """Stop it and remove its data."""

    def broker_cpu_seconds(self) -> float:
        """The CPU time that the broker's process has used."""

    def timed_start(self, clock: Clock, brokers: int) -> Start | None:
        """Start a second one as a user would, beside the one that runs; `end_timed_start` ends it. None: not measured
        with so many brokers.
        """

    def end_timed_start(self) -> None:
        """End what `timed_start` started."""


@dataclass
class Barnabas:
    """A controller and one broker."""

    directory: Path
    name: str = field(default="Barnabas", init=False)
    _cluster: LocalCluster = field(init=False)
    _supervisor: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._cluster = LocalCluster(self.directory / "barnabas", broker_count=1, first_port=0, config=SETTINGS)

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._cluster.brokers[0].port

    def start(self) -> None:
        """Start it and return when clients can use it."""
        self._cluster.start()

    def stop(self) -> None:
        """Stop it and remove its data."""
        self._cluster.stop()
        shutil.rmtree(self._cluster.directory)

    def broker_cpu_seconds(self) -> float:
        """The CPU time that the broker's process has used."""
        child = self._cluster.brokers[0].child
        assert child is not None
        return cpu_seconds(child.pid)

    def timed_start(self, clock: Clock, brokers: int) -> Start:
        """Run `barnabas up` until each broker lists all of them to a client."""
        data = self.directory / "barnabas-up"
        shutil.rmtree(data, ignore_errors=True)
        first = _free_range(brokers)
        up = [str(Path(sys.executable).with_name("barnabas")), "up", "--brokers", str(brokers), "--port", str(first)]
        start_ns = clock.monotonic_ns()
        self._supervisor = subprocess.Popen([*tied_to_parent(up), "--data-dir", str(data)], stdout=subprocess.DEVNULL)
        for port in range(first, first + brokers):
            eventually("barnabas up is usable", lambda port=port: self._is_usable(port, brokers))  # type: ignore[misc]
        seconds = (clock.monotonic_ns() - start_ns) / 1e9
        content = read_cluster_file(data)
        assert content is not None
        processes = content["processes"]
        assert isinstance(processes, list)
        pids = {f"{process['role']} {process['id']}": int(process["pid"]) for process in processes}
        return Start(seconds, {**pids, "supervisor": self._supervisor.pid})

    def _is_usable(self, port: int, brokers: int) -> bool:
        assert self._supervisor is not None
        assert self._supervisor.poll() is None, "barnabas up ended"
        return listed_brokers(port) == brokers

    def end_timed_start(self) -> None:
        """End what `timed_start` started."""
        if self._supervisor is not None:
            self._supervisor.send_signal(signal.SIGINT)
            self._supervisor.wait(END_TIMEOUT_S)
            self._supervisor = None


@dataclass
class Apache:
    """One node of Apache Kafka: broker and controller in one JVM, with the JVM settings of its own start script."""

    runtime: KafkaRuntime
    directory: Path
    name: str = field(default="Apache Kafka", init=False)
    _node: ApacheKafka = field(init=False)
    _second: ApacheKafka | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._node = ApacheKafka(self.runtime, self.directory / "apache", SETTINGS, SERVER_JVM)

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._node.port

    def start(self) -> None:
        """Start it and return when clients can use it."""
        self._node.start()

    def stop(self) -> None:
        """Stop it and remove its data."""
        self._node.stop()
        shutil.rmtree(self._node.directory)

    def broker_cpu_seconds(self) -> float:
        """The CPU time that the broker's process has used."""
        return cpu_seconds(self._node.pid)

    def timed_start(self, clock: Clock, brokers: int) -> Start | None:
        """Start a freshly formatted node until a client could use it (formatting is not counted)."""
        if brokers > 1:
            return None
        directory = self.directory / "apache-start"
        shutil.rmtree(directory, ignore_errors=True)
        node = self._second = ApacheKafka(self.runtime, directory, SETTINGS, SERVER_JVM)
        node.format()
        start_ns = clock.monotonic_ns()
        node.launch()
        eventually("Apache Kafka is usable", lambda: is_serving(node.port), 60_000)
        return Start((clock.monotonic_ns() - start_ns) / 1e9, {"broker 0": node.pid})

    def end_timed_start(self) -> None:
        """End what `timed_start` started."""
        if self._second is not None:
            self._second.stop()
            self._second = None


def _free_range(count: int) -> int:
    """The first of so many free ports in a row."""
    return next(
        port for port in free_ports(FREE_PORTS_ASKED) if all(is_free(port + number, HOST) for number in range(count))
    )


def bootstrap(system: System) -> str:
    """`host:port`, for a client's bootstrap.servers."""
    return f"{HOST}:{system.port}"
