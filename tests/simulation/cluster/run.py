"""One life of a cluster: it starts, clients work, faults come and go, and in the end all must be well.

1. Controllers and brokers start; the topics of the load are created.
2. The clients of the story (load/) work while faults happen. The invariants (invariants.py) are checked every
   two seconds.
3. All faults end, and no fetcher is slow any more. Within `LIVENESS_S` of virtual time each: every process serves and
   every replica is in sync; every group is stable; every client that is asked to stop has its last answer.
4. New readers read everything, within the same time, and what the clients learned is checked (checks/).
5. Within the same time, nothing is left over in the nodes (leftovers.py).

All the while, each acknowledged record must be where it has to be (copies.py), no request may wait for what is there
already (stuck.py), leaders and coordinators must know what their decisions hang on (leaders.py, coordinators.py), and
several controllers must have one history (quorum.py). The seed chooses the settings and how often faults come
(swarm.py).

Threads: the driver is a task; the command runs `run` outside of the simulation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.broker.fetch_sessions import session
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.common.topic_partition import TopicPartition
from barnabas.testing.simulation.fault_decisions import Decision, FaultPace
from barnabas.testing.simulation.faults import Faults
from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import ENDED, NS_PER_S, Scheduler, SimulationError, Task
from barnabas.testing.simulation.nodes import Nodes
from tests.simulation.cluster.coordinators import Coordinators
from tests.simulation.cluster.copies import Copies
from tests.simulation.cluster.deaf import DeafBrokers
from tests.simulation.cluster.invariants import Invariants, stored_log
from tests.simulation.cluster.leaders import Leaders
from tests.simulation.cluster.leftovers import leftovers
from tests.simulation.cluster.out_of_sync import out_of_sync
from tests.simulation.cluster.quorum import QuorumWatch
from tests.simulation.cluster.remembered import Remembered
from tests.simulation.cluster.stuck import LOOK_NS, StuckRequests
from tests.simulation.cluster.swarm import (
    FLUSHED,
    RESTLESS,
    SLOW_FETCHER,
    draw_delay_ns,
    draw_idle_from,
    draw_pace,
    draw_settings,
    draw_slow_fetchers,
    end_slow_fetcher,
    told_pace,
    told_settings,
)
from tests.simulation.load.clients.admin import Admin
from tests.simulation.load.clients.client import Client
from tests.simulation.load.decided import ACLS
from tests.simulation.load.loads import Load
from tests.simulation.load.part import Setting
from tests.simulation.load.shared import DELIVERIES_MAX
from tests.simulation.load.story import Story

LIVENESS_S: Final = 120
CHECK_S: Final = 2
LOGS_EVERY: Final = 5  # checks, one of which compares logs
QUORUM_EVERY: Final = 5  # looks, one of which compares the logs of controllers
START_S: Final = 60
POLL_NS: Final = 100_000_000

#: What nodes are set to, so that a life of a minute has retention, compaction, and transactions and members that time
#: out.
CONFIG: Final = {
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
    "group.share.heartbeat.interval.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "2000",
    "group.share.min.record.lock.duration.ms": "3000",
    "group.share.min.session.timeout.ms": "10000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.session.timeout.ms": "10000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "3000",
    "log.segment.delete.delay.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}


@dataclass(slots=True)
class Outcome:
    """What came out of a run."""

    problems: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # the faults, in words
    decisions: list[Decision] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # how much clients did, in words
    virtual_s: float = 0.0
    turns: int = 0
    digest: str = ""


class Run:
    """A run of a seed, on a machine that is installed."""

    def __init__(
        self, scheduler: Scheduler, network: Network, story: Story, decisions: Sequence[Decision] | None = None
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._story = story
        swarm = random.Random(f"{scheduler.seed}/swarm")
        pace = told_pace(draw_pace(swarm) if story.varied else FaultPace(), story)
        settings = told_settings(draw_settings(swarm) if story.varied else {}, story)
        if story.restless:
            scheduler.pace = RESTLESS
        flushed = FLUSHED if pace.is_flushed else {}
        acls = ACLS if story.deciders else {}
        config = {**CONFIG, **settings, **flushed, **acls}
        self.nodes = Nodes(scheduler, network, story.brokers, config, story.controllers)
        for controller in self.nodes.controllers:
            for key in flushed:  # Why: its log must be durable by itself, and not because each append is flushed
                controller.properties.pop(key)
        if story.varied:
            session.IDLE_FROM = draw_idle_from(random.Random(f"{scheduler.seed}/idle"))
            slow = draw_slow_fetchers(swarm, range(story.brokers), has_laggards=bool(story.laggards))
            for broker_id, pause_ms in slow.items():
                properties = self.nodes.by_id[broker_id].properties
                properties[SLOW_FETCHER] = pause_ms
                # Why: a batch of each partition in so long a time would be less than producers without acks send.
                properties.pop("replica.fetch.max.bytes", None)
            delay_ns = draw_delay_ns(swarm)
            # Why half: between two controllers, both count. Sessions of 2.5 s would end without any fault.
            for controller in self.nodes.controllers:
                network.slow_down(controller.node.host, delay_ns if story.controllers == 1 else delay_ns // 2)
        rng = random.Random(f"{scheduler.seed}/faults")
        self.faults = Faults(scheduler, network, self.nodes, rng, pace, decisions)
        self._stuck = StuckRequests(self.nodes)
        self._quorum = QuorumWatch(self.nodes)
        self._copies = Copies(
            self.nodes, min(2, story.brokers), lambda: self.faults.is_power_out, is_flushed=pace.is_flushed
        )
        self._leaders = Leaders(self.nodes, lambda: self.faults.is_power_out)
        self._coordinators = Coordinators(self.nodes)
        self._deaf = DeafBrokers(self.nodes)
        self._watches = (self._stuck, self._copies, self._leaders, self._coordinators, self._deaf, self._quorum)
        draw = random.Random(f"{scheduler.seed}/story").randrange
        self.load = Load(
            Setting(
                story, self.nodes.bootstrap(), draw, self._copies.acknowledged, self._stored, self.nodes.era,
                self.nodes.seat, self._coordinators,
            )
        )  # fmt: skip
        self._processes = 0
        self._troubles: list[str] = []  # what clients waited for in the end
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Run it, and return what came out."""
        outcome = self._outcome
        try:
            self._scheduler.run(self._process("driver"), self._drive)
        except SimulationError as error:
            outcome.problems.append(str(error))
        outcome.problems += self._scheduler.failures
        outcome.problems += self.nodes.problems()
        outcome.problems += self._troubles
        outcome.told = self.faults.told
        outcome.decisions = list(self.faults.decisions or ())
        outcome.done = self.load.summary()
        outcome.virtual_s = self._scheduler.now_ns / NS_PER_S
        outcome.turns = self._scheduler.turns
        outcome.digest = self._scheduler.digest.hex()
        return outcome

    def _drive(self) -> None:
        self.nodes.start()
        admin = Admin("admin", self.nodes.bootstrap())
        if not self._ended([self._spawn(admin, lambda: self._create_topics(admin))], START_S, "the topics' creation"):
            return
        clients = self.load.clients
        workers = [self._spawn(client, client.run) for client in clients]
        not_whole = INTERNAL_TOPICS | {topic.name for topic in self.load.topics if not topic.is_whole}
        invariants = Invariants(self.nodes, self.load.readers(), not_whole)
        end_ns = self._scheduler.now_ns + self._story.seconds * NS_PER_S
        if self._story.faults:
            self._scheduler.spawn(self._process("faults"), "faults", lambda: self.faults.run(end_ns))
        self._scheduler.spawn(self._process("looks"), "looks", self._look)
        self._remembered = Remembered(self.nodes, not_whole)
        self._watch(invariants, end_ns)
        self.faults.heal()
        for client in clients:
            client.is_calm = True
        for meddler in self.load.meddlers:
            meddler.is_stopping = True
        if not (self._is_healed() and self._is_settled()):
            self._troubles = [client.trouble for client in clients if client.trouble]
            return
        for client in clients:
            client.is_stopping = True
        if not self._ended(workers, LIVENESS_S, "the clients' last requests"):
            self._troubles = [client.trouble for client in clients if client.trouble]
        elif self._is_healed():
            self._check_end(invariants)

    def _look(self) -> None:
        looks = 0
        while not any(watch.problems for watch in self._watches):
            self._scheduler.sleep_ns(LOOK_NS)
            self._stuck.look()
            self._copies.look()
            self._leaders.look()
            self._coordinators.look()
            self._deaf.look(self._scheduler.now_ns)
            looks += 1
            self._quorum.look_at_leaders()
            if not looks % QUORUM_EVERY:
                self._quorum.look()

    def _watch(self, invariants: Invariants, end_ns: int) -> None:
        """Check the invariants until a time, or until something is wrong."""
        checks = 0
        while self._scheduler.now_ns < end_ns and not self._outcome.problems and not self._scheduler.failures:
            self._scheduler.sleep_ns(CHECK_S * NS_PER_S)
            checks += 1
            self._outcome.problems += invariants.check(compares_logs=not checks % LOGS_EVERY)
            self._outcome.problems += self._remembered.check()
            self._note_watched()

    def _note_watched(self) -> None:
        found = dict.fromkeys(problem for watch in self._watches for problem in watch.problems)
        self._outcome.problems += [problem for problem in found if problem not in self._outcome.problems]

    def _create_topics(self, admin: Admin) -> None:
        replicas = min(3, self._story.brokers)
        in_sync = {"min.insync.replicas": str(min(2, self._story.brokers))}
        for topic in self.load.topics:
            admin.create_topic(topic.name, topic.partitions, replicas, {**in_sync, **topic.config})
        admin.close()

    def _check_end(self, invariants: Invariants) -> None:
        last = [self._spawn(client, body) for part in self.load.parts for client, body in part.last()]
        if not self._ended(last, LIVENESS_S, "the last readers"):
            return
        self._outcome.problems += invariants.check(compares_logs=True)
        for _ in range(2):
            self._outcome.problems += self._remembered.check()
            self._scheduler.sleep_ns(POLL_NS)
        self._quorum.look()
        self._note_watched()
        self._outcome.problems += self.load.check()
        if not self._becomes(lambda: not leftovers(self.nodes), LIVENESS_S, "the end of what clients left"):
            self._outcome.problems += leftovers(self.nodes)

    def _stored(self, tp: TopicPartition) -> dict[str, bytes]:
        return {broker.name: stored_log(broker, tp) for broker in self.nodes.in_isr(tp)}

    def _spawn(self, client: Client, body: Callable[[], None]) -> Task:
        return self._scheduler.spawn(self._process(client.name), client.name, body)

    def _process(self, name: str) -> Process:
        self._processes += 1
        return Process(self._scheduler, name, f"10.0.1.{self._processes}")

    def _is_healed(self) -> bool:
        """Wait until every node serves and every replica is in sync; false, and a problem, if that takes too long.

        Until then a new leader's high watermark may be below the former one's, so a reader would end too early.
        """
        return self._becomes(
            self._are_in_sync, LIVENESS_S, "the way back into every ISR", lambda: out_of_sync(self.nodes)
        )

    def _are_in_sync(self) -> bool:
        for broker in self.nodes.brokers:
            end_slow_fetcher(broker)  # Why at each look: one that was just starting has the old settings
        return self.nodes.are_in_sync()

    def _is_settled(self) -> bool:
        """Wait until each part of the load has reached what it must reach once nothing breaks."""
        if self._becomes(lambda: not self.load.unsettled(), LIVENESS_S, "the way of groups to a stable state"):
            return True
        if not self._scheduler.failures:
            self._outcome.problems += self.load.unsettled()
        return False

    def _ended(self, tasks: list[Task], limit_s: int, what: str) -> bool:
        """Wait until tasks have ended; false, and a problem, if they have not within a time."""
        return self._becomes(lambda: all(task.state is ENDED for task in tasks), limit_s, what)

    def _becomes(
        self, is_true: Callable[[], bool], limit_s: int, what: str, why: Callable[[], list[str]] = list
    ) -> bool:
        """Wait until something is true; false, and a problem with the lines of `why`, if it is not within a time."""
        limit_ns = self._scheduler.now_ns + limit_s * NS_PER_S
        while not is_true():
            if self._scheduler.failures:
                return False
            if self._scheduler.now_ns >= limit_ns:
                lines = [f"{what} did not end within {limit_s} s of virtual time:", *why(), self._scheduler.story()]
                self._outcome.problems.append("\n".join(lines))
                return False
            self._scheduler.sleep_ns(POLL_NS)
        return True
