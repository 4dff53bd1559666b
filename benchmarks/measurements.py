"""What is measured: each measurement takes one system and returns figures by name.

The figures' rows say their unit, whether more is better, and the target for the ratio Barnabas / Apache Kafka (or, for
what is Barnabas's alone, the bound in the figure's own unit).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import Clock
from benchmarks.load_generator import LoadGenerator, Loop
from benchmarks.systems import System, bootstrap
from tests.support.kafka_jars import KafkaRuntime
from tests.support.kafka_tools import MAIN_CLASSES
from tests.support.processes import resident_bytes
from tests.support.waiting import eventually

PARTITIONS = 6
MIB = 1 << 20
CLIENT_JVM = ("-Xmx512M",)  # what kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh give it
MANY = Loop(connections=32, in_flight=2)
ONE = Loop(connections=1, in_flight=1)
IDLE_SETTLE_MS = 2000
TOPIC_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a measurement yields."""

    name: str
    unit: str
    more_is_better: bool
    ratio_min: float | None = None  # Barnabas / Apache Kafka must reach it
    ratio_max: float | None = None  # Barnabas / Apache Kafka must not exceed it
    own_max: float | None = None  # Barnabas's own value must not exceed it


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("produce 1 KiB", "MB/s", True, ratio_min=1.0),
        Figure("produce 1 KiB, broker's CPU", "s/GB", False),
        Figure("produce 100 B", "MB/s", True),
        Figure("produce 100 B, broker's CPU", "s/GB", False),
        Figure("consume 1 KiB", "MB/s", True),
        Figure("small requests 32x2", "1/s", True, ratio_min=0.5),
        Figure("small requests 32x2, p50", "ms", False),
        Figure("small requests 32x2, p99", "ms", False),
        Figure("small requests 1x1", "1/s", True),
        Figure("small requests 1x1, p50", "ms", False),
        Figure("small requests 1x1, p99", "ms", False),
        Figure("start to usable, 1 broker", "s", False, own_max=1.0),
        Figure("idle memory, broker", "MB", False, own_max=60.0),
        Figure("idle memory, controller", "MB", False, own_max=60.0),
        Figure("idle memory, supervisor", "MB", False, own_max=60.0),
        Figure("start to usable, 3 brokers", "s", False, own_max=2.0),
        Figure("idle memory, 3 brokers, all processes", "MB", False, own_max=200.0),
        Figure("produce acks=all, RF 3", "MB/s", True, ratio_min=1.0),
        Figure("produce acks=all, RF 3, brokers' CPU", "s/GB", False),
        Figure("interruption: none", "ms", False),
        Figure("interruption: kill -9", "ms", False, ratio_max=1.0),
        Figure("interruption: controlled shutdown", "ms", False, own_max=200.0),
    )
}
Samples = dict[str, float]


@dataclass(frozen=True, slots=True)
class Size:
    """How long the measurements take."""

    records_1k: int
    records_100: int
    loop_ms: int
    warm_up_ms: int


FULL = Size(records_1k=600_000, records_100=3_000_000, loop_ms=6000, warm_up_ms=2000)
QUICK = Size(records_1k=150_000, records_100=500_000, loop_ms=2000, warm_up_ms=1000)


@dataclass(slots=True)
class Bench:
    """What the measurements share."""

    runtime: KafkaRuntime
    generator: LoadGenerator
    clock: Clock
    size: Size
    topics: int = 0

    @contextmanager
    def topic(self, system: System) -> Iterator[str]:
        """A topic for one measurement, deleted afterwards."""
        admin = AdminClient({"bootstrap.servers": bootstrap(system)})
        self.topics += 1
        name = f"bench-{self.topics}"
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(TOPIC_TIMEOUT_S)
        eventually("the topic is there", lambda: name in admin.list_topics(timeout=TOPIC_TIMEOUT_S).topics)
        yield name
        admin.delete_topics([name])[name].result(TOPIC_TIMEOUT_S)


def perf_test(runtime: KafkaRuntime, tool: str, *arguments: str) -> str:
    """Run one of Apache's perf tests in a JVM of its own and return the last line that it printed."""
    command = [*runtime.command(MAIN_CLASSES[tool], *CLIENT_JVM), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{tool} failed: {result.stdout}{result.stderr}"
    return result.stdout.splitlines()[-1]


def producer_perf_test(
    runtime: KafkaRuntime, servers: str, topic: str, count: int, record_bytes: int, *settings: str
) -> float:
    """Send records as fast as it goes, with acks=1; returns MB/s (of 2**20 bytes)."""
    size = ("--num-records", str(count), "--record-size", str(record_bytes), "--throughput", "-1")
    properties = ("--command-property", f"bootstrap.servers={servers}", "acks=1", *settings)
    last = perf_test(runtime, "kafka-producer-perf-test", "--topic", topic, *size, *properties)
    match = re.search(r"\(([\d.]+) MB/sec\)", last)
    assert match, last
    return float(match[1])


def produce_and_consume_1k(bench: Bench, system: System) -> Samples:
    """kafka-producer-perf-test with 1 KiB records, acks=1, 6 partitions; kafka-consumer-perf-test reads them back."""
    with bench.topic(system) as topic:
        samples = _produce(bench, system, topic, "produce 1 KiB", bench.size.records_1k, 1024)
        where = ("--bootstrap-server", bootstrap(system), "--topic", topic)
        last = perf_test(bench.runtime, "kafka-consumer-perf-test", *where, "--num-records", str(bench.size.records_1k))
        samples["consume 1 KiB"] = float(last.split(",")[8])  # fetch.MB.sec: the join of the group is not counted
    return samples


def produce_100(bench: Bench, system: System) -> Samples:
    """kafka-producer-perf-test with 100 B records, acks=1, 6 partitions."""
    with bench.topic(system) as topic:
        return _produce(bench, system, topic, "produce 100 B", bench.size.records_100, 100)


def _produce(bench: Bench, system: System, topic: str, name: str, count: int, record_bytes: int) -> Samples:
    before = system.broker_cpu_seconds()
    rate = producer_perf_test(bench.runtime, bootstrap(system), topic, count, record_bytes)
    cpu = system.broker_cpu_seconds() - before
    gigabytes = count * record_bytes / 1e9
    return {name: rate, f"{name}, broker's CPU": cpu / gigabytes}


def small_requests_32x2(bench: Bench, system: System) -> Samples:
    """A closed loop of produce requests of one 100 B record: 32 connections, 2 in flight on each."""
    return _closed_loop(bench, system, "small requests 32x2", MANY)


def small_requests_1x1(bench: Bench, system: System) -> Samples:
    """The same with one connection and one request in flight."""
    return _closed_loop(bench, system, "small requests 1x1", ONE)


def _closed_loop(bench: Bench, system: System, name: str, loop: Loop) -> Samples:
    with bench.topic(system) as topic:
        size = bench.size
        result = bench.generator.run(system.port, topic, PARTITIONS, loop, size.warm_up_ms, size.loop_ms)
    return {name: result.requests_per_second, f"{name}, p50": result.p50_ms, f"{name}, p99": result.p99_ms}


def start_one(bench: Bench, system: System) -> Samples:
    """Start-up to the first answer that lists the broker; then the memory of each process when nothing happens."""
    measured = _start(bench, system, 1)
    assert measured is not None, "one broker is always measured"
    seconds, memory = measured
    return {
        "start to usable, 1 broker": seconds,
        **{f"idle memory, {process.split()[0]}": value for process, value in memory.items()},
    }


def start_three(bench: Bench, system: System) -> Samples:
    """The same with three brokers, until each lists all of them; the memory of all processes together."""
    measured = _start(bench, system, 3)
    if measured is None:
        return {}
    seconds, memory = measured
    return {"start to usable, 3 brokers": seconds, "idle memory, 3 brokers, all processes": sum(memory.values())}


def _start(bench: Bench, system: System, brokers: int) -> tuple[float, dict[str, float]] | None:
    """Seconds to usable, and the resident MB of each process."""
    try:
        start = system.timed_start(bench.clock, brokers)
        if start is None:
            return None
        end_ms = bench.clock.monotonic_ms() + IDLE_SETTLE_MS
        eventually("it has settled", lambda: bench.clock.monotonic_ms() >= end_ms)
        return start.seconds, {process: resident_bytes(pid) / 1e6 for process, pid in start.pids.items()}
    finally:
        system.end_timed_start()


MEASUREMENTS: dict[str, Callable[[Bench, System], Samples]] = {
    "produce-1k": produce_and_consume_1k,
    "produce-100": produce_100,
    "small-32x2": small_requests_32x2,
    "small-1x1": small_requests_1x1,
    "start": start_one,
    "start-3": start_three,
}
