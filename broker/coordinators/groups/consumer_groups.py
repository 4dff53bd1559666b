"""The consumer groups (KIP-848) of a shard: requests, writes, timers and regular expressions.

Theory
A request becomes a turn (`consumer/turn.py`): records, timers and an answer. The records are appended first. If the log
takes them, they change the group at once, and the request is answered when they are committed. An answer without
records waits for all earlier writes, since it may depend on them.

Threads: owner is the shard, under its lock; every method wants it held unless it says otherwise. Regular expressions
are matched on `group-coordinator-background-0`.
Source: Kafka's GroupCoordinatorShard, CoordinatorRuntime (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic.events import GroupState, TimerKey
from barnabas.broker.coordinators.consumer import heartbeats
from barnabas.broker.coordinators.consumer import records as consumer_records
from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.environment import Environment
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.migration import check_upgrade, to_consumer_group
from barnabas.broker.coordinators.consumer.records import ConsumerGroupRecord
from barnabas.broker.coordinators.consumer.topic_regexes import resolve
from barnabas.broker.coordinators.consumer.turn import Turn
from barnabas.broker.coordinators.groups.core import log_failure, unchanged
from barnabas.broker.coordinators.offsets import records
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.classic_groups import ClassicGroups
    from barnabas.broker.coordinators.groups.core import ShardCore
    from barnabas.broker.coordinators.runtime.completion import Completion

log = logging.getLogger("barnabas.group")

RETRY_MS = 500


class ConsumerGroups:
    """The groups of the consumer protocol."""

    __slots__ = ("_classic", "_core", "groups")

    def __init__(self, core: ShardCore, classic: ClassicGroups) -> None:
        self._core = core  # fixed before start
        self._classic = classic  # fixed before start
        self.groups: dict[str, ConsumerGroup] = {}  # by id; replaced whole when the shard ends

    # Life

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a record while loading. Only the loader calls."""
        group = self.groups.get(record.group_id)
        if group is None:
            if is_tombstone(record.record):
                return
            group = ConsumerGroup(record.group_id)
        self._apply(group, record.record)

    def activate(self) -> None:
        """Start the timers of the members that were loaded."""
        for group in self.groups.values():
            self._watch_members(group)

    def release(self) -> None:
        """Drop all groups."""
        self.groups = {}

    # Requests

    def heartbeat(self, group_id: str, request: v.Heartbeat, reply: Completion[v.HeartbeatResult | ApiError]) -> None:
        """Handle a ConsumerGroupHeartbeat."""
        core = self._core
        try:
            subject = "Group" if request.epoch < 0 else "Consumer group"
            group, before = self._find_or_create(group_id, request.epoch == v.JOIN_EPOCH, subject)
            turn = Turn(group, self.environment(group_id))
            turn.can_describe = request.can_describe
            decide = heartbeats.leave if request.epoch < 0 else heartbeats.heartbeat
            result = decide(turn, request)
        except ApiError as refusal:
            core.answer_locked(reply, refusal)
            return
        self.write_turn(turn, lambda error: core.answer_locked(reply, ApiError(error) if error else result), before)

    def find(self, group_id: str) -> ConsumerGroup:
        """Return the group. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        return self._find_or_create(group_id, may_create=False)[0]

    def _find_or_create(
        self, group_id: str, may_create: bool, subject: str = "Group"
    ) -> tuple[ConsumerGroup, Sequence[records.KeyValue]]:
        """Return the group, a new one if it may be created, and the records that come before its first one.

        Raises ApiError(GROUP_ID_NOT_FOUND); `subject` begins its message, as in Kafka.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group, ()
        classic = self._classic.groups.get(group_id)
        if may_create and classic is None:
            return ConsumerGroup(group_id), ()
        if may_create and classic is not None:
            tombstone = records.group_tombstone(group_id)
            if classic.state is GroupState.EMPTY:
                return ConsumerGroup(group_id), [tombstone]
            consumers = self._core.context.consumers
            check_upgrade(classic, consumers.settings)
            group, creation = to_consumer_group(classic, consumers.watch.latest().snapshot)
            return group, [tombstone, *(consumer_records.encode(group_id, record) for record in creation)]
        if classic is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{subject} {group_id} not found.")
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def commit_error(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int, version: int,
        partitions: Sequence[tuple[bytes, int]], *, is_transactional: bool,
    ) -> ErrorCode:  # fmt: skip
        """Return why a member in `epoch` may not commit these (topic id, partition)s, or NONE.

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

    def environment(self, group_id: str) -> Environment:
        """Return the environment of a turn that is decided now."""
        consumers = self._core.context.consumers
        image = consumers.watch.latest()
        return Environment(image, self._core.now_ms(), consumers.settings, consumers.times_of(group_id))

    def write_turn(self, turn: Turn, settled: Completion[ErrorCode], before: Sequence[records.KeyValue] = ()) -> None:
        """Append a turn's records and, if the log takes them, carry the turn out; `settled` when they are committed.

        The records `before` come first: they end the classic group that this one replaces.
        """
        group, downgraded = turn.group, turn.downgraded
        batch = [*before, *(consumer_records.encode(group.group_id, record) for record in turn.records)]
        if downgraded is not None:
            batch.append(records.group_metadata(downgraded, downgraded.assignments()))
        if not batch:
            self._core.writes.after_all(settled)
        elif not self._core.append_locked(batch, unchanged, settled):
            self._core.keep_members_locked(group.group_id, turn.timeouts)
            return
        if before:
            self._replace_classic(group)
        self.carry_out(turn)

    def carry_out(self, turn: Turn) -> None:
        """Apply a turn whose records are in the log."""
        group, context = turn.group, self._core.context
        for record in turn.records:
            self._apply(group, record)
        if context.checks_invariants:
            group.invariants()
        if turn.is_rebalance:
            context.sensors.consumer_rebalances.record()
        if turn.has_compared_topics:
            group.image_compared = turn.environment.image.number
        for timeout in turn.timeouts:
            self._set_timeout(group.group_id, timeout)
        if turn.downgraded is not None:
            self._classic.add_downgraded(turn.downgraded, turn.must_rebalance)
        if turn.regexes_wanted:
            group.is_resolving = True
            context.consumers.background(partial(self._match, group.group_id, turn.regexes_wanted, turn.can_describe))

    def _apply(self, group: ConsumerGroup, record: v.Record) -> None:
        group.replay(record)
        if group.is_gone:
            self.groups.pop(group.group_id, None)
        elif group.group_id not in self.groups:
            self._classic.groups.pop(group.group_id, None)
            self.groups[group.group_id] = group

    def _replace_classic(self, group: ConsumerGroup) -> None:
        self._classic.remove_upgraded(group.group_id)
        self.groups[group.group_id] = group
        self._watch_members(group)

    # Timers

    def expire(self, group: ConsumerGroup, key: TimerKey, event: v.GroupEvent) -> None:
        """Handle a timer that expired."""
        turn = Turn(group, self.environment(group.group_id))
        try:
            heartbeats.expire(turn, event)
        except ApiError as refusal:
            log.error("Member %s is not removed: %s", event.member_id, refusal)
            return
        self.write_turn(turn, partial(self._expiry_settled, group, key, event))

    def _expiry_settled(self, group: ConsumerGroup, key: TimerKey, event: v.GroupEvent, error: ErrorCode) -> None:
        """Try again soon if the removal could not be written, unless the member sent a request meanwhile."""
        exists = self.groups.get(group.group_id) is group and event.member_id in group.members
        if error and exists and not self._core.timers.is_running(group.group_id, key):
            self._core.timers.start(group.group_id, key, RETRY_MS, event)

    def _watch_members(self, group: ConsumerGroup) -> None:
        turn = Turn(group, self.environment(group.group_id))
        heartbeats.watch_members(turn)
        for timeout in turn.timeouts:
            self._set_timeout(group.group_id, timeout)

    def _set_timeout(self, group_id: str, timeout: v.Timeout) -> None:
        timers, key = self._core.timers, TimerKey(timeout.kind, timeout.member_id)
        if timeout.delay_ms is None or timeout.event is None:
            timers.stop(group_id, key)
        elif not (timeout.only_if_absent and timers.is_running(group_id, key)):
            timers.start(group_id, key, timeout.delay_ms, timeout.event)

    # Regular expressions

    def _match(self, group_id: str, regexes: Iterable[str], can_describe: Callable[[str], bool] | None) -> None:
        """Match on a thread of its own, without the lock: a scan of all topics may take its time.

        A shard that has ended wants nothing matched any more: neither a stop of the broker nor another shard waits.
        """
        core = self._core
        if not core.life.is_active:
            return
        resolved: dict[str, v.ResolvedRegex] = {}
        try:
            image = core.context.consumers.watch.latest()  # the topics of now: the job may have waited
            topics = [name for name in image.snapshot.topics if can_describe is None or can_describe(name)]
            wanted = takewhile(lambda _regex: core.life.is_active, regexes)
            resolved = resolve(wanted, topics, image.number, core.now_ms())
        finally:  # Why also after a failure: else the group would wait for this match for ever
            core.lock.post(partial(self._matched, group_id, resolved))

    def _matched(self, group_id: str, resolved: dict[str, v.ResolvedRegex]) -> None:
        group = self.groups.get(group_id)
        if group is None or not self._core.life.is_active:
            return
        group.is_resolving = False
        turn = Turn(group, self.environment(group_id))
        try:
            heartbeats.take_resolved(turn, resolved)
        except ApiError as refusal:
            log.error("Regular expressions are not matched: %s", refusal)
            return
        self.write_turn(turn, log_failure)

    # Removal

    def tombstones(self, group_id: str) -> Sequence[records.KeyValue]:
        """Return the records that remove the group from the log."""
        return [consumer_records.encode(group_id, record) for record in self.groups[group_id].tombstones()]

    def forget(self, group_id: str) -> None:
        """Drop a group whose tombstones were appended."""
        del self.groups[group_id]


def is_tombstone(record: v.Record) -> bool:
    """Return whether a record only removes something."""
    if isinstance(record, v.PartitionMetadata):
        return not record.exists
    return record[0 if isinstance(record, v.GroupEpoch | v.TargetEpoch) else 1] is None
