"""Random walks of streams groups through a coordinator, seeded.

Members of three processes join, leave, fall silent and lose answers. Topics grow, vanish and come back, and internal
topics are created late. The number of standby replicas changes. Coordinators fail with writes that no other broker has.

Whatever happens, an active task has one owner and a process has a task once, as the group sees it, and what a member
was told it has, the group knows. At the end every task is processed, with as many standby tasks as there can be, every
member has its target, and nothing is left to be done.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import (
    GroupState,
    Heartbeat,
    HeartbeatResult,
    Member,
    TaskId,
    Tasks,
)
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology
from tests.support.sample import sample

STEPS = 150
GROUP = "g"
SESSION_MS = 45_000
ROUNDS_MAX = 12
MEMBERS_MAX = 6
TOPOLOGY = topology(
    subtopology("0", "t", writes="r"),
    subtopology("1", "u", changelogs="c"),
    subtopology("2", reads="r=3"),
)
STATEFUL = "1"
FENCES = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def in_role(partitions: dict[str, frozenset[int]]) -> set[TaskId]:
    return {TaskId(id_, partition) for id_, found in partitions.items() for partition in found}


class Walk:
    """One walk: members are names, and what they know of their epochs and tasks."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.topics = {"t": 2, "u": 2, "__consumer_offsets": 2}
        self.absent: dict[str, int] = {}  # topics to come back, or to be created
        self.epochs: dict[str, int] = {}  # of members that believe to be one
        self.tasks: dict[str, Tasks] = {}  # that a member was told
        self.next_name = 0
        self.sent: Counter[str] = Counter()  # requests by member; answers to earlier ones are dropped, as clients do
        self.update()

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.random.choice(
                [self.beat] * 12 + [self.join] * 3
                + [self.leave, self.silence, self.change_topics, self.writes, self.fail, self.configure]
            )  # fmt: skip
            step()
            self.check()
        self.settle()

    # Steps

    def join(self) -> None:
        if len(self.epochs) < MEMBERS_MAX:
            self.next_name += 1
            name = f"m{self.next_name}"
            self.epochs[name], self.tasks[name] = 0, Tasks()
            self.send(name)

    def beat(self) -> None:
        if self.epochs:
            self.send(self.random.choice(list(self.epochs)), is_lost=self.random.random() < 0.15)

    def leave(self) -> None:
        if self.epochs:
            name = self.random.choice(list(self.epochs))
            self.epochs[name] = -1
            self.send(name)
            del self.epochs[name], self.tasks[name]

    def silence(self) -> None:
        """Time passes; members that send nothing for long enough are removed."""
        self.world.advance_ms(self.random.choice([100, 20_000, SESSION_MS + 1000]))

    def change_topics(self) -> None:
        """A source topic grows or vanishes; absent topics are there again, as many as chance will have it."""
        if self.random.random() < 0.5:
            self.topics["t"] = min(self.topics.get("t", 1) + 1, 5)
        elif self.random.random() < 0.5 and "u" in self.topics:
            self.absent["u"] = self.topics.pop("u")
        for name in list(self.absent):
            if self.random.random() < 0.5:
                self.topics[name] = self.absent.pop(name)
        self.update()

    def update(self) -> None:
        self.world.cache.snapshot = snapshot(self.topics)

    def writes(self) -> None:
        """Writes hang, are refused, or go on and end in whatever way."""
        replicas = self.world.replicas
        how = self.random.choice(["hang", "refuse", "commit", "time out", "go on"])
        replicas.holds = how == "hang"
        replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS if how == "refuse" else ErrorCode.NONE
        if how in ("commit", "time out"):
            replicas.release(ErrorCode.REQUEST_TIMED_OUT if how == "time out" else ErrorCode.NONE)

    def fail(self) -> None:
        """The coordinator fails, with writes that no other broker has."""
        if self.random.random() < 0.5:
            for log in self.world.replicas.logs.values():
                log.truncate(log.high_watermark)
        self.world.replicas.waiting.clear()
        self.world.replicas.holds, self.world.replicas.refuses = False, ErrorCode.NONE
        self.world.fail_over()

    def configure(self) -> None:
        """Other numbers of standby replicas; a first assignment waits for a while, or not."""
        self.world.config.streams_num_standby_replicas = self.random.randrange(3)
        self.world.config.streams_initial_rebalance_delay_ms = self.random.choice([0, 3000])

    # What members do

    def send(self, name: str, *, is_lost: bool = False) -> None:
        epoch = self.epochs[name]
        is_joining = epoch == 0
        if is_joining:
            self.tasks[name] = Tasks()
        request = Heartbeat(
            name, epoch, topology=TOPOLOGY if is_joining else None, rebalance_timeout_ms=60_000,
            owned=self.tasks[name], process_id=self.process_of(name),
        )  # fmt: skip
        self.sent[name] += 1
        number = 0 if is_lost else self.sent[name]
        self.world.coordinator.shard_of(GROUP).streams_heartbeat(
            GROUP, request, lambda answer: self.answered(name, number, answer)
        )

    def process_of(self, name: str) -> str:
        return f"p{int(name[1:]) % 3}"

    def answered(self, name: str, number: int, answer: HeartbeatResult | ApiError) -> None:
        if name not in self.epochs or self.epochs[name] < 0 or number != self.sent[name]:
            return
        if isinstance(answer, HeartbeatResult):
            self.epochs[name] = answer.epoch
            self.tasks[name] = self.tasks[name] if answer.tasks is None else answer.tasks
            self.absent |= {topic.name: topic.partitions for topic in answer.missing if topic.name not in self.topics}
        elif answer.code in FENCES:
            self.epochs[name], self.tasks[name] = 0, Tasks()

    # What must hold

    @property
    def group(self) -> StreamsGroup | None:
        return self.world.coordinator.shard_of(GROUP).streams_groups.get(GROUP)

    def check(self) -> None:
        self.world.coordinator.invariants()
        if self.group is not None:
            self.check_owners(list(self.group.members.values()))
            self.check_members(self.group)

    def check_owners(self, members: list[Member]) -> None:
        parts = [(m, tasks.without_epochs()) for m in members for tasks in (m.assigned, m.pending_revocation)]
        active = Counter(task for _, tasks in parts for task in in_role(tasks.active))
        assert not [task for task, count in active.items() if count > 1], "two members process a task"
        in_process = Counter(
            (m.process_id, task)
            for m, tasks in parts
            for role in (tasks.active, tasks.standby)
            for task in in_role(role)
        )
        assert not [found for found, count in in_process.items() if count > 1], "a process has a task twice"
        assert not any(tasks.warmup for _, tasks in parts)

    def check_members(self, group: StreamsGroup) -> None:
        """What members believe; those that the group has removed learn it with their next heartbeat."""
        believers = [name for name in self.epochs if name in group.members and self.epochs[name] > 0]
        held = Counter(task for name in believers for task in in_role(self.tasks[name].active))
        assert not [task for task, count in held.items() if count > 1], "two members believe to process a task"

    def settle(self) -> None:
        """Everything works from now on: nothing is left to be done soon."""
        world = self.world
        world.replicas.holds, world.replicas.refuses = False, ErrorCode.NONE
        world.replicas.release()
        for log in world.replicas.logs.values():
            log.high_watermark = log.log_end_offset
        self.join()
        for advance_ms in (SESSION_MS - 1000, 2000, 0):  # members that only the coordinator knows are gone
            for _ in range(ROUNDS_MAX):
                self.send_all()
                self.topics |= self.absent
                self.absent = {}
                self.update()
            world.advance_ms(advance_ms)
        self.check()
        assert self.group is not None
        self.check_settled(self.group)
        before = world.log_of(GROUP).log_end_offset
        self.send_all()
        assert world.log_of(GROUP).log_end_offset == before, "nothing is left to be done"

    def send_all(self) -> None:
        for name in list(self.epochs):
            self.send(name)

    def check_settled(self, group: StreamsGroup) -> None:
        assert group.state is GroupState.STABLE
        assert group.members.keys() == self.epochs.keys()
        for name, member in group.members.items():
            assert member.epoch == group.epoch == self.epochs[name]
            assert member.assigned.without_epochs() == self.tasks[name] == group.target_of(name)
        every = {TaskId("0", i) for i in range(self.topics["t"])} | {TaskId("2", i) for i in range(3)}
        stateful = {TaskId(STATEFUL, i) for i in range(2)}
        active = Counter(task for tasks in self.tasks.values() for task in in_role(tasks.active))
        assert active == dict.fromkeys(every | stateful, 1)
        standby = Counter(task for tasks in self.tasks.values() for task in in_role(tasks.standby))
        others = len({self.process_of(name) for name in self.epochs}) - 1
        replicas = min(self.world.config.streams_num_standby_replicas, others)
        assert standby == (dict.fromkeys(stateful, replicas) if replicas else {})


@pytest.mark.parametrize("seed", sample(range(60), 3))
def test_walk(seed: int) -> None:
    Walk(seed).run()
