"""`python -m benchmarks.failover`: how long a producer is interrupted when a leader stops, in both systems.

Each system has three brokers and a separate controller, the same server properties, and a topic of 100 partitions with
three replicas. Kafka's own Java producer with its defaults (acks=all, idempotent, five requests in flight) sends a
record to every partition each 25 ms. Then a broker is killed (SIGKILL) or shut down (SIGTERM: a controlled shutdown).
The interruption is the longest time between two acknowledgements of a partition that the broker led. Without a fault
(`none`) it is one turn plus a round trip. Then the broker is started again, and the preferred leaders are elected once
all replicas are in sync. One system runs at a time.

After a kill, the longest part is the controller's detection: `broker.session.timeout.ms` after the last heartbeat. It
is 3 s here. The heartbeat interval of 200 ms keeps the random part small.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import click
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import LocalCluster, Node
from barnabas.common.clock import NS_PER_MS, Clock, SystemClock
from benchmarks.harness import directory, systems_option
from benchmarks.report.figures import OURS, THEIRS
from benchmarks.report.runs import HISTORY, Run, append, versions
from benchmarks.report.table import console, missed, table
from benchmarks.systems import own_executable
from tests.support.kafka.apache_cluster import ApacheCluster
from tests.support.kafka.kafka_jars import KafkaRuntime, kafka_runtime
from tests.support.kafka.numbered_producers import Load, NumberedProducers, RecordEvent
from tests.support.waiting import eventually

WARM_UP_ROUNDS = 1  # a JVM compiles while it runs
PARTITIONS = 100
TURN_MS = 25
SETTLE_MS = 1500
UNDISTURBED_MS = 3000
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


class Cluster(Protocol):
    """Three brokers and a controller of either system, with the same methods."""

    @property
    def brokers(self) -> list[Node]:
        """The brokers' processes."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, for a client's bootstrap.servers."""

    def start(self) -> None:
        """Start all nodes and wait until clients can use them."""

    def stop(self) -> None:
        """Stop all nodes."""

    def start_node(self, node: Node) -> None:
        """Start one node."""

    def signal_node(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to one node."""


@dataclass(slots=True)
class Acknowledgements:
    """The times at which each partition's records were acknowledged."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    times: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # ns; guarded by: lock
    errors: list[str] = field(default_factory=list)  # guarded by: lock

    def add(self, events: Sequence[RecordEvent]) -> None:
        """Add a producer's events."""
        with self.lock:
            for event in events:
                if event.kind == "A":
                    self.times[event.partition].append(event.at_ns)
                elif event.kind == "E":
                    self.errors.append(event.error)

    def latest(self, partitions: Sequence[int]) -> int:
        """Return the earliest last acknowledgement of these partitions; 0 if one has none yet."""
        with self.lock:
            return min(self.times[partition][-1] if self.times[partition] else 0 for partition in partitions)

    def longest_gap_ms(self, partitions: Sequence[int], from_ns: int, to_ns: int) -> float:
        """Return the longest time between two acknowledgements of a partition, of those that overlap [from, to]."""
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
    """The measurement on one running cluster."""

    cluster: Cluster
    runtime: KafkaRuntime
    clock: Clock
    topic: str = "failover"
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    def create_topic(self) -> None:
        """Create the topic and wait until every replica is in sync."""
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)])[self.topic].result(ADMIN_TIMEOUT_S)
        eventually("all replicas are in sync", self._is_whole, WHOLE_TIMEOUT_MS)

    def producer(self) -> NumberedProducers:
        """Return the producer, as a context manager."""
        load = Load(PARTITIONS, turn_ms=TURN_MS)
        return NumberedProducers(self.runtime, self.cluster.bootstrap, self.topic, load, self.acknowledgements.add)

    def undisturbed(self) -> float:
        """Return the longest gap without a fault, in milliseconds."""
        everything = range(PARTITIONS)
        eventually(
            "every partition is acknowledged", lambda: self.acknowledgements.latest(everything) > 0, WHOLE_TIMEOUT_MS
        )
        self._pause(SETTLE_MS)
        start_ns = self.clock.monotonic_ns()
        self._pause(UNDISTURBED_MS)
        return self.acknowledgements.longest_gap_ms(everything, start_ns, self.clock.monotonic_ns())

    def interrupted(self, way: signal.Signals, node: Node) -> float:
        """Stop a broker and start it again. Returns the longest gap of the partitions that it led, in milliseconds."""
        led = [partition for partition, leader in self._leaders().items() if leader == node.node_id]
        assert led, f"{node.name} leads nothing"
        start_ns = self.clock.monotonic_ns()
        self.cluster.signal_node(node, way)
        eventually("the process is gone", lambda: not node.is_running)
        gone_ns = self.clock.monotonic_ns()
        eventually("acknowledged again", lambda: self.acknowledgements.latest(led) > gone_ns, WHOLE_TIMEOUT_MS)
        self._pause(SETTLE_MS)
        end_ns = self.clock.monotonic_ns()
        gap_ms = self.acknowledgements.longest_gap_ms(led, start_ns, end_ns)
        self._bring_back(node)
        assert not self.acknowledgements.errors, f"the producer gave up: {self.acknowledgements.errors[0]}"
        return gap_ms

    def _bring_back(self, node: Node) -> None:
        self.cluster.start_node(node)
        eventually("all replicas are in sync", self._is_whole, WHOLE_TIMEOUT_MS)
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
        """Describe the partitions; empty while the responding broker does not know the topic or shuts down."""
        answer = self._admin.describe_topics(TopicCollection([self.topic]))[self.topic]
        try:
            return list(answer.result(ADMIN_TIMEOUT_S).partitions)
        except KafkaException:
            return []

    def _pause(self, milliseconds: int) -> None:
        end_ms = self.clock.monotonic_ms() + milliseconds
        eventually("the pause ends", lambda: self.clock.monotonic_ms() >= end_ms, milliseconds + 1000)


def choose(systems: str, runtime: KafkaRuntime, directory: Path, settings: Mapping[str, str]) -> dict[str, Cluster]:
    """Return the clusters that `systems` ("both", "barnabas", "apache") selects, by name. They are not started."""
    chosen: dict[str, Cluster] = {}
    if systems in ("both", "apache"):
        chosen[THEIRS] = ApacheCluster(runtime, directory / "apache", settings)
    if systems in ("both", "barnabas"):
        chosen[OURS] = LocalCluster(directory / "barnabas", first_port=0, config=settings)
    return chosen


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Counted rounds of each fault.")
@systems_option
@click.option("--only", type=click.Choice(list(WAYS)), multiple=True, help="Run only this fault.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(rounds: int, systems: str, only: tuple[str, ...], check: bool) -> None:
    """Compare how long Barnabas and Apache Kafka interrupt a producer."""
    progress = console(stderr=True)
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with directory("failover") as where:
        runtime = kafka_runtime()
        for name, cluster in choose(systems, runtime, where, SETTINGS).items():
            progress.print(f"starting {name}")
            with ExitStack() as stack:
                cluster.start()
                stack.callback(cluster.stop)
                for figure, value in _measure(cluster, runtime, rounds, only or tuple(WAYS)):
                    progress.print(f"[bold]{name}[/bold] {figure}: {value:,.0f} ms")
                    samples[figure][name].append(value)
    console().print(table(samples))
    append(Run.now(SystemClock(), rounds, versions({OURS: own_executable()}), {}, samples), HISTORY)
    if check and missed(samples):
        sys.exit("a target was missed")


def _measure(cluster: Cluster, runtime: KafkaRuntime, rounds: int, ways: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield figures and their samples as they are measured. Warm-up rounds are not yielded."""
    failover = Failover(cluster, runtime, SystemClock())
    failover.create_topic()
    with failover.producer() as producer:
        for number in range(-WARM_UP_ROUNDS, rounds):
            node = cluster.brokers[number % len(cluster.brokers)]
            samples = {"interruption: none": failover.undisturbed()}
            samples |= {f"interruption: {way}": failover.interrupted(WAYS[way], node) for way in ways}
            if number >= 0:
                yield from samples.items()
        producer.stop()


if __name__ == "__main__":
    main()
