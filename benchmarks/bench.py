"""The definition of a measurement, and the tools that measurements share.

A measurement is a context manager over one system. It prepares everything and yields a function that measures one round
and returns samples by figure (`report/figures.py`). The rows of `workloads.MEASUREMENTS` name the kind of system, and
whether it already runs or the measurement starts it itself.
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
from benchmarks.load.load_generator import LoadGenerator, Loop
from benchmarks.systems import Kind, System
from tests.support.kafka.kafka_jars import KafkaRuntime
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

    records_1k: int  # produced by one client, warm-up included
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
    settle_ms: int  # before memory is read


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
    """The tools that measurements share: the clients' runtime, the load generator, topics and time."""

    runtime: KafkaRuntime
    generator: LoadGenerator
    clock: Clock
    size: Size
    _numbers: count[int] = field(default_factory=count)

    @contextmanager
    def topic(self, system: System, partitions: int = PARTITIONS, replicas: int = 1) -> Iterator[str]:
        """Create a topic for one measurement and delete it afterwards. All its partitions have leaders."""
        admin = admin_of(system)
        name = f"bench-{next(self._numbers)}"
        create_topic(admin, name, partitions, replicas)
        yield name
        delete_topic(admin, name)

    def seconds_since(self, start_ns: int) -> float:
        """Return the time since `start_ns` of the monotonic clock."""
        return (self.clock.monotonic_ns() - start_ns) / 1e9

    def pause(self, milliseconds: int) -> None:
        """Wait for a fixed time."""
        end_ms = self.clock.monotonic_ms() + milliseconds
        eventually("the pause ends", lambda: self.clock.monotonic_ms() >= end_ms, milliseconds + 30_000)


Measure = Callable[[Bench, System], AbstractContextManager[Round]]


@dataclass(frozen=True, slots=True)
class OwnLimit:
    """The most that the client of a measurement can do, with a broker that costs nothing."""

    most: float
    unit: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row of the table of measurements."""

    measure: Measure
    warm_by: str = ""  # the figure that must stop improving before rounds count; "": one warm-up round
    kind: Kind = field(default_factory=Kind)  # of the system
    starts_it: bool = False  # the measurement starts and stops the system itself
    is_ours_only: bool = False  # Apache Kafka is not measured
    has_peers: bool = False  # other brokers are measured, too (`load/peers.py`)
    own_limit: Callable[[Bench], OwnLimit] | None = None


def admin_of(system: System) -> AdminClient:
    """Return a client that creates and deletes topics."""
    return system.access.admin(system.bootstrap)


def create_topic(admin: AdminClient, name: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic and wait until the bootstrap broker knows a leader for each partition."""
    new = NewTopic(name, partitions, replicas)
    admin.create_topics([new], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    await_led(admin, name, partitions)


def await_led(admin: AdminClient, name: str, partitions: int) -> None:
    """Wait until this number of a topic's partitions have a leader."""
    eventually(f"{name} is led", lambda: _led(admin, name) == partitions, TOPIC_TIMEOUT_S * 1000)


def delete_topic(admin: AdminClient, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    eventually(f"{name} is gone", lambda: name not in _topics(admin), TOPIC_TIMEOUT_S * 1000)


def _led(admin: AdminClient, name: str) -> int:
    """Count a topic's partitions that have a leader."""
    topic = _topics(admin).get(name)
    return 0 if topic is None else sum(1 for partition in topic.partitions.values() if partition.leader >= 0)


def _topics(admin: AdminClient) -> dict[str, Any]:
    """List the topics; empty while no broker responds."""
    try:
        return dict(admin.list_topics(timeout=10).topics)
    except KafkaException:
        return {}
