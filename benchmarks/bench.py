"""What measurements share, and what a measurement is.

A measurement is a context manager over one system: it gets everything ready and gives a function that measures once, a
round, and returns samples by the names of their figures (`figures.py`). The rows of `workloads.MEASUREMENTS` say with
how many brokers, and whether these run before it or it starts them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import Clock
from benchmarks.load_generator import LoadGenerator, Loop
from benchmarks.systems import System
from tests.support.kafka_jars import KafkaRuntime
from tests.support.waiting import eventually

PARTITIONS = 6
TOPIC_TIMEOUT_S = 120
MANY = Loop(connections=32, in_flight=2)
ONE = Loop(connections=1, in_flight=1)

Samples = dict[str, float]
Round = Callable[[], Samples]


@dataclass(frozen=True, slots=True)
class Size:
    """How long the measurements take."""

    records_1k: int  # produced by one client; what it sends first is not counted
    records_100: int
    records_read: int  # of 1 KiB, by each of four readers and by each group
    records_replicated: int
    records_first: int  # of 1 KiB, to a broker that has just started
    records_first_replicated: int
    latencies: int
    latencies_warm_up: int
    loop_ms: int
    loop_warm_up_ms: int
    partitions: int
    idle: tuple[int, int]  # connections
    groups: int  # of consumers
    producers: tuple[int, ...]  # with transactions, at once
    settle_ms: int  # before memory is looked at


FULL = Size(
    records_1k=1_600_000,
    records_100=8_000_000,
    records_read=300_000,
    records_replicated=500_000,
    records_first=1_000_000,
    records_first_replicated=300_000,
    latencies=30_000,
    latencies_warm_up=30_000,
    loop_ms=5000,
    loop_warm_up_ms=1000,
    partitions=1000,
    idle=(5_000, 20_000),
    groups=10,
    producers=(1, 10, 50),
    settle_ms=2000,
)
QUICK = replace(
    FULL,
    records_1k=150_000,
    records_100=500_000,
    records_read=50_000,
    records_replicated=50_000,
    records_first=150_000,
    records_first_replicated=50_000,
    latencies=2_000,
    latencies_warm_up=1_000,
    loop_ms=2000,
    loop_warm_up_ms=500,
    settle_ms=500,
)


@dataclass(slots=True)
class Bench:
    """What the measurements share."""

    runtime: KafkaRuntime
    generator: LoadGenerator
    clock: Clock
    size: Size
    _numbers: count[int] = field(default_factory=count)

    @contextmanager
    def topic(self, system: System, partitions: int = PARTITIONS, replicas: int = 1) -> Iterator[str]:
        """A topic for one measurement, deleted afterwards; all its partitions are led."""
        admin = admin_of(system)
        name = f"bench-{next(self._numbers)}"
        create_topic(admin, name, partitions, replicas)
        yield name
        delete_topic(admin, name)

    def seconds_since(self, start_ns: int) -> float:
        """How long ago that was."""
        return (self.clock.monotonic_ns() - start_ns) / 1e9

    def pause(self, milliseconds: int) -> None:
        """Let time go by."""
        end_ms = self.clock.monotonic_ms() + milliseconds
        eventually("time goes by", lambda: self.clock.monotonic_ms() >= end_ms, milliseconds + 30_000)


Measure = Callable[[Bench, System], AbstractContextManager[Round]]


@dataclass(frozen=True, slots=True)
class OwnLimit:
    """What the client of a measurement could do at most, whatever the broker did."""

    most: float
    unit: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row of the table of measurements."""

    measure: Measure
    warm_by: str = ""  # the figure that must have stopped getting better before rounds count; "": after one round
    brokers: int = 1
    starts_it: bool = False  # the measurement starts the system, and stops it
    own_limit: Callable[[Bench], OwnLimit] | None = None


def admin_of(system: System) -> AdminClient:
    """A client that creates and deletes topics."""
    return AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})


def create_topic(admin: AdminClient, name: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic and wait until all its partitions are led, by whom the broker that is asked knows."""
    new = NewTopic(name, partitions, replicas)
    admin.create_topics([new], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    await_led(admin, name, partitions)


def await_led(admin: AdminClient, name: str, partitions: int) -> None:
    """Wait until so many partitions of a topic have a leader."""
    eventually(f"{name} is led", lambda: _led(admin, name) == partitions, TOPIC_TIMEOUT_S * 1000)


def delete_topic(admin: AdminClient, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    eventually(f"{name} is gone", lambda: name not in _topics(admin), TOPIC_TIMEOUT_S * 1000)


def _led(admin: AdminClient, name: str) -> int:
    """How many partitions of a topic have a leader."""
    topic = _topics(admin).get(name)
    return 0 if topic is None else sum(1 for partition in topic.partitions.values() if partition.leader >= 0)


def _topics(admin: AdminClient) -> dict[str, Any]:
    """The topics that there are; none while nobody answers."""
    try:
        return dict(admin.list_topics(timeout=10).topics)
    except KafkaException:
        return {}
