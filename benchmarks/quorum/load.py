"""A producer with acks=all and a consumer that both run while controllers are killed, and their longest gaps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from barnabas.common.clock import NS_PER_MS, Clock
from benchmarks.failover import Acknowledgements
from tests.support.history import Worker
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.numbered_producers import Load, NumberedProducers
from tests.support.waiting import eventually

TOPIC: Final = "load"
PARTITIONS: Final = 6
TURN_MS: Final = 25
START_TIMEOUT_MS: Final = 60_000
POLL_S: Final = 0.2


@dataclass(slots=True)
class Arrivals:
    """The times at which the consumer got records, whatever their partition."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    times: list[int] = field(default_factory=list)  # ns; guarded by: lock

    def add(self, at_ns: int) -> None:
        """Note a record."""
        with self.lock:
            self.times.append(at_ns)

    def longest_gap_ms(self, from_ns: int, to_ns: int) -> float:
        """Return the longest time without a record between two times."""
        with self.lock:
            inside = [at for at in self.times if from_ns <= at <= to_ns]
        edges = [from_ns, *inside, to_ns]
        return max(after - before for before, after in pairwise(edges)) / NS_PER_MS


class Reader(Worker):
    """Consumes the topic from its end on."""

    def __init__(self, bootstrap: str, clock: Clock, note: Callable[[int], None]) -> None:
        super().__init__("quorum-reader")
        self._clock = clock
        self._note = note
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(TOPIC, number, OFFSET_END) for number in range(PARTITIONS)])

    def _turn(self) -> None:
        message = self._consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            self._note(self._clock.monotonic_ns())

    def _close(self) -> None:
        self._consumer.close()


@dataclass(slots=True)
class Clients:
    """The two clients of one cluster."""

    clock: Clock
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    arrivals: Arrivals = field(default_factory=Arrivals)

    @contextmanager
    def running(self, runtime: KafkaRuntime, bootstrap: str) -> Iterator[None]:
        """Run both, once each partition is acknowledged."""
        load = Load(PARTITIONS, turn_ms=TURN_MS)
        reader = Reader(bootstrap, self.clock, self.arrivals.add)
        producers = NumberedProducers(runtime, bootstrap, TOPIC, load, self.acknowledgements.add)
        with reader, producers:
            everything = range(PARTITIONS)
            eventually("records", lambda: self.acknowledgements.latest(everything) > 0, START_TIMEOUT_MS)
            eventually("records are read", lambda: bool(self.arrivals.times), START_TIMEOUT_MS)
            yield
            producers.stop()
            reader.stop()
        assert not self.acknowledgements.errors, f"the producer gave up: {self.acknowledgements.errors[0]}"

    def gaps_ms(self, from_ns: int, to_ns: int) -> tuple[float, float]:
        """Return the longest gap of any partition for the producer, and the consumer's, between two times."""
        produced = self.acknowledgements.longest_gap_ms(range(PARTITIONS), from_ns, to_ns)
        return produced, self.arrivals.longest_gap_ms(from_ns, to_ns)
