"""The classic groups of a shard: carries out the decisions of `classic/steps.py`.

Threads: owner is the shard, under its lock; every method wants it held.
Source: Kafka's GroupMetadataManager (classic groups, 4.3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.steps import step
from barnabas.broker.coordinators.groups.core import unchanged
from barnabas.broker.coordinators.offsets import records
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.core import ShardCore


class ClassicGroups:
    """The groups of the classic protocol, and those that only keep offsets."""

    __slots__ = ("_core", "groups")

    def __init__(self, core: ShardCore) -> None:
        self._core = core  # fixed before start
        self.groups: dict[str, Group] = {}  # by id; replaced whole when the shard ends

    # Life

    def replay(self, record: records.GroupRecord) -> None:
        """Apply a record while loading. Only the loader calls."""
        if record.group is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = record.group

    def activate(self) -> None:
        """Start the sessions of the members that were loaded."""
        for group in list(self.groups.values()):
            self.step(group, ev.Loaded())

    def detach_all(self) -> list[Group]:
        """Remove all groups; returns them for `dismiss`."""
        groups, self.groups = self.groups, {}
        return list(groups.values())

    def dismiss(self, groups: Iterable[Group]) -> None:
        """Send the waiting members of detached groups to the new coordinator."""
        for group in groups:
            for effect in self._effects(group, ev.Unload()):
                if isinstance(effect, ev.Answer) and effect.reply is not None:
                    self._core.answer_locked(effect.reply, effect.result)

    # Requests

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; the first member creates the group."""
        group = self.groups.get(group_id)
        if group is not None:
            self.step(group, event)
        elif event.member_id != ev.UNKNOWN_MEMBER_ID:
            self._core.answer_locked(event.reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
        else:
            self._create(group_id, event)

    def _create(self, group_id: str, event: ev.Join) -> None:
        now_ms = self._core.now_ms()
        group = self.groups[group_id] = Group(group_id, now_ms)
        self.step(group, event)
        done = ev.EmptyStored(0, reply=event.reply)
        self._core.append_locked([records.new_group(group_id, now_ms)], unchanged, partial(self._stored, group, done))

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup."""
        group = self.groups.get(group_id)
        if group is None:
            self._core.answer_locked(event.reply, ev.SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self.step(group, event)

    def heartbeat(self, group_id: str, event: ev.Heartbeat) -> ErrorCode:
        """Handle a Heartbeat."""
        group = self.groups.get(group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else self.ask(group, event)

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup."""
        group = self.groups.get(group_id)
        if group is None:
            unknown = tuple(
                ev.LeftMember(m.member_id, m.instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in event.members
            )
            self._core.answer_locked(event.reply, ev.LeaveResult(ErrorCode.NONE, unknown))
        else:
            self.step(group, event)

    # Changes from outside

    def ensure(self, group_id: str) -> None:
        """Create the group that a committed offset needs, if it does not exist."""
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._core.now_ms())

    def remove_upgraded(self, group_id: str) -> None:
        """Remove a group that became a consumer group; its parked members must join again."""
        group = self.groups.pop(group_id)
        self._core.timers.stop_group(group_id)
        for member in group.members.by_id.values():
            join, sync = group.members.take_join(member), member.awaiting_sync
            if join is not None:
                self._core.answer_locked(join, ev.JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            if sync is not None:
                member.awaiting_sync = None
                self._core.answer_locked(sync, ev.SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def add_downgraded(self, group: Group, must_rebalance: bool) -> None:
        """Add a group that was a consumer group until now."""
        self._core.timers.stop_group(group.group_id)
        self.groups[group.group_id] = group
        self.step(group, ev.Downgraded(must_rebalance))

    def tombstones(self, group_id: str) -> Sequence[records.KeyValue]:
        """Return the records that remove the group from the log."""
        return [records.group_tombstone(group_id)]

    def forget(self, group_id: str) -> None:
        """Drop a group whose tombstones were appended."""
        del self.groups[group_id]

    # The state machine

    def step(self, group: Group, event: ev.Event) -> None:
        """Feed an event to a group, and carry out the effects."""
        self._carry_out(group, self._effects(group, event))

    def ask(self, group: Group, event: ev.Heartbeat | ev.Commit) -> ErrorCode:
        """Feed an event that is always answered at once, and return the answer."""
        effects = self._effects(group, event)
        answer = effects.pop()
        assert isinstance(answer, ev.Answer)
        assert isinstance(answer.result, ErrorCode)
        self._carry_out(group, effects)
        return answer.result

    def _effects(self, group: Group, event: ev.Event) -> list[ev.Effect]:
        context = self._core.context
        effects = step(group, event, self._core.now_ms(), context.settings)
        if context.checks_invariants:
            group.invariants()
        return effects

    def _carry_out(self, group: Group, effects: list[ev.Effect]) -> None:
        core = self._core
        is_current = self.groups.get(group.group_id) is group  # else upgraded, or replaced by one of the same id
        for effect in effects:
            if isinstance(effect, ev.Answer):
                assert effect.reply is not None
                core.answer_locked(effect.reply, effect.result)
            elif not is_current:
                continue
            elif isinstance(effect, ev.StartTimer):
                if effect.key == ev.SYNC_TIMER:
                    core.context.sensors.completed_rebalances.record()  # the timer starts once for each generation
                core.timers.start(group.group_id, effect.key, effect.delay_ms, effect.event)
            elif isinstance(effect, ev.StopTimer):
                core.timers.stop(group.group_id, effect.key)
            else:
                record = records.group_metadata(group, effect.assignments)
                core.append_locked([record], unchanged, partial(self._stored, group, effect.done))

    def _stored(self, group: Group, done: ev.StoredEvent, error: ErrorCode) -> None:
        self.step(group, dataclasses.replace(done, error=error) if error else done)
