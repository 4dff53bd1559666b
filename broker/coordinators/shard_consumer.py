"""The consumer groups (KIP-848) of a shard: requests about them, their writes, timers and regular expressions.

Theory
A request becomes a turn (`consumer_group_turn.py`): records, timers, an answer. The records are appended first; only
if the log takes them do they change the group, at once, and the answer is given when they are committed. An answer
without records waits for what was written before it, since it may tell of that.

Threads: any; regular expressions are matched on `group-metadata-manager-0`.
Source: Kafka's GroupCoordinatorShard, CoordinatorRuntime (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from barnabas.broker.coordinators import consumer_group_records
from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators import offset_records as records
from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.consumer_group_heartbeat import HeartbeatTurn
from barnabas.broker.coordinators.consumer_group_migration import check_upgrade, to_consumer_group
from barnabas.broker.coordinators.consumer_group_records import ConsumerGroupRecord
from barnabas.broker.coordinators.consumer_group_situation import Situation
from barnabas.broker.coordinators.consumer_group_turn import Turn
from barnabas.broker.coordinators.consumer_group_types import Heartbeat, HeartbeatResult, ResolvedRegex
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.group_events import GroupState, TimerKey
from barnabas.broker.coordinators.shard_core import ShardCore, log_failure, nothing
from barnabas.broker.coordinators.shard_timers import TimerEntry
from barnabas.broker.coordinators.topic_regexes import resolve
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")

RETRY_MS = 500

T = TypeVar("T")

HeartbeatReply: TypeAlias = Callable[[HeartbeatResult | ApiError], object]


@dataclass(slots=True, frozen=True)
class Committer:
    """Who commits; `version` is the request's, the generation of a consumer group's member is its epoch."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    version: int


class ConsumerShard(ShardCore):
    """See the module."""

    def consumer_heartbeat(self, group_id: str, request: Heartbeat, reply: HeartbeatReply) -> None:
        """Handle a ConsumerGroupHeartbeat; `reply` is called once."""
        with self._mailbox:
            if error := self._offset_gate_locked():
                self._mailbox.say(partial(reply, ApiError(error)))
                return
            try:
                group, before = self._find_consumer_group_locked(group_id, request.epoch == t.JOIN_EPOCH)
                turn = HeartbeatTurn(group, self._situation_locked(group_id))
                result = turn.leave(request) if request.epoch < 0 else turn.heartbeat(request)
            except ApiError as refusal:
                self._mailbox.say(partial(reply, refusal))
                return
            self._write_turn_locked(
                turn, lambda error: self._mailbox.say(partial(reply, ApiError(error) if error else result)), before
            )

    def _find_consumer_group_locked(
        self, group_id: str, may_create: bool
    ) -> tuple[ConsumerGroup, Sequence[records.KeyValue]]:
        """The group, a new one if it may be created, and what is to be written before it begins.

        Raises ApiError(GROUP_ID_NOT_FOUND).
        """
        group = self.consumer_groups.get(group_id)
        if group is not None:
            return group, ()
        classic = self.groups.get(group_id)
        if may_create and classic is None:
            return ConsumerGroup(group_id), ()
        if may_create and classic is not None:
            tombstone = records.group_tombstone(group_id)
            if classic.state is GroupState.EMPTY:
                return ConsumerGroup(group_id), [tombstone]
            consumers = self._context.consumers
            check_upgrade(classic, consumers.settings)
            group, creation = to_consumer_group(classic, consumers.watch.look().snapshot)
            return group, [tombstone, *(consumer_group_records.encode(group_id, record) for record in creation)]
        kind = "not found" if classic is None else "is not a consumer group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")

    def _situation_locked(self, group_id: str) -> Situation:
        consumers = self._context.consumers
        picture, now_ms = consumers.watch.look(), self._context.clock.wall_ms()
        return Situation(picture, now_ms, consumers.settings, consumers.times_of(group_id))

    def _write_turn_locked(
        self, turn: Turn, settled: Callable[[ErrorCode], object], before: Sequence[records.KeyValue] = ()
    ) -> None:
        """Write a turn's records and, if the log takes them, carry it out; `settled` when they are committed.

        `before` are records that come first: those that end a classic group in whose place this one comes.
        """
        group, downgraded = turn.group, turn.downgraded
        batch = [*before, *(consumer_group_records.encode(group.group_id, record) for record in turn.records)]
        if downgraded is not None:
            batch.append(records.group_metadata(downgraded, downgraded.assignments()))
        if batch:
            if not self._append_locked(batch, nothing, settled):
                return
        else:
            self._after_writes_locked(settled)
        if before:
            self._replace_classic_locked(turn)
        self._carry_out_turn_locked(turn)

    def _carry_out_turn_locked(self, turn: Turn) -> None:
        """Let a turn whose records are in the log take effect."""
        group, downgraded = turn.group, turn.downgraded
        for record in turn.records:
            self._replay_locked(group, record)
        if turn.is_rebalance and self._context.sensors is not None:
            self._context.sensors.consumer_rebalances.record()
        if turn.has_looked:
            group.picture_seen = turn.situation.picture.number
        for timeout in turn.timeouts:
            self._set_timeout_locked(group.group_id, timeout)
        if downgraded is not None:
            self._become_classic_locked(downgraded, turn.must_rebalance)
        if turn.regexes_wanted:
            group.is_resolving = True
            topics = list(turn.situation.picture.snapshot.topics)
            version = turn.situation.picture.number
            self._context.consumers.background(
                partial(self._match, group.group_id, turn.regexes_wanted, topics, version)
            )

    def _replace_classic_locked(self, turn: Turn) -> None:
        """Put a consumer group into the place of a classic one; whoever waits there is told to join again."""
        group = turn.group
        classic = self.groups.pop(group.group_id)
        self.consumer_groups[group.group_id] = group
        self._timers.stop_group(group.group_id)
        for member in classic.members.by_id.values():
            join, sync = classic.members.take_join(member), member.awaiting_sync
            if join is not None:
                self._say(join, ev.JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            if sync is not None:
                member.awaiting_sync = None
                self._say(sync, ev.SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self._watch_members_locked(group)

    def _become_classic_locked(self, classic: Group, must_rebalance: bool) -> None:
        self._timers.stop_group(classic.group_id)
        self.groups[classic.group_id] = classic
        self._step_locked(classic, ev.TakenOver(must_rebalance))

    def _watch_members_locked(self, group: ConsumerGroup) -> None:
        turn = HeartbeatTurn(group, self._situation_locked(group.group_id))
        turn.watch_members()
        for timeout in turn.timeouts:
            self._set_timeout_locked(group.group_id, timeout)

    def _replay_locked(self, group: ConsumerGroup, record: t.Record) -> None:
        group.replay(record)
        if group.is_gone:
            self.consumer_groups.pop(group.group_id, None)
        elif group.group_id not in self.consumer_groups:
            self.groups.pop(group.group_id, None)
            self.consumer_groups[group.group_id] = group

    def _set_timeout_locked(self, group_id: str, timeout: t.Timeout) -> None:
        key = TimerKey(timeout.kind, timeout.member_id)
        if timeout.delay_ms is None or timeout.event is None:
            self._timers.stop(group_id, key)
        elif not (timeout.only_if_absent and self._timers.is_running(group_id, key)):
            self._timers.start(group_id, key, timeout.delay_ms, timeout.event)

    def _take_timeout_locked(self, group: ConsumerGroup, key: TimerKey, event: t.GroupEvent) -> None:
        turn = HeartbeatTurn(group, self._situation_locked(group.group_id))
        try:
            turn.expire(event)
        except ApiError as refusal:
            log.error("Member %s stays: %s", event.member_id, refusal)
            return
        self._write_turn_locked(turn, partial(self._taken_locked, group, key, event))

    def _taken_locked(self, group: ConsumerGroup, key: TimerKey, event: t.GroupEvent, error: ErrorCode) -> None:
        """Try again soon if a removal could not be written, unless the member was heard of meanwhile."""
        is_there = self.consumer_groups.get(group.group_id) is group and event.member_id in group.members
        if error and is_there and not self._timers.is_running(group.group_id, key):
            self._timers.start(group.group_id, key, RETRY_MS, event)

    def describe_consumer_group(self, group_id: str, look: Callable[[ConsumerGroup], T]) -> T:
        """Let `look` read a group under the lock. Raises ApiError."""
        with self._mailbox:
            if error := self._offset_gate_locked():
                raise ApiError(error)
            group, _ = self._find_consumer_group_locked(group_id, may_create=False)
            return look(group)

    def _any_group_locked(self, group_id: str) -> Group | ConsumerGroup | None:
        return self.groups.get(group_id) or self.consumer_groups.get(group_id)

    # Offsets

    def _consumer_commit_error_locked(
        self, who: Committer, partitions: Sequence[tuple[bytes, int]], *, is_transactional: bool
    ) -> ErrorCode:
        try:
            self.consumer_groups[who.group_id].check_commit(
                who.member_id, who.instance_id, who.generation_id, who.version, is_transactional=is_transactional,
                partitions=partitions,
            )  # fmt: skip
        except ApiError as error:
            is_stale = error.code == ErrorCode.STALE_MEMBER_EPOCH
            return ErrorCode.ILLEGAL_GENERATION if is_transactional and is_stale else error.code
        return ErrorCode.NONE

    def _consumer_fetch_error_locked(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        group = self.consumer_groups.get(group_id)
        try:
            if group is not None:
                group.check_fetch(member_id, epoch)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    # Answers that write nothing

    def _after_writes_locked(self, then: Callable[[ErrorCode], object]) -> None:
        """Go on when everything on its way is committed, so that nothing is told that may yet be lost."""
        self._catch_up_locked()
        if self._writes:
            self._after_last_write_locked(then)
        else:
            then(ErrorCode.NONE)

    # Regular expressions

    def _match(self, group_id: str, regexes: Iterable[str], topics: Sequence[str], version: int) -> None:
        """On the coordinator's own thread: a scan of all topics may take its time."""
        resolved = resolve(regexes, topics, version, self._context.clock.wall_ms())
        self._mailbox.post(partial(self._matched_locked, group_id, resolved))

    def _matched_locked(self, group_id: str, resolved: dict[str, ResolvedRegex]) -> None:
        group = self.consumer_groups.get(group_id)
        if group is None or self._gate_locked():
            return
        group.is_resolving = False
        turn = HeartbeatTurn(group, self._situation_locked(group_id))
        try:
            turn.take_resolved(resolved)
        except ApiError as refusal:
            log.error("Regular expressions are not matched: %s", refusal)
            return
        self._write_turn_locked(turn, log_failure)

    # Life

    def _fired_locked(self, entry: TimerEntry) -> None:
        group = self.consumer_groups.get(entry.group_id)
        if group is None:
            super()._fired_locked(entry)
        elif (event := self._timers.fired(entry)) is not None:
            self._take_timeout_locked(group, entry.key, event)

    def _replay_consumer_record(self, record: ConsumerGroupRecord) -> None:
        group = self.consumer_groups.get(record.group_id)
        if group is None:
            if is_tombstone(record.record):
                return
            group = ConsumerGroup(record.group_id)
        self._replay_locked(group, record.record)

    def _watch_consumer_groups_locked(self) -> None:
        for group in self.consumer_groups.values():
            self._watch_members_locked(group)

    # Removal

    def _end_empty_consumer_group_locked(self, group_id: str) -> None:
        """Make place for a classic group, whose first member joins. Its offsets stay."""
        group = self.consumer_groups.get(group_id)
        if group is not None and not group.members:
            self._remove_offsets_locked([], [group_id], log_failure)

    def _tombstones_locked(self, group_id: str) -> list[records.KeyValue]:
        group = self.consumer_groups.get(group_id)
        if group is None:
            return super()._tombstones_locked(group_id)
        return [consumer_group_records.encode(group_id, record) for record in group.tombstones()]

    def _forget_locked(self, group_id: str) -> None:
        if self.consumer_groups.pop(group_id, None) is None:
            super()._forget_locked(group_id)

    def _ensure_group_locked(self, group_id: str) -> None:
        if group_id not in self.consumer_groups:
            super()._ensure_group_locked(group_id)


def is_tombstone(record: t.Record) -> bool:
    """Whether a record only says that something is gone."""
    if isinstance(record, t.PartitionMetadata):
        return not record.exists
    return record[0 if isinstance(record, t.GroupEpoch | t.TargetEpoch) else 1] is None
