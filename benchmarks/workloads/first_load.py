"""The load of a cluster's first minute, as in a test that starts a cluster.

Neither brokers nor clients are warmed up, and all records count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.bench import PARTITIONS, Bench, Measure, Round, Samples, admin_of, create_topic
from benchmarks.systems import System, memory_mb, remove, running
from benchmarks.workloads.throughput import KIB, REPLICAS, consume, produce

NAME, SECURE_NAME = "first load", "first secure load"
TOPIC = "bench-first"


def one_broker(name: str) -> Measure:
    """Start on empty storage, produce 1 KiB records with acks=1 into 6 partitions, and read all with one consumer.
    Then measure the memory in use.
    """

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        def load() -> Samples:
            count = bench.size.records_first
            create_topic(admin_of(system), TOPIC, PARTITIONS)
            samples = produce(bench, system, f"{name}, produce 1 KiB", TOPIC, count, KIB, "acks=1", warm_up_share=0)
            samples |= consume(bench, system, f"{name}, consume 1 KiB", TOPIC, 1, count, passes=1)
            return {**samples, f"{name}, memory": sum(memory_mb(system).values())}

        yield lambda: _from_nothing(system, load)

    return measure


@contextmanager
def three_brokers(bench: Bench, system: System) -> Iterator[Round]:
    """Start on empty storage, then produce 1 KiB records as `throughput.produce_to_all` does."""

    def load() -> Samples:
        create_topic(admin_of(system), TOPIC, PARTITIONS, REPLICAS)
        count = bench.size.records_first_replicated
        return produce(bench, system, f"{NAME}, acks=all, RF 3", TOPIC, count, KIB, warm_up_share=0)

    yield lambda: _from_nothing(system, load)


def _from_nothing(system: System, load: Callable[[], Samples]) -> Samples:
    """Start the system on empty storage, load it and stop it."""
    remove(system)
    with running(system):
        return load()
