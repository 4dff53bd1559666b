"""The Java clients that load a system: kafka-producer-perf-test and four small programs of ours (`java/`).

Each runs in a separate JVM. Its first records are not counted unless a measurement is about them, since a short run
spends half its time in the JIT compiler. A result includes the client's CPU time of the whole run, with the compiler's.
The client shares the cores with the brokers, so its CPU time limits the rate that any broker can reach.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from barnabas.cluster.security.client_settings import properties_text
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import MAIN_CLASSES

JAVA = Path(__file__).with_name("java")
CLIENT_JVM = ("-Xmx512M",)  # what kafka-producer-perf-test.sh gives it
MANY_CLIENTS_JVM = ("-Xmx2G",)
MIB = 1 << 20


class ClientError(Exception):
    """A client failed; the message is its output."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A client's output and its CPU time, with the start of its JVM."""

    output: str
    cpu_seconds: float

    @property
    def last_line(self) -> str:
        """Last line of the output, which holds the result."""
        return self.output.splitlines()[-1] if self.output else ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """A client's throughput and CPU time."""

    mb_per_s: float  # of 2**20 bytes, as Kafka's tools count
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Groups:
    """The result of consumer groups that read a topic."""

    assigned_s: float  # from their start until every group had assigned all partitions
    mb_per_s: float  # of all groups together
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles of the time from a record's send to its arrival in a consumer."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions per second of all producers, and quantiles of the time from begin to commit."""

    per_s: float
    p50_ms: float
    p99_ms: float


def produce(
    runtime: KafkaRuntime,
    bootstrap: str,
    topic: str,
    count: int,
    record_bytes: int,
    *settings: str,
    warm_up: int = 0,
    client: Mapping[str, str] | None = None,
) -> Throughput:
    """Send records at full speed with kafka-producer-perf-test. The rate leaves out the first `warm_up` records.
    `settings` are the producer's, as `key=value`; those of `client` may have any value. Raises ClientError.
    """
    size = ("--num-records", str(count), "--record-size", str(record_bytes), "--throughput", "-1")
    uncounted = ("--warmup-records", str(warm_up)) if warm_up else ()
    properties = ("--command-property", f"bootstrap.servers={bootstrap}", *settings)
    with NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(properties_text(client or {}))
        file.flush()
        options = (*size, *uncounted, *properties, "--command-config", file.name)
        ran = _tool(runtime, "kafka-producer-perf-test", "--topic", topic, *options)
    match = re.search(r"\(([\d.]+) MB/sec\)", ran.last_line)
    if match is None:
        raise ClientError(ran.output)
    return Throughput(float(match[1]), ran.cpu_seconds)


def read_in_groups(
    runtime: KafkaRuntime,
    bootstrap: str,
    topic: str,
    groups: int,
    members: int,
    count: int,
    passes: int,
    settings: Mapping[str, str] | None = None,
) -> Groups:
    """Let all groups read the topic's first `count` records at once (java/Consumers.java). They repeat it `passes`
    times in the same JVM. The result has the times of the last pass and the mean CPU time. Raises ClientError.
    """
    given = {"bootstrap.servers": bootstrap, **(settings or {})}
    arguments = [topic, str(groups), str(members), str(passes), str(count), *(f"{k}={v}" for k, v in given.items())]
    ran = _program(runtime, "Consumers", MANY_CLIENTS_JVM, arguments)
    result = json.loads(ran.last_line)
    return Groups(result["assigned_s"], result["bytes"] / MIB / result["read_s"], ran.cpu_seconds / passes)


def read_shared(runtime: KafkaRuntime, bootstrap: str, topic: str, members: int, count: int, passes: int) -> Throughput:
    """Let the members of a share group read `count` records of the topic (java/ShareConsumers.java), `passes` times in
    the same JVM. The result is that of the last pass, with the mean CPU time. Raises ClientError.
    """
    arguments = [topic, str(members), str(passes), str(count), f"bootstrap.servers={bootstrap}"]
    ran = _program(runtime, "ShareConsumers", MANY_CLIENTS_JVM, arguments)
    result = json.loads(ran.last_line)
    return Throughput(result["bytes"] / MIB / result["read_s"], ran.cpu_seconds / passes)


def end_to_end(runtime: KafkaRuntime, bootstrap: str, topic: str, warm_up: int, count: int) -> Latency:
    """Send one record at a time, each once the consumer has the one before (java/EndToEnd.java). Raises ClientError."""
    ran = _program(runtime, "EndToEnd", CLIENT_JVM, [bootstrap, topic, str(warm_up), str(count)])
    result = json.loads(ran.last_line)
    return Latency(result["p50_us"] / 1000, result["p99_us"] / 1000, result["p999_us"] / 1000)


def transactions(
    runtime: KafkaRuntime,
    bootstrap: str,
    topic: str,
    partitions: int,
    producers: int,
    warm_up_ms: int,
    measured_ms: int,
) -> Transactions:
    """Run producers whose transactions write a record to every partition (java/Transactions.java). Raises
    ClientError.
    """
    numbers = map(str, (partitions, producers, warm_up_ms, measured_ms))
    result = json.loads(_program(runtime, "Transactions", CLIENT_JVM, [bootstrap, topic, *numbers]).last_line)
    return Transactions(result["per_s"], result["p50_us"] / 1000, result["p99_us"] / 1000)


def _tool(runtime: KafkaRuntime, tool: str, *arguments: str) -> Ran:
    return _run([*runtime.command(MAIN_CLASSES[tool], *CLIENT_JVM), *arguments])


def _program(runtime: KafkaRuntime, name: str, jvm: Sequence[str], arguments: Sequence[str]) -> Ran:
    classes = runtime.compiled(JAVA / f"{name}.java")
    return _run([*runtime.command(name, *jvm, classes=classes), *arguments])


def _run(command: Sequence[str]) -> Ran:
    before = _children_cpu_seconds()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClientError(f"{' '.join(command)}: {result.stdout}{result.stderr}")
    return Ran(result.stdout, _children_cpu_seconds() - before)


def _children_cpu_seconds() -> float:
    """Return the CPU time of ended child processes. Servers do not end while a client runs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
