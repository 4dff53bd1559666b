"""Transactions of one, ten and fifty producers, each in three replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System

PARTITIONS = 30
REPLICAS = 3


def label(producers: int) -> str:
    """Return the figure's name for this number of producers."""
    return f"transactions, {producers} producer{'s' if producers > 1 else ''}"


@contextmanager
def transactions(bench: Bench, system: System) -> Iterator[Round]:
    """Run transactions of the Java client without a pause: begin, a 100 B record to each of 30 partitions, commit."""

    def once() -> Samples:
        samples: Samples = {}
        with bench.topic(system, PARTITIONS, REPLICAS) as topic:
            for producers in bench.size.producers:
                result = clients.transactions(
                    bench.runtime, system.bootstrap, topic, PARTITIONS, producers, bench.size.loop_warm_up_ms,
                    bench.size.loop_ms,
                )  # fmt: skip
                name = label(producers)
                samples |= {name: result.per_s, f"{name}, p50": result.p50_ms, f"{name}, p99": result.p99_ms}
        return samples

    yield once
