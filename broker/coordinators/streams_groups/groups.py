"""The streams groups (KIP-1071) of a shard: requests, writes and timers.

Theory
A request becomes a turn (`turn.py`): records, timers and an answer. The records are appended first. If the log takes
them, they change the group at once, and the request is answered when they are committed. An answer without records
waits for all earlier writes, since it may depend on them.

Threads: owner is the shard, under its lock; every method wants it held.
Source: Kafka's GroupCoordinatorShard, GroupMetadataManager, CoordinatorRuntime (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.classic.events import GroupState as ClassicState
from barnabas.broker.coordinators.classic.events import TimerKey
from barnabas.broker.coordinators.consumer.values import MemberExpired, RevocationExpired, Timeout
from barnabas.broker.coordinators.groups.core import log_failure, unchanged
from barnabas.broker.coordinators.offsets import records
from barnabas.broker.coordinators.streams_groups import heartbeats
from barnabas.broker.coordinators.streams_groups import records as streams_records
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.environment import Environment
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.turn import Turn
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.classic_groups import ClassicGroups
    from barnabas.broker.coordinators.groups.core import ShardCore
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.streams_groups.records import StreamsGroupRecord

log = logging.getLogger("barnabas.group")

RETRY_MS: Final = 500
DELAY_TIMER: Final = TimerKey("assignment")  # of the initial rebalance delay


class StreamsGroups:
    """The groups of the streams protocol."""

    __slots__ = ("_classic", "_core", "_is_other_kind", "groups")

    def __init__(self, core: ShardCore, classic: ClassicGroups, is_other_kind: Callable[[str], bool]) -> None:
        """`is_other_kind` says whether a consumer group or a share group has an id."""
        self._core = core  # fixed before start
        self._classic = classic  # fixed before start
        self._is_other_kind = is_other_kind  # fixed before start
        self.groups: dict[str, StreamsGroup] = {}  # by id; replaced whole when the shard ends

    # Life

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply a record while loading. Only the loader calls."""
        group = self.groups.get(record.group_id)
        if group is None:
            if v.is_tombstone(record.record):
                return
            group = StreamsGroup(record.group_id)
        self._apply(group, record.record)

    def activate(self) -> None:
        """Start the timers of the members that were loaded."""
        for group in self.groups.values():
            turn = self._turn(group)
            heartbeats.watch_members(turn)
            self._set_timeouts(turn)

    def release(self) -> None:
        """Drop all groups."""
        self.groups = {}

    # Requests

    def heartbeat(self, group_id: str, request: v.Heartbeat, reply: Completion[v.HeartbeatResult | ApiError]) -> None:
        """Handle a StreamsGroupHeartbeat."""
        core = self._core
        before: Sequence[records.KeyValue] = ()
        try:
            if request.epoch == v.JOIN_EPOCH:
                group, before = self._find_or_create(group_id)
            else:
                group = self.find(group_id, "Group" if request.epoch == v.LEAVE_EPOCH else "Streams group")
            turn = self._turn(group)
            decide = heartbeats.leave if request.epoch == v.LEAVE_EPOCH else heartbeats.heartbeat
            result = decide(turn, request)
        except ApiError as refusal:
            core.answer_locked(reply, refusal)
            return
        self._write_turn(turn, lambda error: core.answer_locked(reply, ApiError(error) if error else result), before)

    def find(self, group_id: str, subject: str = "Group") -> StreamsGroup:
        """Return the group. Raises ApiError(GROUP_ID_NOT_FOUND); `subject` begins its message, as in Kafka."""
        group = self.groups.get(group_id)
        if group is None:
            is_other = group_id in self._classic.groups or self._is_other_kind(group_id)
            message = f"Group {group_id} is not a streams group." if is_other else f"{subject} {group_id} not found."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        return group

    def _find_or_create(self, group_id: str) -> tuple[StreamsGroup, Sequence[records.KeyValue]]:
        """Return the group, a new one if it may be created, and the records that come before its first one.

        A new group may take the place of a classic group without members, and keeps its offsets. Raises
        ApiError(GROUP_ID_NOT_FOUND).
        """
        classic = self._classic.groups.get(group_id)
        is_new = group_id not in self.groups and not self._is_other_kind(group_id)
        if is_new and classic is None:
            return StreamsGroup(group_id), ()
        if is_new and classic is not None and classic.state is ClassicState.EMPTY:
            return StreamsGroup(group_id), [records.group_tombstone(group_id)]
        return self.find(group_id), ()

    def commit_error(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int, version: int,
        partitions: Sequence[tuple[str, int]], *, is_transactional: bool,
    ) -> ErrorCode:  # fmt: skip
        """Return why a member in `epoch` may not commit these (topic, partition)s, or NONE.

        `version` is that of the OffsetCommit.
        """
        try:
            self.groups[group_id].check_commit(
                member_id, instance_id, epoch, version, is_transactional=is_transactional, partitions=partitions
            )
        except ApiError as error:
            is_stale = error.code == ErrorCode.STALE_MEMBER_EPOCH
            return ErrorCode.ILLEGAL_GENERATION if is_transactional and is_stale else error.code
        return ErrorCode.NONE

    def fetch_error(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return why a member in `epoch` may not fetch offsets, or NONE."""
        group = self.groups.get(group_id)
        try:
            if group is not None:
                group.check_fetch(member_id, epoch)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    # Turns

    def _turn(self, group: StreamsGroup) -> Turn:
        context = self._core.context
        streams = context.streams
        environment = Environment(
            context.consumers.watch.latest(), self._core.now_ms(), streams.settings, streams.config_of(group.group_id)
        )
        return Turn(
            group, environment, is_new=group.group_id not in self.groups,
            is_delayed=self._core.timers.is_running(group.group_id, DELAY_TIMER),
        )  # fmt: skip

    def _write_turn(self, turn: Turn, settled: Completion[ErrorCode], before: Sequence[records.KeyValue] = ()) -> None:
        """Append a turn's records and, if the log takes them, carry the turn out; `settled` when they are committed.

        The records `before` come first: they end the classic group that this one replaces.
        """
        group_id = turn.group.group_id
        batch = [*before, *(streams_records.encode(group_id, record) for record in turn.records)]
        if not batch:
            self._core.writes.after_all(settled)
        elif not self._core.append_locked(batch, unchanged, settled):
            if turn.has_assigned:  # Why: else every heartbeat would assign all tasks again, as long as the log refuses
                turn.group.assignment_refused_ms = turn.environment.now_ms
            self._core.keep_members_locked(group_id, turn.timeouts)
            return
        if before:
            self._classic.remove_upgraded(group_id)
        self._carry_out(turn)

    def _carry_out(self, turn: Turn) -> None:
        """Apply a turn whose records are in the log."""
        group, context = turn.group, self._core.context
        for record in turn.records:
            self._apply(group, record)
        if context.checks_invariants:
            group.invariants()
        if turn.is_rebalance:
            context.sensors.streams_rebalances.record()
        group.configured = turn.configured
        # Why only then: the first assignment leaves it to the next heartbeat to note that topics have changed.
        if turn.has_compared_topics and turn.metadata_hash == group.metadata_hash:
            group.image_compared = turn.environment.image.number
        if not turn.is_new:  # no response has named it to a member
            group.endpoint_epoch = turn.endpoint_epoch
        if group.members:
            group.shutdown_member_id = turn.shutdown_member_id
        self._set_timeouts(turn)
        if turn.assignment_delay_ms:
            self._core.timers.start(group.group_id, DELAY_TIMER, turn.assignment_delay_ms, v.AssignmentDue())

    def _apply(self, group: StreamsGroup, record: v.Record) -> None:
        group.replay(record)
        if group.is_gone:
            self.groups.pop(group.group_id, None)
        else:
            self.groups[group.group_id] = group

    # Timers

    def expire(self, group: StreamsGroup, key: TimerKey, event: MemberExpired | RevocationExpired) -> None:
        """Handle a timer of a member that expired."""
        turn = self._turn(group)
        try:
            heartbeats.expire(turn, event)
        except ApiError as refusal:
            log.error("Member %s is not removed: %s", event.member_id, refusal)
            return
        self._write_turn(turn, partial(self._expiry_settled, group, key, event))

    def _expiry_settled(
        self, group: StreamsGroup, key: TimerKey, event: MemberExpired | RevocationExpired, error: ErrorCode
    ) -> None:
        """Try again soon if the removal could not be written, unless the member sent a request meanwhile."""
        exists = self.groups.get(group.group_id) is group and event.member_id in group.members
        if error and exists and not self._core.timers.is_running(group.group_id, key):
            self._core.timers.start(group.group_id, key, RETRY_MS, event)

    def assign_first(self, group: StreamsGroup) -> None:
        """Assign tasks after the initial rebalance delay. If that fails, the next heartbeat assigns them."""
        turn = self._turn(group)
        try:
            heartbeats.assign_first(turn)
        except ApiError as refusal:
            log.error("Tasks of streams group %s are not assigned: %s", group.group_id, refusal)
            return
        self._write_turn(turn, log_failure)

    def _set_timeouts(self, turn: Turn) -> None:
        for timeout in turn.timeouts:
            self._set_timeout(turn.group.group_id, timeout)

    def _set_timeout(self, group_id: str, timeout: Timeout) -> None:
        timers, key = self._core.timers, TimerKey(timeout.kind, timeout.member_id)
        if timeout.delay_ms is None or timeout.event is None:
            timers.stop(group_id, key)
        else:
            timers.start(group_id, key, timeout.delay_ms, timeout.event)

    # Removal

    def tombstones(self, group_id: str) -> Sequence[records.KeyValue]:
        """Return the records that remove the group from the log."""
        return [streams_records.encode(group_id, record) for record in self.groups[group_id].tombstones()]

    def forget(self, group_id: str) -> None:
        """Drop a group whose tombstones were appended."""
        self.groups.pop(group_id).is_gone = True
