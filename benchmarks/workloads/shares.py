"""Share consumers (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System, memory_mb

MEMBERS = (1, 8)
RECORD_BYTES = 1024
PASSES = 2  # the first one warms the client up


@contextmanager
def share_consumers(bench: Bench, system: System) -> Iterator[Round]:
    """Measure how fast a share group of one and of eight members reads 1 KiB records of six partitions, each record
    acquired, delivered and accepted, which the broker writes to __share_group_state. Then measure the memory of all
    processes.
    """
    count = bench.size.records_read
    with bench.topic(system) as topic:
        clients.produce(bench.runtime, system.bootstrap, topic, count, RECORD_BYTES)

        def once() -> Samples:
            samples: Samples = {}
            for members in MEMBERS:
                name = f"{members} share consumer{'s' if members > 1 else ''}"
                result = clients.read_shared(bench.runtime, system.bootstrap, topic, members, count, PASSES)
                samples[f"{name}, consume"] = result.mb_per_s
            return {**samples, "share consumers, memory": sum(memory_mb(system).values())}

        yield once
