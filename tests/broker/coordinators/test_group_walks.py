"""Random walks through the classic state machine, seeded: every request is answered exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.coordinators.classic.events import GroupSettings, GroupState, LeavingMember
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.group_rig import RANGE, ROUND_ROBIN_TOO, GroupShardRig
from tests.support.sample import sample

STEPS = 120


class Walk:
    """One walk; clients are numbered, some are static, and they act on their last response."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        settings = GroupSettings(initial_rebalance_delay_ms=self.random.choice([0, 100]), max_size=5)
        self.rig = GroupShardRig(settings, stores=self.random.random() < 0.5)
        self.asked: set[str] = set()
        self.ids: list[str] = []

    def tag(self, kind: str) -> str:
        tag = f"{kind}{len(self.asked)}"
        self.asked.add(tag)
        return tag

    def some_id(self) -> str:
        current = list(self.rig.group.members.by_id) + list(self.rig.group.members.pending_join)
        return self.random.choice([*current, *current, *self.ids[-3:], "ghost"])

    def join_new(self) -> None:
        tag = self.tag("join")
        self.ids.append(tag)
        instance_id = self.random.choice([None, None, "i1", "i2"])
        self.rig.join(
            tag, version=self.random.choice([3, 5, 9]), instance_id=instance_id, protocols=self.protocols(),
            session_ms=self.random.choice([500, 3000]), rebalance_ms=self.random.choice([400, 2000]),
        )  # fmt: skip

    def join_again(self) -> None:
        member_id = self.some_id()
        member = self.rig.group.members.by_id.get(member_id)
        instance_id = member.instance_id if member is not None and self.random.random() < 0.8 else None
        self.rig.join(
            self.tag("join"), member_id, version=9, protocols=self.protocols(), instance_id=instance_id,
            session_ms=1000, rebalance_ms=1000,
        )  # fmt: skip

    def protocols(self) -> Any:
        return self.random.choice([RANGE, RANGE, ROUND_ROBIN_TOO])

    def sync(self) -> None:
        generation = self.rig.group.generation_id - (self.random.random() < 0.1)
        self.rig.sync(self.tag("sync"), self.some_id(), generation)

    def heartbeat(self) -> None:
        self.rig.heartbeat(self.some_id())

    def commit(self) -> None:
        error = self.rig.commit(self.some_id(), self.rig.group.generation_id)
        assert not (error is ErrorCode.NONE and self.rig.group.state is GroupState.COMPLETING_REBALANCE)

    def leave(self) -> None:
        self.rig.leave(LeavingMember(self.some_id()))

    def pass_time(self) -> None:
        self.rig.advance(self.random.choice([10, 100, 600]))

    def store(self) -> None:
        self.rig.store(self.random.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))

    def go(self) -> None:
        deeds: list[Callable[[], None]] = [
            self.join_new, self.join_again, self.join_again, self.sync, self.sync, self.heartbeat, self.commit,
            self.leave, self.pass_time, self.store,
        ]  # fmt: skip
        generation = 0
        for _ in range(STEPS):
            self.random.choice(deeds)()
            group = self.rig.group
            assert group.generation_id >= generation
            generation = group.generation_id


@pytest.mark.parametrize("seed", sample(range(150), 3))
def test_walk(seed: int) -> None:
    walk = Walk(seed)
    walk.go()
    rig = walk.rig
    for _ in range(5):  # everybody falls silent
        rig.store()
        rig.advance(600_000)
    assert rig.group.state is GroupState.EMPTY
    assert {tag for tag in walk.asked if rig.answer_counts.get(tag) != 1} == set()
    assert rig.timers == {}
