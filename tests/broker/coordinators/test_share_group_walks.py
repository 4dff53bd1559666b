"""Random walks of share groups through a coordinator, seeded.

Members join, leave, fall silent and lose answers. Topics grow. Share coordinators are slow, away, and answer late.
Coordinators fail with writes that no other broker has. Administrators alter and delete offsets.

Whatever happens, a member reads only partitions whose state is initialised, and a share coordinator never goes back to
an older epoch. At the end every partition has members, every member its part, and nothing is left to be done. (What a
coordinator began for a topic that nobody reads any more stays as it is, until somebody reads it or deletes its state.)
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.values import Heartbeat, HeartbeatResult
from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.support.sample import sample

STEPS = 120
GROUP = "g"
SESSION_MS = 45_000
ROUNDS_MAX = 12


class Walk:
    """One walk: members are names, and what they know of their epochs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.topics = {"t": 2, "u": 1, "__consumer_offsets": 2}
        self.world.cache.snapshot = snapshot(self.topics)
        self.epochs: dict[str, int] = {}  # of members that believe to be one
        self.reads: dict[str, frozenset[str]] = {}  # topics
        self.last_epochs: dict[SharePartitionKey, int] = {}
        self.next_name = 0

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.random.choice(
                [self.beat] * 8 + [self.join] * 3
                + [self.leave, self.silence, self.grow, self.writes, self.fail, self.administer] + [self.shares] * 2
            )  # fmt: skip
            step()
            self.check()
        self.settle()

    # Steps

    def join(self) -> None:
        if len(self.epochs) < 5:
            self.next_name += 1
            name = f"m{self.next_name}"
            self.reads[name] = frozenset(self.random.choice(["t", "u", "tu"]))
            self.epochs[name] = 0
            self.send(name)

    def beat(self) -> None:
        if self.epochs:
            self.send(self.random.choice(list(self.epochs)), is_lost=self.random.random() < 0.15)

    def leave(self) -> None:
        if self.epochs:
            name = self.random.choice(list(self.epochs))
            self.epochs[name] = -1
            self.send(name)
            self.epochs.pop(name, None)

    def silence(self) -> None:
        """Time passes; members that send nothing for long enough are removed."""
        self.world.advance_ms(self.random.choice([100, 20_000, SESSION_MS + 1000]))

    def grow(self) -> None:
        name = self.random.choice("tu")
        self.topics[name] = min(self.topics[name] + 1, 5)
        self.world.cache.snapshot = snapshot(self.topics)

    def writes(self) -> None:
        """Writes hang, are refused, or go on and end in whatever way."""
        replicas = self.world.replicas
        how = self.random.choice(["hang", "refuse", "commit", "time out", "go on"])
        replicas.holds = how == "hang"
        replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS if how == "refuse" else ErrorCode.NONE
        if how in ("commit", "time out"):
            replicas.release(ErrorCode.REQUEST_TIMED_OUT if how == "time out" else ErrorCode.NONE)

    def shares(self) -> None:
        """Share coordinators are slow, away for some partitions, or catch up."""
        persister = self.world.persister
        persister.holds = self.random.random() < 0.4
        partitions = self.random.sample(range(5), self.random.choice([0, 0, 2, 5]))
        persister.refuses = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not persister.holds:
            persister.release()

    def fail(self) -> None:
        """The coordinator fails, with writes that no other broker has; share coordinators still get its requests."""
        if self.random.random() < 0.5:
            for log in self.world.replicas.logs.values():
                log.truncate(log.high_watermark)
        self.world.replicas.waiting.clear()
        self.world.replicas.holds, self.world.replicas.refuses = False, ErrorCode.NONE
        self.world.fail_over()

    def administer(self) -> None:
        offsets = {self.random.choice("tu"): {0: self.random.randrange(100)}}
        topic = self.random.choice("tu")
        if self.random.random() < 0.5:
            self.ask(lambda shares: shares.changes.alter_offsets(GROUP, offsets, lambda _answer: None))
        else:
            self.ask(lambda shares: shares.changes.delete_offsets(GROUP, [topic], lambda _answer: None))

    # What members do

    def send(self, name: str, *, is_lost: bool = False) -> None:
        epoch = self.epochs[name]
        names = self.reads[name] if epoch == 0 else None
        request = Heartbeat(name, epoch, topic_names=names)
        reply = (lambda _answer: None) if is_lost else (lambda answer: self.answered(name, answer))
        self.ask(lambda shares: shares.heartbeat(GROUP, request, reply))

    def answered(self, name: str, answer: HeartbeatResult | ApiError) -> None:
        if name not in self.epochs or self.epochs[name] < 0:
            return
        if isinstance(answer, HeartbeatResult):
            self.epochs[name] = max(self.epochs[name], answer.epoch)
        elif answer.code in (
            ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND,
        ):  # fmt: skip
            self.epochs[name] = 0

    def ask(self, change: Any) -> None:
        self.world.coordinator.shard_of(GROUP).change_shares(change, lambda _error: None)

    # What must hold

    def check(self) -> None:
        self.world.coordinator.invariants()
        for key, (epoch, _) in self.world.persister.states.items():
            assert epoch >= self.last_epochs.get(key, 0), f"{key} went back"
            self.last_epochs[key] = epoch
        for key in self.last_epochs.keys() - self.world.persister.states.keys():
            del self.last_epochs[key]
        group = self.world.coordinator.shard_of(GROUP).share_groups.get(GROUP)
        for assignment in () if group is None else group.target.values():
            for topic_id, partitions in assignment.items():
                name = self.world.cache.snapshot.topic_names[topic_id]
                assert all(partition < self.topics[name] for partition in partitions)

    def settle(self) -> None:
        """Everything works from now on: nothing is left to be done soon."""
        world = self.world
        world.replicas.holds, world.replicas.refuses = False, ErrorCode.NONE
        world.replicas.release()
        for log in world.replicas.logs.values():
            log.high_watermark = log.log_end_offset
        world.persister.holds, world.persister.refuses = False, {}
        world.persister.release()
        self.join()
        self.send_all(ROUNDS_MAX)
        world.advance_ms(SESSION_MS - 1000)
        self.send_all(ROUNDS_MAX)
        world.advance_ms(2000)  # members that only the coordinator knows are gone
        self.send_all(ROUNDS_MAX)
        self.check()
        self.check_settled(world.coordinator.shard_of(GROUP).share_groups[GROUP])
        before = world.log_of(GROUP).log_end_offset
        self.send_all(1)
        assert world.log_of(GROUP).log_end_offset == before, "nothing is left to be done"

    def send_all(self, rounds: int) -> None:
        for _ in range(rounds):
            for name in list(self.epochs):
                self.send(name)

    def check_settled(self, group: ShareGroup) -> None:
        members = group.members.values()
        assert group.members.keys() == self.epochs.keys()
        for topic_id, part in group.partitions.initializing.items():
            if part.name in group.topic_names:  # an alteration that another coordinator began
                assert part.partitions <= group.partitions.initialized[topic_id].partitions
        assert all(member.epoch == group.epoch == group.assignment_epoch and member.assigned for member in members)
        held = {(topic_id, p) for m in members for topic_id, found in m.assigned.items() for p in found}
        for name in group.topic_names:
            topic_id = self.world.cache.snapshot.topics[name].id
            for partition in range(self.topics[name]):
                assert (topic_id, partition) in held, f"nobody reads {name}-{partition}"
                assert SharePartitionKey(GROUP, topic_id, partition) in self.world.persister.states


@pytest.mark.parametrize("seed", [*sample(range(60), 3), 1191, 2127])
def test_walk(seed: int) -> None:
    Walk(seed).run()
