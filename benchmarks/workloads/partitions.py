"""A topic with a thousand partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from benchmarks.bench import Bench, Round, Samples
from benchmarks.load import clients
from benchmarks.systems import System

FLUSH_TIMEOUT_S = 120
KIB = 1024


@contextmanager
def many_partitions(bench: Bench, system: System) -> Iterator[Round]:
    """Create 1,000 partitions and wait for their leaders; write one record to each; then produce 1 KiB records to all
    of them with acks=1.

    Apache Kafka answers a creation, and lists leaders, before the logs exist; the first record waits for them. So the
    sum of the first two is what a user waits until all partitions are usable.
    """

    def once() -> Samples:
        size = bench.size
        start_ns = bench.clock.monotonic_ns()
        with bench.topic(system, size.partitions) as topic:
            created_s = bench.seconds_since(start_ns)
            start_ns = bench.clock.monotonic_ns()
            write_to_each(system, topic, size.partitions)
            written_s = bench.seconds_since(start_ns)
            produced = clients.produce(bench.runtime, system.bootstrap, topic, size.records_read, KIB, "acks=1")
        return {
            "1,000 partitions, created": created_s,
            "1,000 partitions, a record in each": written_s,
            "1,000 partitions, created and a record in each": created_s + written_s,
            "1,000 partitions, produce 1 KiB": produced.mb_per_s,
        }

    yield once


def write_to_each(system: System, topic: str, partitions: int) -> None:
    """Write one record to each partition with librdkafka. Raises AssertionError unless all are acknowledged."""
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 50})
    failed: list[object] = []
    for number in range(partitions):
        producer.produce(
            topic, b"v", partition=number, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    left = producer.flush(FLUSH_TIMEOUT_S)
    assert left == 0, f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S} s"
    assert not failed, failed[0]
