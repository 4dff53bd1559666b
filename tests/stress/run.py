"""One stress run: a cluster, clients, faults; then recovery, and the checks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from operator import ge
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from tests.stress.administrator import Administrator
from tests.stress.checks.history import Content, summary
from tests.stress.checks.replicas import differences, read_log
from tests.stress.clients import READERS_GROUP, SharedHistory, StressReader, Watcher, describe
from tests.stress.cluster import (
    BROKERS,
    JAVA,
    LIBRDKAFKA,
    PARTITIONS,
    READER,
    TOPIC,
    TOPIC_CONFIG,
    WATCHER,
    StressCluster,
    StressTarget,
)
from tests.stress.faults.chooser import Faults
from tests.stress.faults.fault import Fault
from tests.stress.producers import JavaProducers, LibrdkafkaProducer
from tests.support.history import Worker
from tests.support.kafka.clients import list_offsets
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.security_faults import SecurityFaults
from tests.support.waiting import eventually

#: What the users of a secured cluster need.
RIGHTS = (
    f"{LIBRDKAFKA} write topic:{TOPIC}",
    f"{JAVA} write topic:{TOPIC}",
    f"{READER} read topic:{TOPIC}",
    f"{READER} read group:{READERS_GROUP}",
    f"{WATCHER} read topic:{TOPIC}",
)
PROGRESS_TIMEOUT_MS = 60_000
SLOW_PROGRESS_MS = 5_000
HEAL_TIMEOUT_MS = 60_000
DECISIONS_TIMEOUT_MS = 20_000
SECOND_FAULT_SHARE = 0.3
DRAWS_MAX = 100
BREATHER_ACKNOWLEDGEMENTS_MAX = 300
ERRORS_SHOWN = 5
BUG_MARKS = ("Traceback", "AssertionError", "CRITICAL")


class StressError(AssertionError):
    """The cluster broke a rule."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The producers. Java's have several requests in flight; producers.py says why librdkafka's have one by default."""

    java_producers: int = 2
    librdkafka_producers: int = 1
    librdkafka_in_flight: int = 1


class StressRun:
    """The parts of a run. Owner: the thread that calls `execute`."""

    def __init__(
        self,
        cluster: StressTarget,
        runtime: KafkaRuntime,
        workload: Workload,
        seed: int,
        say: Callable[[str], None],
        only: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._say = say
        self._clock = SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._pause = threading.Event()  # never set: waits by the real clock
        self._shared = SharedHistory()
        access = cluster.access
        self._create_topic()
        access.allow(cluster.brokers, *RIGHTS)
        self._producers: list[JavaProducers | LibrdkafkaProducer] = [
            LibrdkafkaProducer(access.librdkafka(LIBRDKAFKA), self._shared, n, seed + n, workload.librdkafka_in_flight)
            for n in range(workload.librdkafka_producers)
        ]
        if workload.java_producers:
            first = workload.librdkafka_producers
            self._producers.append(
                JavaProducers(runtime, access.java(JAVA), self._shared, first, workload.java_producers, seed + first)
            )
        self._readers = [
            StressReader(access.librdkafka(READER), self._shared, f"{isolation} reader", isolation)
            for isolation in ("read_uncommitted", "read_committed")
        ]
        addresses = {node.node_id: (node.host, node.port) for node in cluster.brokers}
        self._watcher = Watcher(addresses, self._shared, access.connect(WATCHER))
        self._administrator = self._administrator_of(cluster)
        self._security = self._security_faults()
        self._faults = Faults(cluster, self._random, lambda partition: self._leader_of(partition), only, self._security)
        self._active: list[Fault] = []
        self._failures: list[str] = []

    def execute(self, faults: int) -> None:
        """Cause this many faults under load, heal the cluster, and check; raises AssertionError."""
        with ExitStack() as stack:
            for worker in (self._watcher, *self._readers, *self._producers, *self._administrator):
                stack.enter_context(worker)
            self._await_progress(1)
            for number in range(faults):
                if self._has_trouble():
                    self._log("a client failed: no more faults")
                    break
                self._one_fault(number)
            self._heal()
            self._await_whole_isr()
            self._stop((*self._producers, *self._administrator))
            ends = self._ends()
            self._await_readers(ends)
            self._stop((self._watcher, *self._readers))
        self._check(ends)

    # Faults

    def _one_fault(self, number: int) -> None:
        fault = next(filter(None, (self._faults.choose(self._active) for _ in range(DRAWS_MAX))), None)
        while fault is None:  # with --only, perhaps no kind can overlap with the active fault
            self._heal()
            fault = self._faults.choose(self._active)
        hold_ms = self._faults.hold_ms()
        self._log(f"fault {number}: {fault.description} for {hold_ms} ms")
        self._active.append(fault)
        fault.begin()
        is_alone = len(self._active) == 1
        self._pause.wait(hold_ms / 1000)
        self._check_processes()
        if is_alone and not fault.is_exclusive and self._random.random() < SECOND_FAULT_SHARE:
            return  # the next fault overlaps with this one
        self._heal()
        self._await_progress(self._random.randint(1, BREATHER_ACKNOWLEDGEMENTS_MAX))

    def _heal(self) -> None:
        self._random.shuffle(self._active)
        while self._active:
            self._active.pop().end()

    def _leader_of(self, partition: int) -> int:
        leader = self._watcher.leaders.get(partition, (-1, -1))[0]
        return leader if leader >= 0 else partition % BROKERS

    def _has_trouble(self) -> bool:
        """Whether a client has failed: no more faults then; heal and report the problem."""
        workers = (*self._producers, *self._readers, self._watcher, *self._administrator)
        return any(producer.errors for producer in self._producers) or any(worker.has_failed for worker in workers)

    def _check_processes(self) -> None:
        """Raise StressError if a process has ended that no active fault has ended."""
        impaired = {thing for fault in self._active for thing in fault.impaired}
        for node in self._cluster.nodes.values():
            if node.node_id not in impaired and not node.is_running:
                raise StressError(f"{node.name} ended unexpectedly: {node.log_tail(20)}")

    # Waiting

    def _await_progress(self, count: int) -> None:
        """Wait until every producer has this many more acknowledgements."""
        goals = [done + count for done in self._progress()]

        def is_reached() -> bool:
            return self._has_trouble() or all(map(ge, self._progress(), goals))

        before_ms = self._clock.monotonic_ms()
        try:
            eventually(f"{count} more acknowledgements of each producer", is_reached, PROGRESS_TIMEOUT_MS)
        except AssertionError as error:
            raise StressError(f"{error}: they have {self._progress()}, and should have {goals}") from error
        waited_ms = self._clock.monotonic_ms() - before_ms
        if waited_ms > SLOW_PROGRESS_MS:
            self._log(f"        {count} acknowledgements of each producer took {waited_ms} ms")

    def _progress(self) -> list[int]:
        """The acknowledgements of every producer so far."""
        return [acknowledged for worker in self._producers for acknowledged in worker.progress()]

    def _await_whole_isr(self) -> None:
        """Wait until every broker reports all replicas of every partition as in sync."""
        for node in self._cluster.brokers:
            with self._cluster.access.connect()(node.host, node.port, timeout_ms=2_000) as connection:
                eventually(f"whole ISRs, says {node.name}", lambda c=connection: is_whole(c), HEAL_TIMEOUT_MS)  # type: ignore[misc]

    def _ends(self) -> dict[int, int]:
        """The end of each partition, once all its replicas have the same length."""

        def lengths() -> dict[int, list[int]]:
            return {
                partition: [
                    sum(path.stat().st_size for path in directory.glob("*.log"))
                    for directory in self._directories(partition).values()
                ]
                for partition in range(PARTITIONS)
            }

        eventually("replicas of the same length", lambda: all(len(set(sizes)) == 1 for sizes in lengths().values()))
        admin = AdminClient(self._cluster.access.librdkafka())
        latest = {TopicPartition(TOPIC, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        return {tp.partition: offset for tp, offset in list_offsets(admin, latest).items()}

    def _await_readers(self, ends: Mapping[int, int]) -> None:
        for reader in self._readers:
            if not reader.has_failed:
                self._await_reader(reader, ends)

    def _await_reader(self, reader: StressReader, ends: Mapping[int, int]) -> None:
        wanted = [ends[partition] for partition in range(PARTITIONS)]
        try:
            eventually(f"the {reader.name} is at {wanted}", lambda: reader.positions == wanted, HEAL_TIMEOUT_MS)
        except AssertionError as error:
            raise StressError(f"{error}: it is at {reader.positions}") from error

    def _stop(self, workers: Iterable[Worker]) -> None:
        """Stop workers; their failures are part of the result."""
        for worker in workers:
            try:
                worker.stop()
            except (AssertionError, KafkaException) as failure:
                self._failures.append(f"a client failed: {failure}")

    # Checks

    def _check(self, ends: Mapping[int, int]) -> None:
        history = self._shared.history
        counts = f"{history.sent_count()} sent, {history.acknowledged_count()} acknowledged"
        if history.inferred_count():
            counts += f", {history.inferred_count()} taken for acknowledged by their client"
        self._log(f"checking: {counts}, {self._watcher.answers} watermarks reported by leaders")
        errors = [error for worker in self._producers for error in worker.errors]
        problems = errors[:ERRORS_SHOWN] + [f"{len(errors)} errors of producers in all"] if errors else []
        problems += self._failures
        problems += self._replica_differences(ends)
        found = summary(history.check(self._read_afresh(ends)))
        problems += [found] if found else []
        problems += self._bugs_in_logs()
        problems += self._decisions_not_kept()
        if self._security is not None:
            self._log(f"{self._security.refusals} requests and logins were refused as they must be")
            problems += self._security.problems()
        if problems:
            raise StressError("\n".join(problems))

    def _read_afresh(self, ends: Mapping[int, int]) -> dict[int, Content]:
        with StressReader(
            self._cluster.access.librdkafka(READER), self._shared, "final reader", "read_committed", keeps_content=True
        ) as reader:
            self._await_reader(reader, ends)
            reader.stop()
        return dict(enumerate(reader.content))

    def _replica_differences(self, ends: Mapping[int, int]) -> list[str]:
        return [
            f"partition {partition}: {difference}"
            for partition in range(PARTITIONS)
            for difference in differences(
                {name: read_log(directory) for name, directory in self._directories(partition).items()},
                ends[partition],
            )
        ]

    def _decisions_not_kept(self) -> list[str]:
        """What the controllers did not keep; brokers may need a moment until they have everything."""
        found: list[str] = []

        def are_kept(administrator: Administrator) -> bool:
            found[:] = administrator.problems()
            return not found

        for administrator in self._administrator:
            decisions = administrator.decisions
            self._log(f"checking: {decisions.acknowledged} decisions, {decisions.producer_ids} producer ids")
            with suppress(AssertionError):
                eventually("brokers have all decisions", lambda: are_kept(administrator), DECISIONS_TIMEOUT_MS)  # noqa: B023
        return found

    def _directories(self, partition: int) -> dict[str, Path]:
        return {node.name: self._cluster.partition_directory(node.node_id, partition) for node in self._cluster.brokers}

    def _bugs_in_logs(self) -> list[str]:
        found = []
        for node in self._cluster.nodes.values():
            lines = node.log_file.read_text(errors="replace").splitlines()
            marked = [line for line in lines if any(mark in line for mark in BUG_MARKS)]
            secrets = [] if self._security is None else self._security.secrets()
            marked += [f"the password {secret}" for secret in secrets if any(secret in line for line in lines)]
            if marked:
                found.append(f"{node.name} logged {len(marked)} bugs, first: {marked[0]} (see {node.log_file})")
        return found

    # Other

    @staticmethod
    def _administrator_of(cluster: StressTarget) -> list[Administrator]:
        """One if there are several controllers, else none: the load of a single one would slow the old runs down."""
        controllers = [node for node in cluster.nodes.values() if node.is_controller]
        return [Administrator(cluster.access, cluster.brokers)] if len(controllers) > 1 else []

    def _security_faults(self) -> SecurityFaults | None:
        cluster = self._cluster
        if not isinstance(cluster, StressCluster) or cluster.security is None:
            return None
        faults = SecurityFaults(cluster, cluster.access, self._random, self._cut_off)
        faults.prepare()
        return faults

    def _cut_off(self) -> set[int]:
        """The brokers that the active controller does not reach, or that do not reach it."""
        cluster = self._cluster
        cuts = set() if cluster.network is None else cluster.network.cuts
        if not cuts or not isinstance(cluster, StressCluster):
            return set()
        active = cluster.active_controller() if len(cluster.controllers) > 1 else cluster.controller
        if active is None:
            return {node.node_id for node in cluster.brokers}
        return {node_id for cut in cuts if active.node_id in cut for node_id in cut}

    def _create_topic(self) -> None:
        admin = AdminClient(self._cluster.access.librdkafka())
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS, config=TOPIC_CONFIG)])[TOPIC].result(20)

    def _log(self, text: str) -> None:
        elapsed_s = (self._clock.monotonic_ms() - self._started_ms) / 1000
        acknowledged = self._shared.history.acknowledged_count()
        self._say(f"{elapsed_s:7.1f} s {acknowledged:7d} acknowledged  {text}")


def is_whole(connection: NodeConnection) -> bool:
    """Whether all replicas of all partitions are in sync, according to this broker."""
    partitions = describe(connection)
    return len(partitions) == PARTITIONS and all(len(p.isr_nodes) == BROKERS for p in partitions)
