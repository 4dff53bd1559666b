"""The time of a record from a producer to a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System


@contextmanager
def end_to_end(bench: Bench, system: System) -> Iterator[Round]:
    """Send one 100 B record at a time, acks=1. Measures from send to poll, both by the Java client."""

    def once() -> Samples:
        size = bench.size
        with bench.topic(system, partitions=1) as topic:
            result = clients.end_to_end(bench.runtime, system.bootstrap, topic, size.latencies_warm_up, size.latencies)
        return {"end to end, p50": result.p50_ms, "end to end, p99": result.p99_ms, "end to end, p99.9": result.p999_ms}

    yield once
