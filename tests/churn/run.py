"""One run: a cluster, groups of real clients, churn; then peace, and the proof.

Churn is a seeded choice of deeds: members join, leave, die (kill -9), stand still for longer than their session, or are
replaced under their instance id; a group's coordinator dies, is shut down, or stands still, and comes back. An onlooker
asks for the committed offsets all the time.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import Node
from barnabas.common.clock import SystemClock
from tests.churn.group_log import read_group_log
from tests.churn.history import GroupHistory
from tests.churn.members import KINDS, PARTITIONS, SESSION_MS, TOPIC, Group, Kind, MemberProcess
from tests.churn.onlooker import Asker, Onlooker
from tests.support.cluster import BarnabasCluster
from tests.support.history import RECONNECT, ProduceLoad
from tests.support.waiting import eventually

BROKERS = 3
MEMBERS_MAX = 4
COORDINATOR_PARTITIONS = 5
PAUSE_MS = (100, 2_000)  # between two deeds
HOLD_MS = (200, 4_000)  # how long a coordinator is away
STILL_MS = (1_000, 9_000)  # how long a member stands still: around its session timeout
PEACE_TIMEOUT_MS = 90_000
CREATE_TIMEOUT_S = 20
CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "barnabas.metrics.port": "-1",
}


class ChurnError(AssertionError):
    """A group did something that it must not."""


class Churn:
    """The parts of a run. Owner: the thread that calls `execute`."""

    def __init__(
        self, cluster: BarnabasCluster, seed: int, say: Callable[[str], None], kinds: tuple[Kind, ...] = KINDS
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._say = say
        self._clock = SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._pause = threading.Event()  # never set: a wait for a real while
        self._asker = Asker(cluster.brokers)
        self._groups = [Group(kind, GroupHistory(kind.name)) for kind in kinds]
        self._away: list[tuple[int, Node]] = []  # (when it comes back, who)
        self._deeds: dict[Callable[[], str], int] = {
            self._join: 5, self._leave: 3, self._kill_member: 3, self._replace: 2, self._stand_still: 2,
            self._coordinator_dies: 4, self._coordinator_stops: 2, self._coordinator_stands_still: 2,
        }  # fmt: skip

    def execute(self, deeds: int) -> None:
        """Let so many things happen, make peace, and check; raises ChurnError."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, **RECONNECT})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(CREATE_TIMEOUT_S)
        with ExitStack() as stack:
            stack.callback(self._end_all)
            load = stack.enter_context(ProduceLoad(self._cluster.bootstrap, TOPIC, PARTITIONS))
            onlooker = stack.enter_context(Onlooker(self._cluster.brokers, self._groups))
            for group in self._groups:
                self._start_member(group)
            self._await_settled()
            for number in range(deeds):
                self._one_deed(number)
            self._make_peace()
            load.stop()
            onlooker.stop()
            for group in self._groups:
                eventually(f"{group.name} answers", lambda group=group: onlooker.ask(group), PEACE_TIMEOUT_MS)
            self._tell(f"{onlooker.answers} answers about offsets")
        read_group_log(self._cluster.bootstrap, COORDINATOR_PARTITIONS, [group.history for group in self._groups])
        self._check()

    # Churn

    def _one_deed(self, number: int) -> None:
        self._come_back()
        what = ""
        while not what:
            deed = self._random.choices(list(self._deeds), list(self._deeds.values()))[0]
            what = deed()
        self._tell(f"deed {number}: {what}")
        self._pause.wait(self._random.randint(*PAUSE_MS) / 1000)
        for node in self._cluster.nodes.values():
            if not node.is_running and all(node is not away for _, away in self._away):
                raise ChurnError(f"{node.name} ended by itself: {node.log_tail(20)}")

    def _come_back(self, *, everybody: bool = False) -> None:
        now_ms = self._clock.monotonic_ms()
        for due_ms, node in list(self._away):
            if everybody or due_ms <= now_ms:
                self._away.remove((due_ms, node))
                if node.paused:
                    self._cluster.signal_node(node, signal.SIGCONT)
                else:
                    self._cluster.start_node(node)

    def _some_group(self) -> Group:
        return self._random.choice(self._groups)

    def _some_member(self, group: Group) -> MemberProcess | None:
        return self._random.choice(list(group.members.values())) if group.members else None

    def _start_member(self, group: Group, name: str = "") -> str:
        if not name:
            group.names += 1
            name = f"{group.name}-{group.names}"
        group.members[name] = MemberProcess(group, self._cluster.bootstrap, name)
        return name

    def _join(self) -> str:
        group = self._some_group()
        return f"{self._start_member(group)} joins" if len(group.members) < MEMBERS_MAX else ""

    def _leave(self) -> str:
        return self._end_member(signal.SIGTERM, "leaves")

    def _kill_member(self) -> str:
        return self._end_member(signal.SIGKILL, "dies")

    def _end_member(self, number: signal.Signals, what: str) -> str:
        group = self._some_group()
        member = self._some_member(group)
        if member is None:
            return ""
        del group.members[member.name]
        member.end(number)
        return f"{member.name} {what}"

    def _replace(self) -> str:
        """The process dies and another takes its place; in a static group under the same instance id."""
        group = self._some_group()
        member = self._some_member(group)
        if member is None:
            return ""
        member.end(signal.SIGKILL)
        self._start_member(group, member.name)
        return f"{member.name} is replaced"

    def _stand_still(self) -> str:
        """A zombie: when it goes on it believes what it believed before."""
        group = self._some_group()
        member = self._some_member(group)
        if member is None or member.is_still:
            return ""
        member.is_still = True
        member.signal(signal.SIGSTOP)
        still_ms = self._random.randint(*STILL_MS)

        def go_on() -> None:
            if member.is_still and member.child.poll() is None:
                member.is_still = False
                member.signal(signal.SIGCONT)

        timer = threading.Timer(still_ms / 1000, go_on)
        timer.daemon = True
        timer.start()
        return f"{member.name} stands still for {still_ms} ms"

    def _coordinator_dies(self) -> str:
        return self._without_coordinator("dies", lambda node: self._cluster.stop_node(node, signal.SIGKILL))

    def _coordinator_stops(self) -> str:
        return self._without_coordinator("is shut down", lambda node: self._cluster.stop_node(node))

    def _coordinator_stands_still(self) -> str:
        return self._without_coordinator(
            "stands still", lambda node: self._cluster.signal_node(node, signal.SIGSTOP)
        )  # fmt: skip

    def _without_coordinator(self, what: str, strike: Callable[[Node], None]) -> str:
        group = self._some_group()
        hold_ms = self._random.randint(*HOLD_MS)
        if self._away:
            return ""
        node = self._coordinator_of(group)
        strike(node)
        self._away.append((self._clock.monotonic_ms() + hold_ms, node))
        return f"{node.name}, coordinator of {group.name}, {what} for {hold_ms} ms"

    def _coordinator_of(self, group: Group) -> Node:
        coordinator = self._asker.coordinator_of(group.name)
        return self._cluster.nodes[0] if coordinator is None else coordinator

    # Peace

    def _make_peace(self) -> None:
        self._come_back(everybody=True)
        self._cluster.await_ready()
        for group in self._groups:
            for member in group.members.values():
                if member.is_still:
                    member.is_still = False
                    member.signal(signal.SIGCONT)
            if not group.members:
                self._start_member(group)
        self._tell("peace")
        self._await_settled()
        self._tell("all groups are stable")

    def _await_settled(self) -> None:
        for group in self._groups:
            eventually(f"{group.name} is stable", lambda group=group: self._is_settled(group), PEACE_TIMEOUT_MS)

    def _is_settled(self, group: Group) -> bool:
        """Stable, with the members that run and no others, who own all partitions, each one's once."""
        owned = sorted(partition for member in group.members.values() for partition in member.owned)
        if owned != list(range(PARTITIONS)):
            return False
        state, members = self._asker.describe(group)
        return state == "Stable" and sorted(members) == sorted(group.members)

    def _end_all(self) -> None:
        for group in self._groups:
            for member in group.members.values():
                member.end(signal.SIGKILL)

    # The proof

    def _check(self) -> None:
        for group in self._groups:
            history = group.history
            told = sum(history.told.values())
            self._tell(
                f"{group.name}: {len(history.generations)} generations, {history.claims} claims, {told} committed"
            )
            if not (history.claims and told > 0):
                history.others.append(f"{group.name}: nothing was claimed or committed: the run shows nothing")
        problems = [problem for group in self._groups for problem in group.history.problems]
        if problems:
            raise ChurnError("\n".join(problems))

    def _tell(self, text: str) -> None:
        elapsed_s = (self._clock.monotonic_ms() - self._started_ms) / 1000
        self._say(f"{elapsed_s:7.1f} s  {text}")


def run(directory: Path, deeds: int, seed: int, say: Callable[[str], None]) -> None:
    """A cluster of its own, and a run in it; raises AssertionError."""
    with BarnabasCluster(directory, broker_count=BROKERS, first_port=0, config=CONFIG) as cluster:
        Churn(cluster, seed, say).execute(deeds)
