"""Many consumers in several groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, Measure, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System

MEMBERS = 5
RECORD_BYTES = 1024
PASSES = 2  # the first one warms the client up
SHARE = 3  # a group reads a third of the records that each of four readers reads


def groups(suffix: str, protocol: str) -> Measure:
    """Measure ten groups of five members that subscribe to the same topic at once: the time until all groups have
    assigned its six partitions, and the rate at which they then read.
    """

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        name = f"50 consumers in 10 groups{suffix}"
        count = bench.size.records_read // SHARE
        settings = {"group.protocol": protocol}
        with bench.topic(system) as topic:
            clients.produce(bench.runtime, system.bootstrap, topic, count, RECORD_BYTES)

            def once() -> Samples:
                result = clients.read_in_groups(
                    bench.runtime, system.bootstrap, topic, bench.size.groups, MEMBERS, count, PASSES, settings
                )
                return {f"{name}, assigned": result.assigned_s, f"{name}, consume": result.mb_per_s}

            yield once

    return measure


classic, kip_848 = groups("", "classic"), groups(", KIP-848", "consumer")
