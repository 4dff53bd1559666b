"""The figures of the benchmark: a row for each, with its unit, its direction and its targets.

There are two kinds of targets. `ratio` bounds the median of Barnabas / Apache Kafka in the same round. `own` bounds
Barnabas's own median, in the figure's unit. The direction decides between "at least" and "at most". The ratios are
those of the project's issue 21 ("Warm, wide, and on every core"). Where it has none, they are those of issues 8 ("Ahead
of Apache Kafka on the same two cores"), 15 (transactions) and 17 (TLS, SASL and ACLs). The own bounds are older targets
that still hold, and issue 17's of what ACLs may cost.

Not here are two targets of issue 21: those of 10,000 partitions, which `wide/figures.py` has, and those of a
free-threaded interpreter, whose column has no targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

OURS, THEIRS = "Barnabas", "Apache Kafka"
KFAKE, TANSU = "kfake", "Tansu"  # columns beside them, without targets


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a measurement returns."""

    name: str
    unit: str
    more_is_better: bool
    ratio: float | None = None
    own: float | None = None
    is_drawn: bool = True  # shown in the picture, too

    def meets(self, value: float, bound: float) -> bool:
        """Check whether a value satisfies a bound."""
        return value >= bound if self.more_is_better else value <= bound


def more(name: str, unit: str, *, ratio: float | None = None, own: float | None = None) -> Figure:
    """A figure that should be high."""
    return Figure(name, unit, True, ratio, own)


def less(name: str, unit: str, *, ratio: float | None = None, own: float | None = None) -> Figure:
    """A figure that should be low."""
    return Figure(name, unit, False, ratio, own)


def clients_cpu(name: str) -> Figure:
    """A client's own CPU time: context for the other figures, without a target."""
    return Figure(f"{name}, client's CPU", "s/GB", more_is_better=False, is_drawn=False)


def _closed_loop(api: str, loop: str, *, rate: float | None = None, latency: float | None = None) -> Iterator[Figure]:
    yield more(f"small {api} {loop}", "1/s", ratio=rate)
    yield less(f"small {api} {loop}, CPU", "us")
    yield less(f"small {api} {loop}, p50", "ms", ratio=latency)
    yield less(f"small {api} {loop}, p99", "ms", ratio=latency)
    yield less(f"small {api} {loop}, p99.9", "ms")


def _transactions(producers: str) -> Iterator[Figure]:
    yield more(f"transactions, {producers}", "1/s", ratio=1.0)
    yield less(f"transactions, {producers}, p50", "ms")
    yield less(f"transactions, {producers}, p99", "ms", ratio=1.0)


def _moved(name: str, *, rate: float, cpu: float | None = None) -> Iterator[Figure]:
    yield more(name, "MB/s", ratio=rate)
    yield less(f"{name}, CPU", "s/GB", ratio=cpu)
    yield clients_cpu(name)


def _beside_acls(name: str) -> Iterator[Figure]:
    yield more(f"{name}, rate kept with 1,000 ACLs", "", own=0.95)
    yield less(f"{name}, CPU with 1,000 ACLs", "")


FIGURES = {
    figure.name: figure
    for figure in (
        *_moved("produce 1 KiB", rate=1.1, cpu=0.85),
        *_moved("consume 1 KiB", rate=1.0, cpu=0.6),
        less("memory after load", "MB", ratio=0.15),
        *_moved("produce 100 B", rate=1.1),
        *_moved("consume by 4 readers", rate=1.05),
        *_closed_loop("produce", "32x2", rate=1.2),
        *_closed_loop("produce", "1x1", latency=0.9),
        *_closed_loop("metadata", "32x2", rate=1.0),
        *_closed_loop("metadata", "1x1"),
        less("end to end, p50", "ms", ratio=0.9),
        less("end to end, p99", "ms", ratio=0.9),
        less("end to end, p99.9", "ms"),
        more("no idle connections, rate", "1/s"),
        more("5,000 idle connections, rate kept", "", own=0.9),
        less("5,000 idle connections, memory", "MB"),
        more("20,000 idle connections, rate kept", "", own=0.9),
        less("20,000 idle connections, memory", "MB"),
        less("1,000 partitions, created", "s"),
        less("1,000 partitions, a record in each", "s"),
        less("1,000 partitions, created and a record in each", "s", ratio=2.0),
        more("1,000 partitions, produce 1 KiB", "MB/s"),
        less("50 consumers in 10 groups, assigned", "s"),
        more("50 consumers in 10 groups, consume", "MB/s"),
        less("50 consumers in 10 groups, KIP-848, assigned", "s"),
        more("50 consumers in 10 groups, KIP-848, consume", "MB/s", ratio=1.0),
        more("1 share consumer, consume", "MB/s", ratio=1.0),
        more("8 share consumers, consume", "MB/s", ratio=1.0),
        less("share consumers, memory", "MB"),
        less("start, 1 broker", "s", ratio=0.3, own=1.0),
        less("idle memory, 1 broker", "MB"),
        less("idle memory, largest process", "MB", own=60.0),
        less("start, 3 brokers", "s", ratio=0.3, own=2.0),
        less("idle memory, 3 brokers", "MB", own=200.0),
        *_moved("secure produce 1 KiB", rate=1.0),
        *_moved("secure consume 1 KiB", rate=1.0),
        less("secure memory after load", "MB"),
        *_moved("first load, produce 1 KiB", rate=1.5, cpu=0.6),
        *_moved("first load, consume 1 KiB", rate=1.0, cpu=0.6),
        less("first load, memory", "MB", ratio=0.11),
        *_moved("first secure load, produce 1 KiB", rate=1.0),
        *_moved("first secure load, consume 1 KiB", rate=1.0),
        less("first secure load, memory", "MB"),
        *_moved("first load, acks=all, RF 3", rate=3.5),
        *_beside_acls("small produce 32x2"),
        *_beside_acls("produce 1 KiB"),
        less("1,000 partitions, stop", "s"),
        less("1,000 partitions, start", "s"),
        less("1,000 partitions, memory after start", "MB"),
        less("1,000 partitions, descriptors after start", ""),
        *_moved("produce acks=all, RF 3", rate=1.1, cpu=0.8),
        *_transactions("1 producer"),
        *_transactions("10 producers"),
        *_transactions("50 producers"),
        less("interruption: none", "ms"),
        less("interruption: kill -9", "ms", ratio=1.0),
        less("interruption: controlled shutdown", "ms", own=200.0),
        less("active controller killed, next decision", "ms", ratio=1.2),
        less("active controller alive, producer's gap", "ms"),
        less("active controller killed, producer's gap", "ms"),
        less("active controller alive, consumer's gap", "ms"),
        less("active controller killed, consumer's gap", "ms"),
        less("1,000 topics one by one", "s"),
        less("1,000 topics one by one, known to all", "s"),
        less("1,000 topics in one request", "s"),
        less("1,000 topics in one request, known to all", "s"),
        less("1,000 topics, memory of brokers", "MB"),
        less("1,000 topics, memory of controllers", "MB"),
    )
}
