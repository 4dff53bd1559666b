"""A group of many members: its work for each member does not grow with their number."""

from __future__ import annotations

import sys
from typing import Any

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import GroupSettings, GroupState
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.steps import step
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.group_rig import RANGE


class Counted:
    """Steps of a group, with the number of functions that they called."""

    def __init__(self) -> None:
        self.group = Group("g", 0)
        self.calls = 0

    def step(self, event: ev.Event) -> list[ev.Effect]:
        sys.setprofile(self._count)
        try:
            return step(self.group, event, 0, GroupSettings(initial_rebalance_delay_ms=10))
        finally:
            sys.setprofile(None)

    def is_in(self, state: GroupState) -> bool:
        return self.group.state is state

    def _count(self, _frame: Any, event: str, _argument: Any) -> None:
        self.calls += event in ("call", "c_call")


def join(member_id: str, reply: str, new_id: str = "") -> ev.Join:
    return ev.Join(member_id, new_id, None, "client", "/127.0.0.1", 10_000, 30_000, "consumer", RANGE, 4, None, reply)


def calls_of_a_generation(count: int) -> int:
    """Let the members join, get their assignment and send a heartbeat."""
    counted, names = Counted(), [f"m{number}" for number in range(count)]
    for name in names:
        (_, answer) = counted.step(join("", name, name))
        assert isinstance(answer, ev.Answer)
        assert isinstance(answer.result, ev.JoinResult)
        assert answer.result.error is ErrorCode.MEMBER_ID_REQUIRED
    for name in names:
        counted.step(join(name, name))
    while not counted.is_in(GroupState.COMPLETING_REBALANCE):
        counted.step(ev.InitialDelayExpired(10, 0))
    for name in reversed(names):
        shares = dict.fromkeys(names, b"share") if name == counted.group.members.leader_id else {}
        effects = counted.step(ev.Sync(name, None, 1, None, None, shares, name))
        for effect in effects:
            if isinstance(effect, ev.Persist):
                assert isinstance(effect.done, ev.AssignmentStored)
                counted.step(effect.done)
    assert counted.is_in(GroupState.STABLE)
    for name in names:
        counted.step(ev.Heartbeat(name, None, 1, name))
    return counted.calls


def test_twice_the_members_are_twice_the_work() -> None:
    few, many = calls_of_a_generation(100), calls_of_a_generation(200)
    assert many < 2.1 * few
