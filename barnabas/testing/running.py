"""`cluster()`: a cluster of real processes for as long as a block, or a test run, lasts.

It is `barnabas up --ephemeral` as a child process, which ends when this process does, however that happens: the child
sees the end of the pipe that it has as standard input (barnabas/cli/ephemeral.py). Why a child: brokers that a pytest
process started itself would have to be its children to die with it, and on Linux they do so with the *thread* that
started them.

*Threads*: a Cluster may be used by any thread; `close` is called once, by its owner.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from barnabas.common import interpreter
from barnabas.common.cluster_file import read_cluster_file

if TYPE_CHECKING:
    from barnabas.faults import Faults
    from barnabas.testing.reading import Assignments, Reader
    from barnabas.testing.records import Matcher, Record

CLOSE_TIMEOUT_S = 30
LOG_LINES = 40
TIMEOUT_S = 10.0
TOPIC_NAME_MAX = 200
_numbers = itertools.count(1)


class StartError(Exception):
    """The cluster did not become ready; the message is what its processes said."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What makes one cluster differ from another. `port` 0 takes free ports."""

    brokers: int = 1
    config: tuple[tuple[str, str], ...] = ()
    port: int = 0

    @classmethod
    def of(cls, brokers: int = 1, config: Mapping[str, object] | None = None, port: int = 0) -> Settings:
        """From what a person writes: any keys of Kafka's server properties, with values of any type."""
        return cls(brokers, tuple(sorted((key, _property(value)) for key, value in (config or {}).items())), port)


def _property(value: object) -> str:
    """A value as server.properties spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class _Log:
    """The log of one process, and how far it has been shown."""

    path: Path
    shown_bytes: int = field(default=0)

    def news(self) -> str:
        """The last lines of what is not shown yet."""
        try:
            with self.path.open("rb") as log:
                log.seek(self.shown_bytes)
                return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES:])
        except OSError:
            return ""

    def forget(self) -> None:
        """All that is there now counts as shown."""
        with contextlib.suppress(OSError):
            self.shown_bytes = self.path.stat().st_size


class Cluster:
    """A running cluster: a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1.

    All times are seconds. What does not come true in time is an AssertionError that says what there was instead.
    """

    def __init__(self, settings: Settings = Settings()) -> None:
        """Start it and return when clients can use every broker. Raises StartError."""
        self.settings = settings  # fixed before start
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close(); what the supervisor prints on stderr
        try:
            self._supervisor = self._start()
            self.environment = self._await_ready()  # fixed before start
        except BaseException:
            self.close()
            raise
        self.bootstrap = self.environment["KAFKA_BOOTSTRAP_SERVERS"]  # fixed before start
        self.metrics_urls = tuple(filter(None, self.environment["BARNABAS_METRICS_URLS"].split(",")))
        self.directory = Path(self.environment["BARNABAS_DATA_DIR"])  # fixed before start
        self._logs = {
            path.parent.name: _Log(path) for path in sorted(self.directory.glob("*/process.log"))
        }  # fixed before start

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self.environment.get('KAFKA_BOOTSTRAP_SERVERS', 'not running')}>"

    # Life

    def _start(self) -> subprocess.Popen[str]:
        command = [*interpreter.own_command("barnabas.cli"), "up", "--ephemeral", "--print-env"]
        command += ["--brokers", str(self.settings.brokers), "--port", str(self.settings.port)]
        for key, value in self.settings.config:
            command += ["--config", f"{key}={value}"]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # the lifeline
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,  # a Ctrl-C is for this process, which then closes the cluster
        )

    def _await_ready(self) -> dict[str, str]:
        environment: dict[str, str] = {}
        assert self._supervisor.stdout is not None
        for line in self._supervisor.stdout:
            name, _, value = line.rstrip("\n").partition("=")
            if name == "BARNABAS_READY":
                return environment
            environment[name] = value
        self._supervisor.wait()
        raise StartError(self.complaints() or f"the cluster ended with exit code {self._supervisor.returncode}")

    def close(self) -> None:
        """End all processes and remove their directory. Closing again does nothing."""
        supervisor: subprocess.Popen[str] | None = self.__dict__.get("_supervisor")
        if supervisor is not None and supervisor.stdin is not None and supervisor.stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                supervisor.stdin.close()
            try:
                supervisor.wait(CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()
                shutil.rmtree(self.directory, ignore_errors=True)
            supervisor.stdout.close()
        self._complaints.close()

    # Nodes

    def kill(self, node_id: int) -> None:
        """SIGKILL a broker or the controller (100)."""
        self._act("kill", node_id)

    def stop(self, node_id: int) -> None:
        """Have a node shut down in order, and wait until it is gone."""
        self._act("stop", node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped, on the same data and port, and wait until clients can use it."""
        self._act("start", node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP a node: it keeps its connections and answers nothing."""
        self._act("pause", node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._act("resume", node_id)

    def _act(self, action: str, node_id: int) -> None:
        """Have the supervisor act; raises ClusterError with its reason."""
        from barnabas.cli.supervisor import ask

        ask(self.directory, action, node_id)

    @property
    def pids(self) -> dict[int, int]:
        """The process of each node id."""
        content = read_cluster_file(self.directory)
        return {} if content is None else {process["id"]: process["pid"] for process in content["processes"]}

    # Logs

    def logs(self) -> dict[str, str]:
        """The last lines that each process printed since `forget_logs`, by its name; those that printed some."""
        found = {name: log.news() for name, log in self._logs.items()}
        return {name: text for name, text in found.items() if text}

    def forget_logs(self) -> None:
        """Have `logs` tell only what comes from now on."""
        for log in self._logs.values():
            log.forget()

    def complaints(self) -> str:
        """What the supervisor said: which process died, or why none could start."""
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace").strip()

    # Topics, records, groups

    @cached_property
    def faults(self) -> Faults:
        """Makes things go wrong on purpose: `with kafka.faults.add(Fault(api="Produce", error="..."))`. Its `recorder`
        tells which requests came. See docs/faults.md.
        """
        from barnabas.faults import Faults

        return Faults(self.directory)

    @cached_property
    def _reader(self) -> Reader:
        from barnabas.testing.reading import Reader

        return Reader(self.bootstrap)

    def create_topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        fresh: bool = True,
    ) -> str:
        """Create a topic and return its name; it can be used at once.

        With `fresh` a number is put behind the name, so that there is no other of that name. As many replicas as there
        are brokers, at most three, unless said otherwise. Raises confluent_kafka.KafkaException.
        """
        allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:TOPIC_NAME_MAX] or "topic"
        name = f"{allowed}-{next(_numbers)}" if fresh else name
        replicas = min(3, self.settings.brokers) if replication_factor is None else replication_factor
        entries = {key: _property(value) for key, value in (config or {}).items()}
        self._reader.create_topic(name, partitions, replicas, entries)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises confluent_kafka.KafkaException."""
        self._reader.delete_topic(name)

    def set_topic_config(self, topic: str, **entries: object) -> None:
        """Change settings of a topic: `retention_ms=1000` is `retention.ms`. Raises confluent_kafka.KafkaException."""
        self._reader.set_config(
            ("topic", topic), {key.replace("_", "."): _property(value) for key, value in entries.items()}
        )

    def records(
        self, topic: str, *, count: int = 0, timeout: float = TIMEOUT_S, isolation: str = "read_committed"
    ) -> list[Record]:
        """Everything that lies in a topic now, by partition and offset; first waits until there are `count` records.

        What open and aborted transactions wrote is there with `isolation="read_uncommitted"` only.
        """
        return self._reader.records(topic, count=count, timeout_s=timeout, committed_only=isolation == "read_committed")

    def assert_produced(
        self,
        topic: str,
        *expected: Matcher,
        exactly: bool = False,
        timeout: float = TIMEOUT_S,
        isolation: str = "read_committed",
    ) -> list[Record]:
        """Wait until the topic has a record for each of what is expected, and return all its records.

        Expected is a value (text, bytes, None for a tombstone, or a mapping or list that is compared as JSON), an
        `Expected(value=, key=, headers=, partition=)`, or a function of a Record. Each must find a record of its own;
        with `exactly` there may be no other.
        """
        return self._reader.assert_produced(
            topic, expected, exactly=exactly, timeout_s=timeout, committed_only=isolation == "read_committed"
        )

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition; empty if there is no such group."""
        return self._reader.committed(group)

    def wait_stable(self, group: str, *, members: int | None = None, timeout: float = 30.0) -> Assignments:
        """Wait until a group is stable and has `members` (at least one); return each member's partitions by its id."""
        return self._reader.wait_stable(group, members=members, timeout_s=timeout)


@contextlib.contextmanager
def cluster(brokers: int = 1, *, config: Mapping[str, object] | None = None, port: int = 0) -> Iterator[Cluster]:
    """A cluster for as long as the block runs. Raises StartError.

    `config` has any of Kafka's server properties; `port` is broker 0's, the others' count up (0: free ones).
    """
    running = Cluster(Settings.of(brokers, config, port))
    try:
        yield running
    finally:
        running.close()
