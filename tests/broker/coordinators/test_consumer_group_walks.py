"""Random walks of consumer groups through a coordinator, seeded.

Members of both protocols join, leave, fall silent and lose answers. Topics are created, grow and are deleted.
Coordinators fail with writes that no other broker has.

Whatever happens, two members never read a partition at once, and a replayed group equals the one that was lost. At the
end every member soon has its share.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import GroupState, Heartbeat, HeartbeatResult
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.support.sample import sample

STEPS = 150
GROUP = "g"
SETTLED = (GroupState.STABLE, GroupState.EMPTY)
SESSION_MS = 45_000
REBALANCE_MS = 600_000  # only silence removes anybody here: who is removed otherwise does not know until it asks
TURN_MS = 1000
Owned = set[tuple[str, int]]


@dataclass(slots=True)
class Client:
    """A process that consumes; `reads` is what it is reading now."""

    walk: Walk
    name: str
    instance_id: str | None = None
    topics: frozenset[str] | None = frozenset({"t"})
    regex: str | None = None
    epoch: int = 0
    reads: Owned = field(default_factory=set)
    answered_ms: int = 0  # when it sent the last request that got a response as a member
    is_silent: bool = False
    last_request: int = 0

    @property
    def is_alive(self) -> bool:
        """Check whether it may read: a client that was paused too long may keep reading revoked partitions."""
        return self.walk.now_ms - self.answered_ms < SESSION_MS

    def act(self) -> None:
        """Do what a client does from time to time: heartbeat, and then as the answer says."""
        snap = self.walk.world.cache.snapshot
        owned: dict[bytes, frozenset[int]] = {}
        for topic, partition in self.reads:
            if topic in snap.topics:
                topic_id = snap.topics[topic].id
                owned[topic_id] = owned.get(topic_id, frozenset()) | {partition}
        is_joining = self.epoch == 0
        if is_joining:
            self.reads = set()
        request = Heartbeat(
            self.name, self.epoch, self.instance_id, rebalance_timeout_ms=REBALANCE_MS,
            topic_names=self.topics, topic_regex=self.regex, owned={} if is_joining else owned,
        )  # fmt: skip
        sent_ms, number = self.walk.now_ms, self.walk.number()
        self.last_request = number
        self.walk.world.coordinator.consumer_heartbeat(
            GROUP, request, lambda answer: self._received(answer, sent_ms, number)
        )

    def _received(self, answer: HeartbeatResult | ApiError, sent_ms: int, number: int) -> None:
        if self.is_silent or self.walk.loses_answer() or number != self.last_request:
            return  # a client listens to the answer of its last request only
        if isinstance(answer, ApiError):
            if answer.code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ):
                self.epoch, self.reads = 0, set()
            return
        self.epoch = answer.epoch
        self.answered_ms = sent_ms
        if answer.assigned is not None:
            names = self.walk.world.cache.snapshot.topic_names
            assigned = {
                (names[id_], p) for id_, partitions in answer.assigned.items() if id_ in names for p in partitions
            }
            self.reads = assigned

    def leave(self) -> None:
        """Go for good, or for a while."""
        self.reads = set()
        for_a_while = self.instance_id is not None and self.walk.random.random() < 0.5
        if for_a_while:
            self.walk.away.append(self)
        self.epoch, self.last_request = 0, 0
        request = Heartbeat(self.name, -2 if for_a_while else -1, self.instance_id)
        self.walk.world.coordinator.consumer_heartbeat(GROUP, request, lambda _answer: None)


@dataclass(slots=True)
class ClassicClient(Client):
    """One that speaks the classic protocol, eagerly: it gives up everything before it joins."""

    member_id: str = ""
    generation_id: int = -1
    is_waiting: bool = False

    def act(self) -> None:
        if self.is_waiting:
            return
        if self.generation_id < 0:
            self._join()
            return
        coordinator = self.walk.world.coordinator
        error = coordinator.heartbeat(GROUP, self.member_id, self.instance_id, self.generation_id)
        if error == ErrorCode.NONE:
            self.answered_ms = self.walk.now_ms
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        elif error not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._forget()

    def _forget(self) -> None:
        self.reads, self.member_id, self.generation_id = set(), "", -1

    def _join(self) -> None:
        self.reads = set()
        self.is_waiting = True
        event = ev.Join(
            self.member_id, f"{self.name}-{self.walk.number()}", self.instance_id, self.name, "/h", SESSION_MS,
            REBALANCE_MS, "consumer", (("range", _subscription(self.topics or frozenset())),), 9, None, self._joined,
        )  # fmt: skip
        self.walk.world.coordinator.join(GROUP, event)

    def _joined(self, result: ev.JoinResult) -> None:
        self.is_waiting = False
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            return
        if result.error:
            if result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._forget()
            return
        self.member_id, self.generation_id, self.answered_ms = result.member_id, result.generation_id, self.walk.now_ms
        self.is_waiting = True
        shares = self._deal(result)
        event = ev.Sync(
            self.member_id, self.instance_id, self.generation_id, "consumer", result.protocol_name, shares, self._synced
        )
        self.walk.world.coordinator.sync(GROUP, event)

    def _deal(self, result: ev.JoinResult) -> dict[str, bytes]:
        """What a classic leader assigns."""
        if not result.members:
            return {}
        ids = sorted(member.member_id for member in result.members)
        parts: dict[str, dict[str, frozenset[int]]] = {member_id: {} for member_id in ids}
        for topic in self.topics or ():
            count = self.walk.world.cache.snapshot.partition_count(topic) or 0
            for index, member_id in enumerate(ids):
                mine = frozenset(range(index, count, len(ids)))
                if mine:
                    parts[member_id][topic] = mine
        return {member_id: write_assignment(shares, 1) for member_id, shares in parts.items()}

    def _synced(self, result: ev.SyncResult) -> None:
        self.is_waiting = False
        if result.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.generation_id = -1
        elif result.error:
            self._forget()
        else:
            self.answered_ms = self.walk.now_ms
            assignment = read_assignment(result.assignment).partitions if result.assignment else {}
            self.reads = {(topic, p) for topic, partitions in assignment.items() for p in partitions}

    def leave(self) -> None:
        self.reads = set()
        leaving = ev.LeavingMember(self.member_id, self.instance_id)
        self.walk.world.coordinator.leave(GROUP, ev.Leave((leaving,), lambda _result: None))


def _subscription(topics: frozenset[str]) -> bytes:
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in sorted(topics))
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff\0\0\0\0"


class Walk:
    """One walk."""

    def __init__(self, seed: int, *, with_classic: bool = False) -> None:
        self.random = random.Random(seed)
        interval_ms = self.random.choice([0, 0, 1500])
        self.world = World(consumer_assignment_interval_ms=interval_ms, group_consumer_max_size=6)
        self.topics = {"t": 3, "u": 2, "__consumer_offsets": 2}
        self.world.cache.snapshot = snapshot(self.topics)
        self.with_classic = with_classic
        self.clients: list[Client] = []
        self.numbers = 0
        self.is_calm = False
        self.away: list[Client] = []  # static members that left for a while

    @property
    def now_ms(self) -> int:
        return self.world.clock.monotonic_ms()

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def loses_answer(self) -> bool:
        """Whether an answer does not reach its client."""
        return not self.is_calm and self.random.random() < 0.05

    # What may happen

    def step(self) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self.act, 20), (self.come, 3), (self.go, 2), (self.fall_silent, 1), (self.wake, 1), (self.wait, 4),
            (self.change_subscription, 1), (self.change_topics, 1), (self.hold, 1), (self.release, 2),
            (self.fail_over, 1), (self.refuse, 1),
        ]  # fmt: skip
        self.random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()
        self.world.coordinator.run_pending_jobs()
        self.check()

    def act(self) -> None:
        awake = [client for client in self.clients if not client.is_silent]
        if awake:
            self.random.choice(awake).act()
            self.world.advance_ms(self.random.choice([1, 50, TURN_MS]))

    def come(self) -> None:
        if len(self.clients) >= 7:
            return
        if self.away and self.random.random() < 0.7:
            client = self.away.pop()
            if all(other.instance_id != client.instance_id for other in self.clients):
                self.clients.append(client)  # the same process under the same member id
                return
        name = f"c{self.number()}"
        instance_id = self.random.choice([None, None, f"i{self.random.randrange(3)}"])
        if instance_id is not None and any(client.instance_id == instance_id for client in self.clients):
            instance_id = None  # two processes under one name are two readers, whatever the broker does
        if self.with_classic and self.random.random() < 0.5:
            client: Client = ClassicClient(self, name, instance_id, topics=frozenset({"t"}))
        else:
            client = Client(self, name, instance_id, *self.subscription())
        self.clients.append(client)

    def subscription(self) -> tuple[frozenset[str] | None, str | None]:
        topics: list[tuple[frozenset[str] | None, str | None]] = [
            (frozenset({"t"}), ""), (frozenset({"t"}), ""), (frozenset({"t", "u"}), ""), (frozenset({"u"}), ""),
            (frozenset(), "[tu]"), (frozenset(), "t|v.*"), (frozenset({"u"}), "t"),
        ]  # fmt: skip
        return self.random.choice(topics)

    def change_subscription(self) -> None:
        consumers = [client for client in self.clients if type(client) is Client]
        if consumers:
            client = self.random.choice(consumers)
            client.topics, client.regex = self.subscription()

    def go(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            client.leave()

    def fall_silent(self) -> None:
        if self.clients:
            self.random.choice(self.clients).is_silent = True

    def wake(self) -> None:
        for client in self.clients:
            client.is_silent = False

    def wait(self) -> None:
        self.world.advance_ms(self.random.choice([TURN_MS, 5000, 31_000]))

    def change_topics(self) -> None:
        name = self.random.choice(["u", "v1", "t"])
        if name not in self.topics:
            self.topics[name] = 1
        elif name != "t" and self.random.random() < 0.3:
            del self.topics[name]
        elif self.topics[name] < 6:
            self.topics[name] += 1
        self.world.cache.snapshot = snapshot(self.topics)
        for client in self.clients:  # a client drops what is gone by itself
            client.reads = {(topic, partition) for topic, partition in client.reads if topic in self.topics}

    def hold(self) -> None:
        self.world.replicas.holds = True

    def release(self) -> None:
        self.world.replicas.holds = False
        self.world.replicas.refuses = ErrorCode.NONE
        self.world.replicas.release()
        for log in self.world.replicas.logs.values():
            log.high_watermark = log.log_end_offset

    def refuse(self) -> None:
        self.world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS

    def fail_over(self) -> None:
        """A coordinator that has only what was committed."""
        replicas = self.world.replicas
        replicas.holds, replicas.refuses = False, ErrorCode.NONE
        self.world.coordinator.shutdown()
        replicas.waiting.clear()
        if self.random.random() < 0.7:  # else the next leader has them too, and commits them some time
            for log in replicas.logs.values():
                log.truncate(log.high_watermark)
        self.world.coordinator = self.world.make_coordinator()
        self.world.lead(0, 2)
        self.world.lead(1, 2)
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.is_waiting = False

    # What must hold

    @property
    def group(self) -> ConsumerGroup | None:
        shard = self.world.coordinator._shard(GROUP)
        assert shard is not None
        return shard.consumer_groups.get(GROUP)

    def check(self) -> None:
        shard = self.world.coordinator._shard(GROUP)
        assert shard is not None
        assert not shard.groups.keys() & shard.consumer_groups.keys()
        if self.group is not None:
            self.group.invariants()
        readers = [client for client in self.clients if client.is_alive]
        reading = [tp for client in readers for tp in client.reads]
        assert len(reading) == len(set(reading)), [(client.name, client.reads) for client in readers]

    def calm_down(self) -> None:
        """No more surprises: everybody heartbeats until the group is stable."""
        self.is_calm = True
        self.release()
        self.wake()
        for turn in range(90):
            for client in list(self.clients):
                client.act()
                self.world.coordinator.run_pending_jobs()
                self.check()
            self.world.advance_ms(2 * TURN_MS)
            if turn >= 60 and (self.group is None or self.group.state in SETTLED):
                break  # except regular expressions, which may be resolved again at any time
        self.check_shares()
        self.check_replay()

    def check_shares(self) -> None:
        """Check that every subscribed partition is read."""
        members = [client for client in self.clients if client.is_alive]
        group = self.group
        if group is None:
            return
        assert group.state in SETTLED
        wanted = {
            (topic, partition)
            for topic in group.topic_names
            for partition in range(self.topics.get(topic, 0))
        }  # fmt: skip
        assert {tp for client in members for tp in client.reads} == wanted

    def check_replay(self) -> None:
        """Check that another coordinator loads the same group."""
        before = self.group
        self.fail_over()
        after = self.group
        if before is None or after is None:
            assert before is after
            return
        assert (before.members, before.target, before.epoch, before.assignment_epoch, before.resolved_regexes) == (
            after.members, after.target, after.epoch, after.assignment_epoch, after.resolved_regexes,
        )  # fmt: skip
        assert (before.owners, before.topic_names, before.static_members) == (
            after.owners, after.topic_names, after.static_members,
        )  # fmt: skip


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_a_group_of_the_consumer_protocol(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.calm_down()


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_a_group_of_both_protocols(seed: int) -> None:
    walk = Walk(1000 + seed, with_classic=True)
    for _ in range(STEPS):
        walk.step()
    walk.calm_down()
