"""Many consumers in groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import clients
from benchmarks.bench import Bench, Measure, Round, Samples
from benchmarks.systems import System

MEMBERS = 5
RECORD_BYTES = 1024
PASSES = 2  # the first one warms the client up
SHARE = 3  # a group reads this part of what each of four readers reads


def groups(suffix: str, protocol: str) -> Measure:
    """Ten groups of five members subscribe to the same topic at once: how long until all have dealt out its six
    partitions, and how fast they then read it.
    """

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        name = f"50 consumers in 10 groups{suffix}"
        count = bench.size.records_read // SHARE
        settings = {"group.protocol": protocol}
        with bench.topic(system) as topic:
            clients.produce(bench.runtime, system.bootstrap, topic, count, RECORD_BYTES)

            def once() -> Samples:
                told = clients.read_in_groups(
                    bench.runtime, system.bootstrap, topic, bench.size.groups, MEMBERS, count, PASSES, settings
                )
                return {f"{name}, assigned": told.assigned_s, f"{name}, consume": told.mb_per_s}

            yield once

    return measure


classic, kip_848 = groups("", "classic"), groups(", KIP-848", "consumer")
