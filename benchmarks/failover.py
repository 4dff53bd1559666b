"""`python -m benchmarks.failover`: how long a producer is interrupted when a leader goes, side by side.

Both systems are three brokers and a controller of its own, with the same server properties, and a topic of 100
partitions in three replicas. Kafka's own Java producer with its defaults (acks=all, idempotent, five requests in
flight) sends a record to every partition each 25 ms. Then a broker is killed (-9), or told to end (SIGTERM: a
controlled shutdown). The interruption is the longest time between two acknowledgements of a partition that the broker
led; where nothing happens it is the time between two turns and the way there and back (`none`). Then the broker
is started again, and the preferred leaders lead once all replicas are in sync. One system runs at a time.

How long a kill interrupts is above all how long the controller takes to believe it: `broker.session.timeout.ms` after
the last heartbeat. It is 3 s here, with a heartbeat each 200 ms, so that chance adds little.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import click
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import Node
from barnabas.common.clock import Clock, SystemClock
from benchmarks.clusters import Cluster, choose
from benchmarks.figures import OURS
from benchmarks.harness import directory, systems_option
from benchmarks.history import HISTORY, Run, append, console, versions
from benchmarks.report import missed, table
from benchmarks.systems import own_executable
from tests.support.kafka_jars import KafkaRuntime, kafka_runtime
from tests.support.numbered_producers import Load, NumberedProducers, Told
from tests.support.waiting import eventually

WARM_UP_ROUNDS = 1  # a JVM compiles as it goes
PARTITIONS = 100
TURN_MS = 25
SETTLE_MS = 1500
UNDISTURBED_MS = 3000
NS_PER_MS = 1_000_000
ADMIN_TIMEOUT_S = 30
WHOLE_TIMEOUT_MS = 120_000
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "200",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
WAYS = {"kill -9": signal.SIGKILL, "controlled shutdown": signal.SIGTERM}


@dataclass(slots=True)
class Acknowledgements:
    """When each partition's records were acknowledged."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    times: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # ns; guarded by: lock
    errors: list[str] = field(default_factory=list)  # guarded by: lock

    def hear(self, told: Sequence[Told]) -> None:
        """Take what the producer told."""
        with self.lock:
            for event in told:
                if event.kind == "A":
                    self.times[event.partition].append(event.at_ns)
                elif event.kind == "E":
                    self.errors.append(event.error)

    def latest(self, partitions: Sequence[int]) -> int:
        """The time up to which all of these partitions have had an acknowledgement; 0: not all have had one."""
        with self.lock:
            return min(self.times[partition][-1] if self.times[partition] else 0 for partition in partitions)

    def longest_gap_ms(self, partitions: Sequence[int], from_ns: int, to_ns: int) -> float:
        """The longest time between two acknowledgements of one of these partitions that touches [from, to]."""
        longest = 0
        with self.lock:
            for partition in partitions:
                times = self.times[partition]
                for before, after in pairwise(times):
                    if after >= from_ns and before <= to_ns:
                        longest = max(longest, after - before)
        return longest / NS_PER_MS


@dataclass(slots=True)
class Failover:
    """The measurement of one cluster that runs."""

    cluster: Cluster
    runtime: KafkaRuntime
    clock: Clock
    topic: str = "failover"
    heard: Acknowledgements = field(default_factory=Acknowledgements)
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    def create_topic(self) -> None:
        """The topic, with leaders spread evenly."""
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)])[self.topic].result(ADMIN_TIMEOUT_S)
        eventually("whole ISRs", self._is_whole, WHOLE_TIMEOUT_MS)

    def producer(self) -> NumberedProducers:
        """The producer; a context manager."""
        load = Load(PARTITIONS, turn_ms=TURN_MS)
        return NumberedProducers(self.runtime, self.cluster.bootstrap, self.topic, load, self.heard.hear)

    def undisturbed(self) -> float:
        """The longest gap when nothing happens."""
        everything = range(PARTITIONS)
        eventually("every partition is acknowledged", lambda: self.heard.latest(everything) > 0, WHOLE_TIMEOUT_MS)
        self._pause(SETTLE_MS)
        start_ns = self.clock.monotonic_ns()
        self._pause(UNDISTURBED_MS)
        return self.heard.longest_gap_ms(everything, start_ns, self.clock.monotonic_ns())

    def interrupted(self, way: signal.Signals, node: Node) -> float:
        """End a broker and start it again; returns the longest gap of the partitions that it led."""
        led = [partition for partition, leader in self._leaders().items() if leader == node.node_id]
        assert led, f"{node.name} leads nothing"
        start_ns = self.clock.monotonic_ns()
        self.cluster.signal_node(node, way)
        eventually("the process is gone", lambda: not node.is_running)
        gone_ns = self.clock.monotonic_ns()
        eventually("acknowledged again", lambda: self.heard.latest(led) > gone_ns, WHOLE_TIMEOUT_MS)
        self._pause(SETTLE_MS)
        end_ns = self.clock.monotonic_ns()
        gap_ms = self.heard.longest_gap_ms(led, start_ns, end_ns)
        self._bring_back(node)
        assert not self.heard.errors, f"the producer gave up: {self.heard.errors[0]}"
        return gap_ms

    def _bring_back(self, node: Node) -> None:
        self.cluster.start_node(node)
        eventually("whole ISRs", self._is_whole, WHOLE_TIMEOUT_MS)
        partitions = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        self._admin.elect_leaders(ElectionType.PREFERRED, partitions).result(ADMIN_TIMEOUT_S)
        eventually("preferred leaders", lambda: set(self._leaders().values()) == {0, 1, 2}, WHOLE_TIMEOUT_MS)
        self._pause(SETTLE_MS)

    def _leaders(self) -> dict[int, int]:
        return {partition.id: partition.leader.id for partition in self._described()}

    def _is_whole(self) -> bool:
        described = self._described()
        return len(described) == PARTITIONS and all(len(partition.isr) == 3 for partition in described)

    def _described(self) -> list[Any]:
        """The partitions; empty while the broker that is asked does not know the topic or is on its way out."""
        answer = self._admin.describe_topics(TopicCollection([self.topic]))[self.topic]
        try:
            return list(answer.result(ADMIN_TIMEOUT_S).partitions)
        except KafkaException:
            return []

    def _pause(self, milliseconds: int) -> None:
        end_ms = self.clock.monotonic_ms() + milliseconds
        eventually("time goes by", lambda: self.clock.monotonic_ms() >= end_ms, milliseconds + 1000)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How often each broker end is measured.")
@systems_option
@click.option("--only", type=click.Choice(list(WAYS)), multiple=True, help="Leave out the others.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(rounds: int, systems: str, only: tuple[str, ...], check: bool) -> None:
    """Compare how long Barnabas and Apache Kafka interrupt a producer."""
    told = console(stderr=True)
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with directory("failover") as where:
        runtime = kafka_runtime()
        for name, cluster in choose(systems, runtime, where, SETTINGS).items():
            told.print(f"starting {name}")
            with ExitStack() as stack:
                cluster.start()
                stack.callback(cluster.stop)
                for figure, value in _measure(cluster, runtime, rounds, only or tuple(WAYS)):
                    told.print(f"[bold]{name}[/bold] {figure}: {value:,.0f} ms")
                    samples[figure][name].append(value)
    console().print(table(samples))
    append(Run.now(SystemClock(), rounds, versions({OURS: own_executable()}), {}, samples), HISTORY)
    if check and missed(samples):
        sys.exit("a target was missed")


def _measure(cluster: Cluster, runtime: KafkaRuntime, rounds: int, ways: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Figures and their samples, as they come; what a first round that warms everything up tells does not count."""
    failover = Failover(cluster, runtime, SystemClock())
    failover.create_topic()
    with failover.producer() as producer:
        for number in range(-WARM_UP_ROUNDS, rounds):
            node = cluster.brokers[number % len(cluster.brokers)]
            told = {"interruption: none": failover.undisturbed()}
            told |= {f"interruption: {way}": failover.interrupted(WAYS[way], node) for way in ways}
            if number >= 0:
                yield from told.items()
        producer.stop()


if __name__ == "__main__":
    main()
