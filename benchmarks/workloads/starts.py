"""Starts, on empty storage and with data, and the memory in use afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench, Measure, Round, Samples, admin_of, await_led, create_topic
from benchmarks.systems import System, broker_pid, memory_mb, remove, start
from benchmarks.workloads.partitions import write_to_each

TOPIC = "many"
ONE_BROKER = "1 broker"


def fresh(name: str) -> Measure:
    """Measure a start on empty storage, until each broker lists all brokers to a client. Then measure the idle memory
    of all processes. Formatting storage is not counted.
    """

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        def once() -> Samples:
            remove(system)
            system.prepare()
            start_ns = bench.clock.monotonic_ns()
            try:
                system.launch()
                system.await_usable()
                seconds = bench.seconds_since(start_ns)
                bench.pause(bench.size.settle_ms)
                memory = memory_mb(system).values()
            finally:
                system.stop()
            samples = {f"start, {name}": seconds, f"idle memory, {name}": sum(memory)}
            return {**samples, "idle memory, largest process": max(memory)} if name == ONE_BROKER else samples

        yield once

    return measure


start_one, start_three = fresh(ONE_BROKER), fresh("3 brokers")


@contextmanager
def restart(bench: Bench, system: System) -> Iterator[Round]:
    """Stop a broker with 1,000 partitions of one record each, and its controller. Start them again, until a client
    sees a leader for each partition.
    """

    def once() -> Samples:
        remove(system)
        partitions = bench.size.partitions
        try:
            start(system)
            create_topic(admin_of(system), TOPIC, partitions)
            write_to_each(system, TOPIC, partitions)
            start_ns = bench.clock.monotonic_ns()
            system.stop()
            stopped_s = bench.seconds_since(start_ns)
            system.prepare()
            start_ns = bench.clock.monotonic_ns()
            system.launch()
            system.await_usable()
            await_led(admin_of(system), TOPIC, partitions)
            started_s = bench.seconds_since(start_ns)
            bench.pause(bench.size.settle_ms)
            return {
                "1,000 partitions, stop": stopped_s,
                "1,000 partitions, start": started_s,
                "1,000 partitions, memory after start": sum(memory_mb(system).values()),
                "1,000 partitions, descriptors after start": len(
                    list(Path(f"/proc/{broker_pid(system)}/fd").iterdir())
                ),
            }
        finally:
            system.stop()

    yield once
