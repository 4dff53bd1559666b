"""The clients that load a system: kafka-producer-perf-test, and three small Java programs of ours (`java/`).

Each runs in a JVM of its own, and what it does first does not count, unless a measurement is about that: half of a
short run is the compiler's. Its CPU time is told beside what it measured, of the whole run, the compiler's included:
the client shares the cores with the brokers, and that bounds how fast any of them could look.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_jars import KafkaRuntime
from tests.support.kafka_tools import MAIN_CLASSES

JAVA = Path(__file__).with_name("java")
CLIENT_JVM = ("-Xmx512M",)  # what kafka-producer-perf-test.sh gives it
MANY_CLIENTS_JVM = ("-Xmx2G",)
MIB = 1 << 20


class ClientError(Exception):
    """A client failed; what it printed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a client printed, and the CPU time that it took, the start of its JVM included."""

    output: str
    cpu_seconds: float

    @property
    def last_line(self) -> str:
        """Where the perf tests print their result."""
        return self.output.splitlines()[-1] if self.output else ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a client moved."""

    mb_per_s: float  # of 2**20 bytes, as Kafka's tools count
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Groups:
    """What the members of consumer groups found."""

    assigned_s: float  # from their start until every group had dealt out all partitions
    mb_per_s: float  # of all groups together
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a record's send to its arrival in a consumer."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class Transactions:
    """What producers got done, and how long a transaction took them, from its beginning to its commitment."""

    per_s: float
    p50_ms: float
    p99_ms: float


def produce(
    runtime: KafkaRuntime, bootstrap: str, topic: str, count: int, record_bytes: int, *settings: str, warm_up: int = 0
) -> Throughput:
    """Send records as fast as it goes, by kafka-producer-perf-test; of the first `warm_up` of them the rate is not
    told. `settings` are the producer's, `key=value`. Raises ClientError.
    """
    size = ("--num-records", str(count), "--record-size", str(record_bytes), "--throughput", "-1")
    uncounted = ("--warmup-records", str(warm_up)) if warm_up else ()
    properties = ("--command-property", f"bootstrap.servers={bootstrap}", *settings)
    ran = _tool(runtime, "kafka-producer-perf-test", "--topic", topic, *size, *uncounted, *properties)
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
    """Have each of these groups read the topic's first `count` records, all at once (java/Consumers.java). They do it
    so many times, in the same JVM; the last time counts, and of the CPU time the mean. Raises ClientError.
    """
    given = {"bootstrap.servers": bootstrap, **(settings or {})}
    arguments = [topic, str(groups), str(members), str(passes), str(count), *(f"{k}={v}" for k, v in given.items())]
    ran = _program(runtime, "Consumers", MANY_CLIENTS_JVM, arguments)
    told = json.loads(ran.last_line)
    return Groups(told["assigned_s"], told["bytes"] / MIB / told["read_s"], ran.cpu_seconds / passes)


def end_to_end(runtime: KafkaRuntime, bootstrap: str, topic: str, warm_up: int, count: int) -> Latency:
    """Send one record after another, each when the one before has come out (java/EndToEnd.java). Raises ClientError."""
    told = json.loads(_program(runtime, "EndToEnd", CLIENT_JVM, [bootstrap, topic, str(warm_up), str(count)]).last_line)
    return Latency(told["p50_us"] / 1000, told["p99_us"] / 1000, told["p999_us"] / 1000)


def transactions(
    runtime: KafkaRuntime,
    bootstrap: str,
    topic: str,
    partitions: int,
    producers: int,
    warm_up_ms: int,
    measured_ms: int,
) -> Transactions:
    """Have so many producers make transactions with a record to every partition (java/Transactions.java). Raises
    ClientError.
    """
    numbers = map(str, (partitions, producers, warm_up_ms, measured_ms))
    told = json.loads(_program(runtime, "Transactions", CLIENT_JVM, [bootstrap, topic, *numbers]).last_line)
    return Transactions(told["per_s"], told["p50_us"] / 1000, told["p99_us"] / 1000)


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
    """Of the children that have ended; servers end at other times."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
