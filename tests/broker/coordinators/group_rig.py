"""Drives one classic group: clients join and sync by name, and timers fire when time passes.

Shared by the tests of the state machine.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import GroupSettings, TimerKey
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.steps import step
from barnabas.protocol.errors import ErrorCode

RANGE = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),)
ROUND_ROBIN_TOO = (*RANGE, ("roundrobin", b"rr"))


class GroupShardRig:
    """Drives a Group the way a shard does, and writes down what it answers."""

    def __init__(self, settings: GroupSettings | None = None, *, stores: bool = True) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.now_ms = 1000
        self.group = Group("g", self.now_ms)
        self.timers: dict[TimerKey, tuple[int, ev.Event]] = {}
        self.answers: dict[str, Any] = {}
        self.answer_counts: dict[str, int] = {}
        self.persisted: list[ev.Persist] = []
        self.unstored: list[ev.StoredEvent] = []
        self.stores = stores  # False: writes wait for `store`
        self.versions: dict[str, int] = {}

    def step(self, event: ev.Event) -> None:
        effects = step(self.group, event, self.now_ms, self.settings)
        self.group.invariants()
        for effect in effects:
            if isinstance(effect, ev.Answer):
                self.answers[effect.reply] = effect.result
                self.answer_counts[effect.reply] = self.answer_counts.get(effect.reply, 0) + 1
            elif isinstance(effect, ev.StartTimer):
                self.timers[effect.key] = (self.now_ms + effect.delay_ms, effect.event)
            elif isinstance(effect, ev.StopTimer):
                self.timers.pop(effect.key, None)
            else:
                self.persisted.append(effect)
                self.unstored.append(effect.done)
        if self.stores:
            self.store()
        self._run_due()

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Report the outcome of every write so far."""
        import dataclasses

        waiting, self.unstored = self.unstored, []
        for done in waiting:
            self.step(dataclasses.replace(done, error=error))

    def advance(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        until = self.now_ms + ms
        while True:
            due = min(((at, key) for key, (at, _) in self.timers.items() if at <= until), default=None)
            if due is None:
                break
            self.now_ms = max(self.now_ms, due[0])
            self._fire(due[1])
        self.now_ms = until

    def _run_due(self) -> None:
        while due := [key for key, (at, _) in self.timers.items() if at <= self.now_ms]:
            self._fire(due[0])

    def _fire(self, key: TimerKey) -> None:
        _, event = self.timers.pop(key)
        self.step(event)

    # What clients do; `tag` names the request, and the answer is found under it.

    def join(
        self, tag: str, member_id: str = "", *, version: int = 3, protocols: ev.Protocols = RANGE,
        instance_id: str | None = None, session_ms: int = 10_000, rebalance_ms: int = 30_000, new_id: str | None = None,
        protocol_type: str = "consumer",
    ) -> Any:  # fmt: skip
        self.step(
            ev.Join(
                member_id, new_id or tag, instance_id, "client", "/127.0.0.1", session_ms, rebalance_ms, protocol_type,
                protocols, version, None, tag,
            )
        )  # fmt: skip
        return self.answers.get(tag)

    def sync(
        self, tag: str, member_id: str, generation_id: int | None = None, *, instance_id: str | None = None,
        protocol_name: str | None = None, **assignments: bytes,
    ) -> Any:  # fmt: skip
        generation = self.group.generation_id if generation_id is None else generation_id
        self.step(ev.Sync(member_id, instance_id, generation, None, protocol_name, assignments, tag))
        return self.answers.get(tag)

    def heartbeat(self, member_id: str, generation_id: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation_id if generation_id is None else generation_id
        self.step(ev.Heartbeat(member_id, instance_id, generation, "heartbeat"))
        return self.answers["heartbeat"]

    def commit(
        self, member_id: str, generation_id: int, instance_id: str | None = None, *, transactional: bool = False
    ) -> ErrorCode:
        self.step(ev.Commit(member_id, instance_id, generation_id, "commit", transactional))
        return self.answers["commit"]

    def leave(self, *members: ev.LeavingMember) -> ev.LeaveResult | None:
        self.answers.pop("leave", None)
        self.step(ev.Leave(members, "leave"))
        return self.answers.get("leave")

    def make_stable(self, *ids: str, **options: Any) -> GroupShardRig:
        """Bring a group of these members, the first of which leads, to Stable."""
        self.settings = GroupSettings(initial_rebalance_delay_ms=10, max_size=self.settings.max_size)
        for member_id in ids:
            self.join(member_id, **options)
        self.advance(1000)
        for member_id in ids[1:]:
            self.sync(f"sync-{member_id}", member_id)
        self.sync(f"sync-{ids[0]}", ids[0], **{member_id: member_id.encode() for member_id in ids})
        self.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=self.settings.max_size)
        assert self.group.state is ev.GroupState.STABLE
        return self
