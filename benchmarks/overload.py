"""`python -m benchmarks.overload`: clients that send too many requests, or do not read their responses.

Each scenario runs on both systems, one after another. Three questions matter. Does throughput stay flat when ten times
the saturating load is offered? Is memory bounded? Do the other clients slow down a well-behaved one (a closed loop of
small produce requests, 32 connections x 2 in flight)? All clients are roles of a C program (`load/pressure.c`), so that
the client is not the bottleneck.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from barnabas.cluster import LocalCluster
from barnabas.common.clock import SystemClock
from benchmarks.bench import create_topic
from benchmarks.harness import directory, systems_option
from benchmarks.load.members import ClassicMember, ConsumerMember, Member, join_all
from benchmarks.load.pressure import (
    WARM_UP_MS,
    Aggressor,
    Offered,
    Pressure,
    fetch_frame,
    metadata_frame,
    produce_frame,
    versions_frame,
)
from tests.support.kafka.apache_kafka import SERVER_JVM, ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.processes import cpu_seconds, resident_bytes

PARTITIONS: Final = 6
MIB: Final = 1 << 20
KIB: Final = 1 << 10
WORKING: Final = (32, 2)  # connections, in flight on each
POOL_BYTES: Final = 128 * MIB
INITIAL_DELAY_MS: Final = 200
SETTINGS: Final = {
    "num.partitions": str(PARTITIONS),
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.segment.bytes": str(1 << 30),
    "socket.listen.backlog.size": "1024",
    "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
    "queued.max.request.bytes": str(POOL_BYTES),
}
READERS: Final = 100
FETCH_BYTES: Final = 50_000_000
GREEDY: Final = 4
HALF_FRAMES: Final = 1_000
LONG_POLLS: Final = 8_000
LONG_POLL_MS: Final = 600_000
CONNECTS_A_SECOND: Final = 2_000
SAMPLE_S: Final = 0.1
SETTLE_MS: Final = 2500
TIMEOUT_S: Final = 60
Rows = dict[str, str]


@dataclass(slots=True)
class Bench:
    """One running broker, the program that loads it, and the time of each measurement."""

    port: int
    pid: int
    pressure: Pressure
    measure_ms: int
    clock: SystemClock = field(default_factory=SystemClock)

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """Create a topic and wait until all its partitions have leaders."""
        create_topic(AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}), name, partitions)
        return name

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker, for a client's bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def work(self, topic: str, measure_ms: int | None = None, warm_up_ms: int = WARM_UP_MS) -> Offered:
        """Run the well-behaved client and return its rate and latency."""
        frames = self.small_frames(topic)
        return self.pressure.offer(self.port, *WORKING, frames, measure_ms or self.measure_ms, warm_up_ms)

    def small_frames(self, topic: str, record_bytes: int = 100) -> list[bytes]:
        """Encode a produce request for each partition of a topic."""
        return [produce_frame(self.clock.wall_ms(), topic, number, record_bytes) for number in range(PARTITIONS)]


class PeakMemory:
    """Samples the resident memory of a process and keeps the highest value."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.before = self.peak = 0

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = resident_bytes(self._pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def growth_mib(self) -> float:
        """The growth from the start to the peak."""
        return (self.peak - self.before) / MIB

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self.peak = max(self.peak, resident_bytes(self._pid))


# --- offered load -------------------------------------------------------------------------------------------------

#: name -> (connections, in flight on each; 0: without waiting). The first offer saturates the broker.
SMALL_OFFERS: Final = {"1x": (32, 2), "2x": (64, 2), "5x": (160, 2), "10x": (320, 10), "no waiting": (320, 0)}
LARGE_OFFERS: Final = {"1x": (8, 2), "2x": (16, 2), "5x": (40, 2), "10x": (80, 10), "no waiting": (80, 0)}


def offered(bench: Bench, offers: dict[str, tuple[int, int]], record_bytes: int) -> Rows:
    """Offer more and more produce requests of one record. Reports the rate of responses and the memory."""
    topic = bench.topic(f"offered-{record_bytes}")
    frames = bench.small_frames(topic, record_bytes)
    rates: dict[str, list[float]] = {name: [] for name in offers}
    with PeakMemory(bench.pid) as memory:
        for _ in range(3):  # in turn, since the machine's speed varies
            for name, (connections, in_flight) in offers.items():
                offered = bench.pressure.offer(bench.port, connections, in_flight, frames, bench.measure_ms)
                rates[name].append(offered.requests_per_second)
    medians = {name: statistics.median(samples) for name, samples in rates.items()}
    best = max(medians.values())
    rows = {name: f"{rate:,.0f}/s" for name, rate in medians.items()}
    return {**rows, "least / most": f"{min(medians.values()) / best:.2f}", "memory grew by": _mib(memory.growth_mib)}


# --- a well-behaved client beside others --------------------------------------------------------------------------


def half_frames(bench: Bench) -> Rows:
    """Clients that each send half of a large produce request, and the rest at the end."""
    topic = bench.topic("half-frames")
    frames = [produce_frame(bench.clock.wall_ms(), topic, number, 1_000_000) for number in range(PARTITIONS)]
    with PeakMemory(bench.pid) as memory:
        rows, result = _beside(bench, lambda: bench.pressure.half(bench.port, HALF_FRAMES, 500_000, frames))
    return {
        **rows,
        "memory grew by": _mib(memory.growth_mib),
        "answered in the end": f"{result['answered']} of {HALF_FRAMES}",
    }


def fast_readers(bench: Bench) -> Rows:
    """Consumers that request much data and read it at full speed."""
    return _greedy(bench, [fetch_frame(_written(bench, "read-fast"), FETCH_BYTES)])


def large_requests(bench: Bench) -> Rows:
    """Producers of large batches."""
    topic = bench.topic("large-requests")
    frames = [produce_frame(bench.clock.wall_ms(), topic, number, 1_000_000) for number in range(PARTITIONS)]
    return _greedy(bench, frames)


def _greedy(bench: Bench, frames: list[bytes]) -> Rows:
    topic = bench.topic(f"beside-{bench.clock.monotonic_ns()}")
    alone = bench.work(topic)
    with bench.pressure.greedy(bench.port, GREEDY, frames, bench.measure_ms + 2 * WARM_UP_MS) as greedy:
        beside = bench.work(topic)
        result = greedy.result()
    return {**_compared(alone, beside), "the others' answers": f"{result['requests'] / result['seconds']:,.0f}/s"}


def _written(bench: Bench, name: str) -> str:
    """Create a topic with FETCH_BYTES of records."""
    topic = bench.topic(name, 1)
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 200_000})
    for _ in range(FETCH_BYTES // 1000):
        producer.produce(topic, bytes(1000), partition=0)
    producer.flush(TIMEOUT_S)
    return topic


def readers(bench: Bench, bytes_per_second: int) -> Rows:
    """Consumers that request much data and read it slowly."""
    frames = [fetch_frame(_written(bench, f"read-at-{bytes_per_second}"), FETCH_BYTES)]
    with PeakMemory(bench.pid) as memory:
        rows, _ = _beside(bench, lambda: bench.pressure.read(bench.port, READERS, bytes_per_second, 1, frames))
    return {**rows, "memory grew by": _mib(memory.growth_mib)}


def never_reads(bench: Bench) -> Rows:
    """Clients that send requests until the socket is full, and never read a response."""
    frames = [metadata_frame()]
    with PeakMemory(bench.pid) as memory:
        rows, _ = _beside(bench, lambda: bench.pressure.read(bench.port, READERS, 0, 0, frames))
    return {**rows, "memory grew by": _mib(memory.growth_mib)}


def long_polls(bench: Bench) -> Rows:
    """Fetches that wait for a record until their timeout."""
    topic = bench.topic("long-polls")
    frames = [
        fetch_frame(topic, 50_000_000, partition=number, max_wait_ms=LONG_POLL_MS) for number in range(PARTITIONS)
    ]
    with PeakMemory(bench.pid) as memory:
        rows, _ = _beside(bench, lambda: bench.pressure.read(bench.port, LONG_POLLS, 0, 1, frames))
    return {**rows, "memory a fetch": f"{memory.growth_mib * KIB / LONG_POLLS:.1f} KiB"}


def storm(bench: Bench) -> Rows:
    """Clients that connect, request ApiVersions and disconnect."""
    topic = bench.topic("storm")
    alone = bench.work(topic)
    with bench.pressure.storm(bench.port, CONNECTS_A_SECOND, bench.measure_ms + 1500, [versions_frame()]) as running:
        beside = bench.work(topic)
        result = running.result()
    return {
        **_compared(alone, beside),
        "served": f"{result['requests'] * 1000 / (bench.measure_ms + 1500):,.0f}/s",
        "not served": f"{result['errors']:.0f}",
        "connect to answer, p99": f"{result['p99_us'] / 1000:.1f} ms",
    }


def idle(bench: Bench, count: int) -> Rows:
    """Silent connections, which then all close at once."""
    topic = bench.topic(f"idle-{count}")
    alone = bench.work(topic)
    before = resident_bytes(bench.pid)
    with bench.pressure.hold(bench.port, count) as held:
        size = (resident_bytes(bench.pid) - before) / count / KIB
        beside = bench.work(topic)
        closing = threading.Timer(1.0, held.finish)
        closing.start()
        while_closing = bench.work(topic, 2000, 0)
        closing.join()
    return {
        **_compared(alone, beside),
        "memory a connection": f"{size:.1f} KiB",
        "p99 while all close": f"{while_closing.p99_ms:.2f} ms",
    }


def members(bench: Bench, groups: int, count: int, kind: type[Member] = ClassicMember) -> Rows:
    """Members that join at once: five rounds, each with new groups."""
    topic = bench.topic(f"members-{groups}-{count}-{kind.__name__}")
    seconds, cpu = [], []
    for number in range(5):
        before = cpu_seconds(bench.pid)
        names = [f"{topic}-{number}-{group}" for group in range(groups)]
        seconds.append(join_all(bench.port, names, count, topic, kind))
        cpu.append(cpu_seconds(bench.pid) - before)
    return {
        "until all are assigned": f"{statistics.median(seconds):.2f} s",
        "broker's CPU": f"{statistics.median(cpu):.2f} s",
    }


def _beside(
    bench: Bench, start: Callable[[], contextlib.AbstractContextManager[Aggressor]]
) -> tuple[Rows, dict[str, float]]:
    """Measure the well-behaved client alone, then beside the others."""
    topic = bench.topic(f"beside-{bench.clock.monotonic_ns()}")
    alone = bench.work(topic)
    with start() as aggressor:
        bench.work(topic, SETTLE_MS)
        beside = bench.work(topic)
        result = aggressor.finish()
    return _compared(alone, beside), result


def _compared(alone: Offered, beside: Offered) -> Rows:
    return {
        "requests/s alone, beside": f"{alone.requests_per_second:,.0f}, {beside.requests_per_second:,.0f}",
        "rate kept": f"{beside.requests_per_second / alone.requests_per_second:.2f}",
        "p99 alone, beside": f"{alone.p99_ms:.2f}, {beside.p99_ms:.2f} ms",
    }


def _mib(value: float) -> str:
    return f"{value:.0f} MiB"


class Scenario(NamedTuple):
    """A load on a system, with the title of its table."""

    title: str
    run: Callable[[Bench], Rows]


SCENARIOS: Final = {
    "offered-small": Scenario(
        "more and more produce requests of one 100 B record", lambda b: offered(b, SMALL_OFFERS, 100)
    ),
    "offered-16k": Scenario("the same with batches of 16 KiB", lambda b: offered(b, LARGE_OFFERS, 16 * KIB)),
    "half-frames": Scenario("1,000 clients send half of a request of 1 MB, later the rest", half_frames),
    "fast-readers": Scenario("4 consumers request 50 MB at a time and read it at full speed", fast_readers),
    "large-requests": Scenario("4 producers send batches of 1 MB", large_requests),
    "slow-readers": Scenario("100 consumers request 50 MB and read 10 KB/s", lambda b: readers(b, 10_000)),
    "deaf-readers": Scenario("100 consumers request 50 MB and read nothing", lambda b: readers(b, 0)),
    "never-reads": Scenario("100 clients send Metadata requests and never read a response", never_reads),
    "long-polls": Scenario("8,000 fetches wait for a record", long_polls),
    "storm": Scenario("2,000 clients a second connect, request ApiVersions and disconnect", storm),
    "idle-5000": Scenario("5,000 silent connections, which then all close at once", lambda b: idle(b, 5_000)),
    "idle-19000": Scenario("19,000 silent connections, which then all close at once", lambda b: idle(b, 19_000)),
    "members-1x100": Scenario("100 members join a group at once", lambda b: members(b, 1, 100)),
    "members-1x200": Scenario("200 members join a group at once", lambda b: members(b, 1, 200)),
    "members-1x400": Scenario("400 members join a group at once", lambda b: members(b, 1, 400)),
    "members-100x5": Scenario("5 members join each of 100 groups at once", lambda b: members(b, 100, 5)),
    "members-848-1x200": Scenario(
        "200 members join a consumer group (KIP-848) at once", lambda b: members(b, 1, 200, ConsumerMember)
    ),
    "members-848-1x400": Scenario(
        "400 members join a consumer group (KIP-848) at once", lambda b: members(b, 1, 400, ConsumerMember)
    ),
    "members-848-100x5": Scenario(
        "5 members join each of 100 consumer groups (KIP-848) at once", lambda b: members(b, 100, 5, ConsumerMember)
    ),
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="Run only this scenario.")
@systems_option
@click.option("--measure-ms", default=4000, show_default=True, help="How long each rate is measured.")
def main(only: tuple[str, ...], systems: str, measure_ms: int) -> None:
    """Overload both systems, one after another, and print a table for each scenario."""
    console = Console(stderr=True)
    results: dict[str, dict[str, Rows]] = {name: {} for name in only or SCENARIOS}
    with directory("overload") as where:
        pressure = Pressure(where)
        for system, running in SYSTEMS.items():
            if systems not in ("both", system.split()[0].lower()):
                continue
            with running(where) as (port, pid):
                bench = Bench(port, pid, pressure, measure_ms)
                topic = bench.topic("warm-up")
                bench.work(topic, 4 * measure_ms)  # a JVM compiles while it runs
                for name, by_system in results.items():
                    by_system[system] = SCENARIOS[name].run(bench)
                    console.print(f"{name} [bold]{system}[/bold]: {by_system[system]}", highlight=False)
    _print(results)


@contextlib.contextmanager
def _apache(directory: Path) -> Iterator[tuple[int, int]]:
    """Run one node of Apache Kafka. Yields its port and process id."""
    with ApacheKafka(kafka_runtime(), directory / "apache", SETTINGS, SERVER_JVM) as node:
        yield node.port, node.pid


@contextlib.contextmanager
def _barnabas(directory: Path) -> Iterator[tuple[int, int]]:
    """Run a controller and a broker. Yields the broker's port and process id."""
    with LocalCluster(directory / "barnabas", broker_count=1, first_port=0, config=SETTINGS) as cluster:
        child = cluster.brokers[0].child
        assert child is not None
        yield cluster.brokers[0].port, child.pid


SYSTEMS: Final = {"Apache Kafka": _apache, "Barnabas": _barnabas}


def _print(results: dict[str, dict[str, Rows]]) -> None:
    for name, by_system in results.items():
        table = Table("", *by_system, title=f"{name}: {SCENARIOS[name].title}", title_justify="left")
        for figure in next(iter(by_system.values())):
            table.add_row(figure, *(rows[figure] for rows in by_system.values()))
        Console(width=int(os.environ.get("COLUMNS", "110"))).print(table)


if __name__ == "__main__":
    main()
