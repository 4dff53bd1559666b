"""`cluster()`: a cluster of real processes for the duration of a block or a test run.

It runs `barnabas up --ephemeral` as a child process. The child ends when this process does, in whatever way, because it
sees the end of the pipe that is its standard input (cli/local/ephemeral.py). Why a child: if pytest started the brokers
itself, the kernel would end them together with the *thread* that started them.

*Threads*: any thread may use a Cluster; its owner calls `close` once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from barnabas.common.processes import interpreter
from barnabas.common.processes.cluster_file import read_cluster_file
from barnabas.config.properties import parse_properties

if TYPE_CHECKING:
    from barnabas.client.client_properties import ClientProperties
    from barnabas.clock import ClusterClock
    from barnabas.faults import Faults
    from barnabas.testing.reading import Assignments, Reader
    from barnabas.testing.records import Matcher, Record

CLOSE_TIMEOUT_S = 30
LOG_LINES = 40
TIMEOUT_S = 10.0
OK = 200
ADMIN = "admin"
TOPIC_NAME_MAX = 200
_numbers = itertools.count(1)


class StartError(Exception):
    """The cluster did not become ready; the message is the output of its processes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a cluster. `port` 0 takes free ports."""

    brokers: int = 1
    config: tuple[tuple[str, str], ...] = ()
    port: int = 0
    security: str = ""  # SSL, SASL_SSL or SASL_PLAINTEXT; "": PLAINTEXT
    users: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # with their passwords
    acls: tuple[str, ...] = ()  # arguments of `barnabas acl add`

    @classmethod
    def of(
        cls,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        port: int = 0,
        *,
        security: str = "",
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] = (),
    ) -> Settings:
        """Settings from any keys of Kafka's server properties, with values of any type."""
        properties = tuple(sorted((key, _property(value)) for key, value in (config or {}).items()))
        if (users or acls) and not security:
            raise ValueError("users and acls need security: SSL, SASL_SSL or SASL_PLAINTEXT")
        return cls(brokers, properties, port, security, tuple(sorted((users or {}).items())), tuple(acls))


def _property(value: object) -> str:
    """A value as written in server.properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class _Log:
    """The log of one process, and how many of its bytes were shown."""

    path: Path
    shown_bytes: int = field(default=0)

    def news(self) -> str:
        """The last lines that were not shown yet."""
        try:
            with self.path.open("rb") as log:
                log.seek(self.shown_bytes)
                return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES:])
        except OSError:
            return ""

    def forget(self) -> None:
        """Count all present content as shown."""
        with contextlib.suppress(OSError):
            self.shown_bytes = self.path.stat().st_size


class Cluster:
    """A running cluster: a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1.

    All times are seconds. An expectation that is not met in time raises AssertionError with the actual state.
    """

    def __init__(self, settings: Settings = Settings()) -> None:
        """Start a cluster and return when clients can use every broker. Raises StartError."""
        self.settings = settings  # fixed before start
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close(); the supervisor's stderr
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
        try:
            self.add_acls(*settings.acls)
        except BaseException:
            self.close()
            raise

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
        if self.settings.security:
            command += ["--security", self.settings.security.lower()]
            command += ["--users", ",".join(f"{name}:{password}" for name, password in self.settings.users)]
        for key, value in self.settings.config:
            command += ["--config", f"{key}={value}"]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end of file ends the child
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,  # a Ctrl-C reaches only this process, which then closes the cluster
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

    # Pages

    def read_page(self, url: str) -> str:
        """Return the text of a page, such as one of `metrics_urls`, with the credentials of the cluster.

        Raises OSError and http.client.HTTPException if it does not answer, ValueError for another status than 200.
        """
        from urllib.parse import urlsplit

        from barnabas.common.pages.page_access import of_directory
        from barnabas.common.pages.page_client import ask

        parts = urlsplit(url)
        target = parts._replace(scheme="", netloc="").geturl()
        host, port = parts.hostname or "", parts.port or 0
        answer = ask(host, port, "GET", target, of_directory(self.directory), timeout_s=TIMEOUT_S)
        if answer.status != OK:
            raise ValueError(f"{url} answers {answer.status} {answer.reason}")
        return answer.body.decode()

    # Security

    def client_settings(self, user: str = ADMIN, client: str = "librdkafka") -> dict[str, Any]:
        """Return what a user connects with; `client` is java, librdkafka, kafka_python or spark.

        The addresses of the brokers are in it. Of a cluster without security, they are all.
        """
        files = {
            "java": "client.properties",
            "librdkafka": "librdkafka.conf",
            "kafka_python": "kafka_python.json",
            "spark": "spark.json",
        }
        if client not in files:
            raise ValueError(f"there are no settings for {client}: it can be {', '.join(files)}")
        if not self.settings.security:
            name = {"kafka_python": "bootstrap_servers", "spark": "kafka.bootstrap.servers"}
            return {name.get(client, "bootstrap.servers"): self.bootstrap}
        file = self.directory / "security" / "users" / user / files[client]
        text = file.read_text()
        if client in ("kafka_python", "spark"):
            found: dict[str, Any] = json.loads(text)
            return found
        if client == "java":
            return dict(parse_properties(text))
        return dict(line.split("=", 1) for line in text.splitlines())

    def add_acls(self, *lines: str) -> None:
        """Add ACLs, each line with the arguments of `barnabas acl add`: "alice read,write topic:orders --prefixed".

        Raises UserError for a line that is no ACL.
        """
        if not lines:
            return
        from barnabas.cli.security.acl_requests import VERSION, check_created, create_request
        from barnabas.cli.security.acl_words import parse_acl_line

        request = create_request([acl for line in lines for acl in parse_acl_line(line)])
        assert self._properties is not None
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        with NodeConnection(host, int(port), security=self._properties.security()) as connection:
            check_created(connection.send(request, VERSION))

    @cached_property
    def _properties(self) -> ClientProperties | None:
        """How this object connects: as admin."""
        if not self.settings.security:
            return None
        from barnabas.client.client_properties import ClientProperties

        return ClientProperties(self.client_settings(ADMIN, "java"), SystemClock())

    # Nodes

    def kill(self, node_id: int) -> None:
        """Kill (SIGKILL) a broker or the controller (100)."""
        self._act("kill", node_id)

    def stop(self, node_id: int) -> None:
        """Stop a node by a controlled shutdown and wait until it has ended."""
        self._act("stop", node_id)

    def start(self, node_id: int) -> None:
        """Start a killed or stopped node on the same data and ports, and wait until clients can use it."""
        self._act("start", node_id)

    def pause(self, node_id: int) -> None:
        """Pause (SIGSTOP) a node: it keeps its connections but answers nothing."""
        self._act("pause", node_id)

    def resume(self, node_id: int) -> None:
        """Resume (SIGCONT) a paused node."""
        self._act("resume", node_id)

    def _act(self, action: str, node_id: int) -> None:
        """Have the supervisor act on a node; raises ClusterError with its reason."""
        from barnabas.control import ask

        ask(self.directory, action, node_id)

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each node, by node id."""
        content = read_cluster_file(self.directory)
        return {} if content is None else {process["id"]: process["pid"] for process in content["processes"]}

    # Logs

    def logs(self) -> dict[str, str]:
        """The last lines of each process since `forget_logs`, by its name; without processes that printed none."""
        found = {name: log.news() for name, log in self._logs.items()}
        return {name: text for name, text in found.items() if text}

    def forget_logs(self) -> None:
        """Let `logs` return only later lines."""
        for log in self._logs.values():
            log.forget()

    def complaints(self) -> str:
        """The supervisor's error output: processes that died, or why the start failed."""
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace").strip()

    # Topics, records, groups

    @cached_property
    def faults(self) -> Faults:
        """Injects faults: `with kafka.faults.add(Fault(api="Produce", error="..."))`.

        Its `recorder` records requests. See docs/faults.md.
        """
        from barnabas.faults import Faults

        return Faults(self.directory)

    @cached_property
    def clock(self) -> ClusterClock:
        """Moves the cluster's time forward: `kafka.clock.advance("7d")`, in a cluster with barnabas.clock.enable=true.

        See docs/clock.md.
        """
        from barnabas.clock import ClusterClock

        return ClusterClock(self.directory)

    @cached_property
    def _reader(self) -> Reader:
        from barnabas.testing.reading import Reader

        return Reader(self.bootstrap, self._properties)

    def create_topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        fresh: bool = True,
    ) -> str:
        """Create a topic and return its name. Clients can use it at once.

        `fresh` appends a number that makes the name unique. By default, there are as many replicas as brokers, at most
        three. Raises confluent_kafka.KafkaException.
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
        """All records of a topic, by partition and offset, once there are at least `count`.

        Records of open and aborted transactions are included only with `isolation="read_uncommitted"`.
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
        """Wait until the topic has a record for each expectation, and return all its records.

        An expectation is a value (text, bytes, None for a tombstone, or a mapping or list that is compared as JSON), an
        `Expected(value=, key=, headers=, partition=)`, or a function of a Record. Each must match a record of its own;
        with `exactly`, there may be no others.
        """
        return self._reader.assert_produced(
            topic, expected, exactly=exactly, timeout_s=timeout, committed_only=isolation == "read_committed"
        )

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by topic and partition; empty if the group does not exist."""
        return self._reader.committed(group)

    def wait_stable(self, group: str, *, members: int | None = None, timeout: float = 30.0) -> Assignments:
        """Wait until a group is stable with `members` (None: at least one); return their partitions by member id."""
        return self._reader.wait_stable(group, members=members, timeout_s=timeout)


@contextlib.contextmanager
def cluster(
    brokers: int = 1,
    *,
    config: Mapping[str, object] | None = None,
    port: int = 0,
    security: str = "",
    users: Mapping[str, str] | None = None,
    acls: Iterable[str] = (),
) -> Iterator[Cluster]:
    """A cluster that runs during the block. Raises StartError.

    `config` has any of Kafka's server properties. `port` is broker 0's; the next brokers get the next ports (0: free
    ports). `security` is SSL, SASL_SSL or SASL_PLAINTEXT, with `users` (passwords by name) and `acls` (arguments of
    `barnabas acl add`).
    """
    running = Cluster(Settings.of(brokers, config, port, security=security, users=users, acls=acls))
    try:
        yield running
    finally:
        running.close()
