"""Throughput and CPU time: Java clients that produce and consume large amounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from benchmarks.bench import PARTITIONS, Bench, Measure, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System, memory_mb, used_cpu_seconds

KIB = 1024
READERS = 4
REPLICAS = 3
WARM_UP_SHARE = 3 / 8  # of a producer's records; its JVM has compiled the hot code by then
PASSES = 4  # of consumers; their rate stops rising after about three
Moved = TypeVar("Moved", clients.Throughput, clients.Groups)


def produce_and_consume_1k(prefix: str = "") -> Measure:
    """Produce 1 KiB records with acks=1 into 6 partitions. One consumer reads half of them; then measure the memory."""

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        def once() -> Samples:
            count = bench.size.records_1k
            with bench.topic(system) as topic:
                samples = produce(bench, system, f"{prefix}produce 1 KiB", topic, count, KIB, "acks=1")
                samples |= consume(bench, system, f"{prefix}consume 1 KiB", topic, 1, count // 2)
                return {**samples, f"{prefix}memory after load": sum(memory_mb(system).values())}

        yield once

    return measure


@contextmanager
def produce_100(bench: Bench, system: System) -> Iterator[Round]:
    """Produce 100 B records with acks=1 into 6 partitions."""

    def once() -> Samples:
        with bench.topic(system) as topic:
            return produce(bench, system, "produce 100 B", topic, bench.size.records_100, 100, "acks=1")

    yield once


@contextmanager
def consume_by_four(bench: Bench, system: System) -> Iterator[Round]:
    """Read the same 1 KiB records with four consumers at once, each in a separate group."""
    count = bench.size.records_read
    with bench.topic(system) as topic:
        clients.produce(bench.runtime, system.bootstrap, topic, count, KIB)
        yield lambda: consume(bench, system, "consume by 4 readers", topic, READERS, count)


@contextmanager
def produce_to_all(bench: Bench, system: System) -> Iterator[Round]:
    """Produce 1 KiB records with the Java client's defaults (acks=all, idempotent, five requests in flight) into 6
    partitions with three replicas each. Two of them must be in sync.
    """

    def once() -> Samples:
        with bench.topic(system, PARTITIONS, REPLICAS) as topic:
            return produce(bench, system, "produce acks=all, RF 3", topic, bench.size.records_replicated, KIB)

    yield once


def produce(
    bench: Bench,
    system: System,
    name: str,
    topic: str,
    count: int,
    record_bytes: int,
    *settings: str,
    warm_up_share: float = WARM_UP_SHARE,
) -> Samples:
    """Produce `count` records with one producer. The first `warm_up_share` of them is not counted."""
    warm_up = int(count * warm_up_share)
    return _moved(
        system,
        name,
        count * record_bytes,
        lambda: clients.produce(
            bench.runtime,
            system.bootstrap,
            topic,
            count,
            record_bytes,
            *settings,
            warm_up=warm_up,
            client=system.access.java,
        ),
    )


def consume(
    bench: Bench, system: System, name: str, topic: str, readers: int, count: int, passes: int = PASSES
) -> Samples:
    """Read `count` records of 1 KiB with each reader, all readers at once. The last pass counts."""
    return _moved(
        system,
        name,
        readers * count * KIB,
        lambda: clients.read_in_groups(
            bench.runtime, system.bootstrap, topic, readers, 1, count, passes, system.access.java
        ),
        times=passes,
    )


def _moved(system: System, name: str, size_bytes: int, move: Callable[[], Moved], times: int = 1) -> Samples:
    """Run a client that moves `size_bytes`, `times` times. Returns the throughput and both sides' CPU time."""
    before = used_cpu_seconds(system)
    moved = move()
    used = (used_cpu_seconds(system) - before) / times
    gigabytes = size_bytes / 1e9
    return {
        name: moved.mb_per_s,
        f"{name}, CPU": used / gigabytes,
        f"{name}, client's CPU": moved.client_cpu_seconds / gigabytes,
    }
