"""One run: a cluster, groups of real clients, churn; then a quiet phase, and the checks.

Churn is a seeded sequence of deeds. Members join, leave, die (kill -9), are paused for longer than their session, or
are replaced under their instance id. A group's coordinator is killed, shut down or paused, and returns. An observer
requests the committed offsets all the time.
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
from tests.churn.observer import GroupClient, Observer
from tests.support import security_faults
from tests.support.access import PLAINTEXT, Access, security_of
from tests.support.cluster import BarnabasCluster
from tests.support.history import RECONNECT, ProduceLoad
from tests.support.security_faults import SecurityFaults, config_of
from tests.support.waiting import eventually

BROKERS = 3
LOAD, MEMBER, OBSERVER = "load", "member", "observer"
USERS = (LOAD, MEMBER, OBSERVER, *security_faults.USERS)
MEMBERS_MAX = 4
COORDINATOR_PARTITIONS = 5
PAUSE_MS = (100, 2_000)  # between two deeds
HOLD_MS = (200, 4_000)  # the downtime of a coordinator
PAUSED_MS = (1_000, 9_000)  # how long a member is paused: around its session timeout
QUIET_TIMEOUT_MS = 90_000
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
    """A group broke a rule."""


class Churn:
    """The parts of a run. Owner: the thread that calls `execute`."""

    def __init__(
        self, cluster: BarnabasCluster, seed: int, say: Callable[[str], None], kinds: tuple[Kind, ...] = KINDS
    ) -> None:
        self._cluster = cluster
        self._access = Access(cluster.directory, cluster.bootstrap, cluster.security)
        self._random = random.Random(seed)
        self._say = say
        self._clock = SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._pause = threading.Event()  # never set: waits by the real clock
        self._client = self._group_client()
        self._groups = [Group(kind, GroupHistory(kind.name)) for kind in kinds]
        self._away: list[tuple[int, Node]] = []  # (when it returns, the broker)
        self._security = None if cluster.security is None else SecurityFaults(cluster, self._access, self._random)
        self._deeds: dict[Callable[[], str], int] = {
            self._join: 5, self._leave: 3, self._kill_member: 3, self._replace: 2, self._pause_member: 2,
            self._coordinator_dies: 4, self._coordinator_stops: 2, self._coordinator_pauses: 2,
        }  # fmt: skip
        if self._security is not None:
            self._deeds[self._change_security] = 5

    def execute(self, deeds: int) -> None:
        """Do this many deeds, restore everything, and check; raises ChurnError."""
        admin = AdminClient({**self._access.librdkafka(), **RECONNECT})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(CREATE_TIMEOUT_S)
        self._allow()
        with ExitStack() as stack:
            stack.callback(self._end_all)
            load = stack.enter_context(ProduceLoad(self._access.librdkafka(LOAD), TOPIC, PARTITIONS))
            observer = stack.enter_context(Observer(self._group_client(), self._groups))
            for group in self._groups:
                self._start_member(group)
            self._await_settled()
            if self._security is not None:
                self._log(", ".join(self._security.change_everything()))
            for number in range(deeds):
                self._one_deed(number)
            self._restore()
            load.stop()
            observer.stop()
            for group in self._groups:
                eventually(f"{group.name} answers", lambda group=group: observer.observe(group), QUIET_TIMEOUT_MS)
            self._log(f"{observer.answers} responses with offsets")
        histories = [group.history for group in self._groups]
        read_group_log(self._access.librdkafka(), COORDINATOR_PARTITIONS, histories)
        self._check()

    def _group_client(self) -> GroupClient:
        return GroupClient(self._cluster.brokers, self._access.connect(OBSERVER))

    def _allow(self) -> None:
        """Give the users of a secured cluster the rights that they need."""
        rights = [
            f"{LOAD} write topic:{TOPIC}",
            f"{OBSERVER} describe topic:{TOPIC}",
            f"{MEMBER} read topic:{TOPIC}",
        ]
        for group in self._groups:
            rights += [f"{OBSERVER} describe group:{group.name}", f"{MEMBER} read group:{group.name}"]
        self._access.allow(self._cluster.brokers, *rights)
        if self._security is not None:
            self._security.prepare()

    # Churn

    def _one_deed(self, number: int) -> None:
        self._come_back()
        what = ""
        while not what:
            deed = self._random.choices(list(self._deeds), list(self._deeds.values()))[0]
            what = deed()
        self._log(f"deed {number}: {what}")
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
        group.members[name] = MemberProcess(group, self._access.librdkafka(MEMBER), name)
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
        """Kill a process and start its successor; in a static group under the same instance id."""
        group = self._some_group()
        member = self._some_member(group)
        if member is None:
            return ""
        member.end(signal.SIGKILL)
        self._start_member(group, member.name)
        return f"{member.name} is replaced"

    def _pause_member(self) -> str:
        """Pause a member: when it resumes, it may be a zombie with an outdated view."""
        group = self._some_group()
        member = self._some_member(group)
        if member is None or member.is_paused:
            return ""
        member.is_paused = True
        member.signal(signal.SIGSTOP)
        paused_ms = self._random.randint(*PAUSED_MS)

        def resume() -> None:
            if member.is_paused and member.child.poll() is None:
                member.is_paused = False
                member.signal(signal.SIGCONT)

        timer = threading.Timer(paused_ms / 1000, resume)
        timer.daemon = True
        timer.start()
        return f"{member.name} is paused for {paused_ms} ms"

    def _coordinator_dies(self) -> str:
        return self._without_coordinator("dies", lambda node: self._cluster.stop_node(node, signal.SIGKILL))

    def _coordinator_stops(self) -> str:
        return self._without_coordinator("is shut down", lambda node: self._cluster.stop_node(node))

    def _coordinator_pauses(self) -> str:
        return self._without_coordinator(
            "is paused", lambda node: self._cluster.signal_node(node, signal.SIGSTOP)
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

    def _change_security(self) -> str:
        """Change certificates, a right, a password or a token, and take it back."""
        return "" if self._security is None or self._away else self._security.change()

    def _coordinator_of(self, group: Group) -> Node:
        coordinator = self._client.coordinator_of(group.name)
        return self._cluster.nodes[0] if coordinator is None else coordinator

    # Peace

    def _restore(self) -> None:
        self._come_back(everybody=True)
        self._cluster.await_ready()
        for group in self._groups:
            for member in group.members.values():
                if member.is_paused:
                    member.is_paused = False
                    member.signal(signal.SIGCONT)
            if not group.members:
                self._start_member(group)
        self._log("no more deeds")
        self._await_settled()
        self._log("all groups are stable")

    def _await_settled(self) -> None:
        for group in self._groups:
            eventually(f"{group.name} is stable", lambda group=group: self._is_settled(group), QUIET_TIMEOUT_MS)

    def _is_settled(self, group: Group) -> bool:
        """Whether the group is stable with exactly the running members, and each partition has one owner."""
        owned = sorted(partition for member in group.members.values() for partition in member.owned)
        if owned != list(range(PARTITIONS)):
            return False
        state, members = self._client.describe(group)
        return state == "Stable" and sorted(members) == sorted(group.members)

    def _end_all(self) -> None:
        for group in self._groups:
            for member in group.members.values():
                member.end(signal.SIGKILL)

    # Checks

    def _check(self) -> None:
        for group in self._groups:
            history = group.history
            committed = sum(history.reported.values())
            self._log(
                f"{group.name}: {len(history.generations)} generations, {history.claims} claims, {committed} committed"
            )
            if not (history.claims and committed > 0):
                history.others.append(f"{group.name}: nothing was claimed or committed: the run proves nothing")
        problems = [problem for group in self._groups for problem in group.history.problems]
        if self._security is not None:
            self._log(f"{self._security.refusals} requests and logins were refused as they must be")
            problems += self._security.problems()
        if problems:
            raise ChurnError("\n".join(problems))

    def _log(self, text: str) -> None:
        elapsed_s = (self._clock.monotonic_ms() - self._started_ms) / 1000
        self._say(f"{elapsed_s:7.1f} s  {text}")


def run(directory: Path, deeds: int, seed: int, say: Callable[[str], None], security: str = PLAINTEXT) -> None:
    """Start a cluster and do a run in it; raises AssertionError."""
    own = security_of(directory, security, USERS)
    with BarnabasCluster(
        directory, broker_count=BROKERS, first_port=0, config={**CONFIG, **config_of(own)}, security=own
    ) as cluster:
        Churn(cluster, seed, say).execute(deeds)
