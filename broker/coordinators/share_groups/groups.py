"""The share groups (KIP-932) of a shard: their members' requests, writes and timers.

Theory
A request becomes a turn (`turn.py`): records, timers, an answer, and share partitions that are to be initialised. The
records are appended first. If the log takes them, they change the group at once. The request is answered when they are
committed. Only then does the coordinator ask the share coordinators (`state_changes.py`). An answer does not wait for
them: the member gets the partitions with a later heartbeat.

Threads: owner is the shard, under its lock; every method wants it held.
Source: Kafka's GroupCoordinatorShard, GroupCoordinatorService, CoordinatorRuntime (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic.events import TimerKey
from barnabas.broker.coordinators.consumer.values import MemberExpired, Timeout
from barnabas.broker.coordinators.groups.core import log_failure, unchanged
from barnabas.broker.coordinators.share_groups import heartbeats
from barnabas.broker.coordinators.share_groups import partitions as parts
from barnabas.broker.coordinators.share_groups import records as share_records
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.environment import Environment
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.state_changes import StateChanges
from barnabas.broker.coordinators.share_groups.turn import Turn
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.core import ShardCore
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_groups.records import KeyValue, ShareGroupRecord

log = logging.getLogger("barnabas.group")

RETRY_MS = 500


class ShareGroups:
    """The groups of the share protocol."""

    __slots__ = ("_core", "_is_other_kind", "changes", "groups")

    def __init__(self, core: ShardCore, is_other_kind: Callable[[str], bool]) -> None:
        """`is_other_kind` says whether a group of another kind has an id."""
        self._core = core  # fixed before start
        self._is_other_kind = is_other_kind  # fixed before start
        self.groups: dict[str, ShareGroup] = {}  # by id; replaced whole when the shard ends
        self.changes = StateChanges(core, self)  # fixed before start

    # Life

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a record while loading. Only the loader calls."""
        group = self.groups.get(record.group_id)
        if group is None:
            if v.is_tombstone(record.record):
                return
            group = ShareGroup(record.group_id)
        self._apply(group, record.record)

    def activate(self) -> None:
        """Start the sessions of the members that were loaded, and forget topics that were replaced meanwhile."""
        for group in self.groups.values():
            turn = Turn(group, self.environment(group.group_id))
            heartbeats.watch_members(turn)
            self._set_timeouts(turn)
        self.forget_topics(self._replaced())

    def release(self) -> None:
        """Drop all groups."""
        self.groups = {}

    # Requests

    def heartbeat(self, group_id: str, request: v.Heartbeat, reply: Completion[v.HeartbeatResult | ApiError]) -> None:
        """Handle a ShareGroupHeartbeat."""
        core = self._core
        try:
            group = self.find_or_create(group_id) if request.epoch == v.JOIN_EPOCH else self.find(group_id)
            turn = Turn(group, self.environment(group_id))
            decide = heartbeats.leave if request.epoch == v.LEAVE_EPOCH else heartbeats.heartbeat
            result = decide(turn, request)
        except ApiError as refusal:
            core.answer_locked(reply, refusal)
            return
        self.write_turn(turn, lambda error: core.answer_locked(reply, ApiError(error) if error else result))

    def find(self, group_id: str) -> ShareGroup:
        """Return the group. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            kind = "is not a share group" if self._is_other_kind(group_id) else "not found"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
        return group

    def find_or_create(self, group_id: str) -> ShareGroup:
        """Return the group; a new one if no group has this id. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        if group_id in self.groups or self._is_other_kind(group_id):
            return self.find(group_id)
        return ShareGroup(group_id)

    # Turns

    def environment(self, group_id: str) -> Environment:
        """Return the environment of a turn that is decided now."""
        context = self._core.context
        shares = context.shares
        image = context.consumers.watch.latest()
        return Environment(image, self._core.now_ms(), shares.settings, shares.times_of(group_id))

    def write_turn(self, turn: Turn, settled: Completion[ErrorCode]) -> None:
        """Append a turn's records and, if the log takes them, carry the turn out; `settled` when they are committed."""
        group = turn.group
        starts = {topic_id: dict.fromkeys(found, NO_START_OFFSET) for topic_id, found in turn.initializes.items()}
        written = self.changes.after_write(group, turn.epoch, starts, settled)
        if not turn.records:
            self._core.writes.after_all(written)
        elif not self.append([(group, turn.records)], written):
            self._core.keep_members_locked(group.group_id, turn.timeouts)
            return
        if turn.is_rebalance:
            self._core.context.sensors.share_rebalances.record()
        image = turn.environment.image
        if turn.has_compared_topics:
            group.image_compared = image.number
        if turn.is_settled:
            group.settled = (image.number, group.changes)
        self._set_timeouts(turn)

    def append(self, changes: Sequence[tuple[ShareGroup, Sequence[v.Record]]], settled: Completion[ErrorCode]) -> bool:
        """Append the records of groups as one batch and apply them; False, with `settled` posted, when refused."""
        batch = [share_records.encode(group.group_id, record) for group, found in changes for record in found]
        if not self._core.append_locked(batch, unchanged, settled):
            return False
        for group, found in changes:
            for record in found:
                self._apply(group, record)
            if self._core.context.checks_invariants:
                group.invariants()
        return True

    def _apply(self, group: ShareGroup, record: v.Record) -> None:
        group.replay(record)
        if group.is_gone:
            self.groups.pop(group.group_id, None)
        else:
            self.groups[group.group_id] = group

    # Timers

    def expire(self, group: ShareGroup, key: TimerKey, event: MemberExpired) -> None:
        """Handle a session that expired."""
        turn = Turn(group, self.environment(group.group_id))
        try:
            heartbeats.expire(turn, event)
        except ApiError as refusal:
            log.error("Member %s is not removed: %s", event.member_id, refusal)
            return
        self.write_turn(turn, partial(self._expiry_settled, group, key, event))

    def _expiry_settled(self, group: ShareGroup, key: TimerKey, event: MemberExpired, error: ErrorCode) -> None:
        """Try again soon if the removal could not be written, unless the member sent a request meanwhile."""
        exists = self.groups.get(group.group_id) is group and event.member_id in group.members
        if error and exists and not self._core.timers.is_running(group.group_id, key):
            self._core.timers.start(group.group_id, key, RETRY_MS, event)

    def _set_timeouts(self, turn: Turn) -> None:
        for timeout in turn.timeouts:
            self._set_timeout(turn.group.group_id, timeout)

    def _set_timeout(self, group_id: str, timeout: Timeout) -> None:
        timers, key = self._core.timers, TimerKey(timeout.kind, timeout.member_id)
        if timeout.delay_ms is None or timeout.event is None:
            timers.stop(group_id, key)
        else:
            timers.start(group_id, key, timeout.delay_ms, timeout.event)

    # Topics that are deleted

    def forget_topics(self, topic_ids: Collection[bytes]) -> None:
        """Remove deleted topics from all groups. The share coordinators delete their state by themselves."""
        for group in self.groups.values():
            after = parts.forget(group.partitions, topic_ids)
            if after != group.partitions:  # Why one by one: the log may refuse the records of all groups as too large
                self.append([(group, [v.StatePartitions(after)])], log_failure)

    def _replaced(self) -> set[bytes]:
        """Return the topics whose names belong to other topics now."""
        current_id = self._core.context.consumers.watch.topic_id
        exists = self._core.context.consumers.watch.latest().snapshot.topics
        return {id_ for id_, name in self._topic_names() if name in exists and current_id(name) != id_}

    def _topic_names(self) -> Iterable[tuple[bytes, str]]:
        for group in self.groups.values():
            for topics in (group.partitions.initializing, group.partitions.initialized):
                yield from ((topic_id, part.name) for topic_id, part in topics.items())
            yield from group.partitions.deleting.items()

    # Removal

    def tombstones(self, group_id: str) -> Sequence[KeyValue]:
        """Return the records that remove the group from the log."""
        return [share_records.encode(group_id, record) for record in self.groups[group_id].tombstones()]

    def forget(self, group_id: str) -> None:
        """Drop a group whose tombstones were appended."""
        self.groups.pop(group_id).is_gone = True
