"""A shard: the groups and offsets of one partition of __consumer_offsets.

A shard owns its parts: classic groups, consumer groups, classic members of consumer groups, share groups, streams
groups, and offsets.
Every public method takes the shard's lock, checks that the shard serves, and hands the request to the part in charge.
`core.py` has the rules that the parts follow, `runtime/shard_life.py` the states of a shard.

Threads: any; loading on `group-metadata-manager-0`.
Source: Kafka's GroupCoordinatorShard (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.records import ConsumerGroupRecord
from barnabas.broker.coordinators.consumer.values import MemberExpired, RevocationExpired
from barnabas.broker.coordinators.groups.classic_groups import ClassicGroups
from barnabas.broker.coordinators.groups.classic_members import ClassicMembers
from barnabas.broker.coordinators.groups.consumer_groups import ConsumerGroups
from barnabas.broker.coordinators.groups.core import ShardCore, log_failure
from barnabas.broker.coordinators.groups.group_offsets import (
    Committer,
    DeletedOffsets,
    FetchedOffsets,
    GroupOffsets,
    OffsetCommit,
    OffsetQuery,
)
from barnabas.broker.coordinators.offsets import records
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.groups import ShareGroups
from barnabas.broker.coordinators.share_groups.records import ShareGroupRecord
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.groups import StreamsGroups
from barnabas.broker.coordinators.streams_groups.records import StreamsGroupRecord
from barnabas.broker.coordinators.streams_groups.values import AssignmentDue
from barnabas.broker.timing_wheel import CallbackTask
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.consumer.environment import GroupTimes
    from barnabas.broker.coordinators.consumer.values import Heartbeat, HeartbeatResult
    from barnabas.broker.coordinators.groups.context import ShardContext
    from barnabas.broker.coordinators.groups.timers import TimerEntry
    from barnabas.broker.coordinators.offsets.store import OffsetStore
    from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.runtime.shard_life import ShardState
    from barnabas.broker.coordinators.share_groups.values import Heartbeat as ShareHeartbeat
    from barnabas.broker.coordinators.share_groups.values import HeartbeatResult as ShareHeartbeatResult
    from barnabas.broker.coordinators.streams_groups.environment import StreamsGroupConfig
    from barnabas.broker.coordinators.streams_groups.values import Heartbeat as StreamsHeartbeat
    from barnabas.broker.coordinators.streams_groups.values import HeartbeatResult as StreamsHeartbeatResult
    from barnabas.broker.coordinators.transactions.marker import Marker
    from barnabas.broker.coordinators.transactions.transaction import Producer
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.topic_partition import TopicPartition

T = TypeVar("T")


class ListedGroup(NamedTuple):
    """The entry of a group in ListGroups; `type` is Kafka's name of its kind."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Shard:
    """One partition's groups and offsets; see the module."""

    __slots__ = (
        "_classic", "_classic_members", "_consumers", "_core", "_expiry_task", "_life", "_lock", "_offsets",
        "_shares", "_streams", "leader_epoch", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: ShardContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # guarded by: the coordinator's lock
        core = self._core = ShardCore(tp, context, self._release_locked, self._on_timer_locked)
        self._life = core.life
        self._lock = core.lock
        self._classic = ClassicGroups(core)  # guarded by: _lock, as are the other parts
        self._consumers = ConsumerGroups(core, self._classic)
        self._classic_members = ClassicMembers(core, self._consumers)
        self._shares = ShareGroups(
            core, lambda id_: id_ in self.groups or id_ in self.consumer_groups or id_ in self.streams_groups
        )
        self._streams = StreamsGroups(
            core, self._classic, lambda id_: id_ in self.consumer_groups or id_ in self.share_groups
        )
        self._offsets = GroupOffsets(core, self._classic, self._consumers, self._shares, self._streams)
        self._expiry_task: CallbackTask | None = None  # guarded by: _lock

    # What metrics and the live page read, without the lock: they may see groups of different moments

    @property
    def state(self) -> ShardState:
        """Whether the shard serves."""
        return self._life.state

    @property
    def groups(self) -> dict[str, Group]:
        """The classic groups, by id."""
        return self._classic.groups

    @property
    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        """The consumer groups, by id; no id is in two of these."""
        return self._consumers.groups

    @property
    def share_groups(self) -> dict[str, ShareGroup]:
        """The share groups, by id."""
        return self._shares.groups

    @property
    def streams_groups(self) -> dict[str, StreamsGroup]:
        """The streams groups, by id."""
        return self._streams.groups

    def has_modern_group(self, group_id: str) -> bool:
        """Return whether a group that is not a classic one has this id."""
        kinds = (self.consumer_groups, self.share_groups, self.streams_groups)
        return any(group_id in groups for groups in kinds)

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets."""
        return self._offsets.store

    @property
    def group_count(self) -> int:
        """The number of groups of all kinds."""
        return len(self.groups) + len(self.consumer_groups) + len(self.share_groups) + len(self.streams_groups)

    @property
    def writes(self) -> CommittedWrites:
        """The writes that wait for the high watermark."""
        return self._core.writes

    # Life

    def replay(
        self,
        record: records.AnyRecord,
        producer_id: int,
        record_offset: int,
        is_committed: bool,
    ) -> None:
        """Apply a record while loading; `producer_id` is -1 outside transactions. Only the loader calls."""
        if isinstance(record, ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord):
            self._replay_modern(record)
            if not is_committed:
                self._core.writes.add_loaded(record_offset, lambda: None, record.group_id)
        elif isinstance(record, records.GroupRecord):
            if record.group is not None:
                self._consumers.groups.pop(record.group_id, None)
                self._shares.groups.pop(record.group_id, None)
                self._streams.groups.pop(record.group_id, None)
            self._classic.replay(record)
        else:
            self._offsets.replay(record, producer_id, record_offset, is_committed)

    def _replay_modern(self, record: ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord) -> None:
        """Replay a record of a modern group; the last kind of a group that the log names counts."""
        group_id = record.group_id
        parts = (self._consumers, self._shares, self._streams, self._classic)
        before = [part for part in parts if group_id in part.groups]
        if isinstance(record, ConsumerGroupRecord):
            self._consumers.replay(record)
        elif isinstance(record, ShareGroupRecord):
            self._shares.replay(record)
        else:
            self._streams.replay(record)
        if any(group_id in part.groups and part not in before for part in parts):
            for part in before:
                part.groups.pop(group_id, None)

    def replay_marker(self, producer_id: int, is_commit: bool, record_offset: int, is_committed: bool) -> None:
        """Apply the end of a transaction while loading. Only the loader calls."""
        self._offsets.replay_marker(producer_id, is_commit, record_offset, is_committed)

    def activate(self) -> None:
        """Start to serve what was loaded."""
        with self._lock:
            if not self._life.activate_locked():
                return
            self._classic.activate()
            self._consumers.activate()
            self._shares.activate()
            self._streams.activate()
            self._schedule_expiry_locked()
            topics = self._core.context.consumers.watch.latest().snapshot.topics
            self._offsets.remove_former(dict.fromkeys(topics, ZERO_UUID))

    def close(self) -> None:
        """Stop serving; waiting clients are sent to the new coordinator."""
        self._life.close()

    def isolate_failures(self) -> AbstractContextManager[None]:
        """Take the shard offline if the block raises, until the next leader loads it; see `ShardLife`."""
        return self._life.isolate_failures()

    def _release_locked(self) -> None:
        # Why first: a write that fails below must find its group gone, so that only its answer is delivered.
        classic = self._classic.detach_all()
        self._consumers.release()
        self._shares.release()
        self._streams.release()
        self._offsets.release()
        if self._expiry_task is not None:
            self._core.context.timer.cancel(self._expiry_task)
        self._core.timers.stop_all()
        self._core.writes.abandon()
        self._classic.dismiss(classic)

    def _on_timer_locked(self, entry: TimerEntry) -> None:
        event = self._core.timers.expired_event(entry)
        if isinstance(event, MemberExpired | RevocationExpired):
            self._expire_member_locked(entry.group_id, entry.key, event)
        elif isinstance(event, AssignmentDue):
            streams_group = self.streams_groups.get(entry.group_id)
            if streams_group is not None:
                self._streams.assign_first(streams_group)
        elif event is not None:
            group = self.groups.get(entry.group_id)
            if group is not None:
                self._classic.step(group, event)

    def _expire_member_locked(self, group_id: str, key: ev.TimerKey, event: MemberExpired | RevocationExpired) -> None:
        if (consumer_group := self.consumer_groups.get(group_id)) is not None:
            self._consumers.expire(consumer_group, key, event)
        elif (streams_group := self.streams_groups.get(group_id)) is not None:
            self._streams.expire(streams_group, key, event)
        elif (share_group := self.share_groups.get(group_id)) is not None and isinstance(event, MemberExpired):
            self._shares.expire(share_group, key, event)

    # Members

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; `event.reply` is called when the group's next generation begins."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(event.reply, ev.JoinResult(error, event.member_id))
                return
            is_empty = self._is_empty_group_locked(group_id)
            if is_empty and event.member_id != ev.UNKNOWN_MEMBER_ID:
                self._core.answer_locked(event.reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
                return
            if is_empty:  # it makes way for a classic group; the offsets stay
                self._offsets.remove([], [group_id], log_failure)
            if group_id in self.consumer_groups:
                self._classic_members.join(group_id, event)
            elif group_id in self.share_groups or group_id in self.streams_groups:
                self._core.answer_locked(event.reply, ev.JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
            else:
                self._classic.join(group_id, event)

    def _is_empty_group_locked(self, group_id: str) -> bool:
        """Return whether a consumer or streams group without members has this id."""
        group = self.consumer_groups.get(group_id) or self.streams_groups.get(group_id)
        return group is not None and not group.members

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup; `event.reply` is called when the assignment is written."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(event.reply, ev.SyncResult(error))
            elif group_id in self.consumer_groups:
                self._classic_members.sync(group_id, event)
            else:
                self._classic.sync(group_id, event)

    def heartbeat(self, group_id: str, event: ev.Heartbeat) -> ErrorCode:
        """Handle a Heartbeat; one during the load is always accepted."""
        with self._lock:
            if error := self._life.gate_locked():
                return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
            if group_id in self.consumer_groups:
                return self._classic_members.heartbeat(group_id, event)
            return self._classic.heartbeat(group_id, event)

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup; `event.reply` is called when the change is written."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(event.reply, ev.LeaveResult(error))
            elif group_id in self.consumer_groups:
                self._classic_members.leave(group_id, event)
            else:
                self._classic.leave(group_id, event)

    def consumer_heartbeat(
        self, group_id: str, request: Heartbeat, reply: Completion[HeartbeatResult | ApiError]
    ) -> None:
        """Handle a ConsumerGroupHeartbeat (KIP-848)."""
        with self._lock:
            if error := self._heartbeat_gate_locked(group_id, request, self._core.context.consumers.times_of):
                self._core.answer_locked(reply, ApiError(error))
            elif refusal := self._other_kind_locked(group_id):
                self._core.answer_locked(reply, refusal)
            else:
                self._consumers.heartbeat(group_id, request, reply)

    def _heartbeat_gate_locked(
        self,
        group_id: str,
        request: Heartbeat | ShareHeartbeat | StreamsHeartbeat,
        config_of: Callable[[str], GroupTimes | StreamsGroupConfig],
    ) -> ErrorCode:
        """Return the gate for a heartbeat.

        If it cannot be answered yet, the member's session starts again all the same, unless the member leaves.
        """
        error = self._core.committed_gate_locked()
        if error and request.epoch >= 0:
            key = ev.TimerKey("session", request.member_id)
            self._core.timers.renew(group_id, key, config_of(group_id).session_timeout_ms)
        return error

    def _other_kind_locked(self, group_id: str) -> ApiError | None:
        """Return why this is no id of a consumer group, if a share group or a streams group has it."""
        if group_id in self.share_groups or group_id in self.streams_groups:
            return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return None

    def streams_heartbeat(
        self, group_id: str, request: StreamsHeartbeat, reply: Completion[StreamsHeartbeatResult | ApiError]
    ) -> None:
        """Handle a StreamsGroupHeartbeat (KIP-1071)."""
        with self._lock:
            if error := self._heartbeat_gate_locked(group_id, request, self._core.context.streams.config_of):
                self._core.answer_locked(reply, ApiError(error))
            else:
                self._streams.heartbeat(group_id, request, reply)

    def share_heartbeat(
        self, group_id: str, request: ShareHeartbeat, reply: Completion[ShareHeartbeatResult | ApiError]
    ) -> None:
        """Handle a ShareGroupHeartbeat (KIP-932)."""
        with self._lock:
            if error := self._heartbeat_gate_locked(group_id, request, self._core.context.shares.times_of):
                self._core.answer_locked(reply, ApiError(error))
            else:
                self._shares.heartbeat(group_id, request, reply)

    def change_shares(self, change: Callable[[ShareGroups], object], refuse: Completion[ErrorCode]) -> None:
        """Have `change` change the share groups under the lock; `refuse` gets the error if the shard does not serve."""
        with self._lock:
            if error := self._core.committed_gate_locked():
                self._core.answer_locked(refuse, error)
            else:
                change(self._shares)

    # Offsets

    def commit_offsets(
        self, committer: Committer, commits: Sequence[OffsetCommit], reply: Completion[ErrorCode]
    ) -> None:
        """Commit offsets; answered with NONE when all are committed."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(reply, error)
            else:
                self._offsets.commit(committer, commits, reply)

    def commit_in_transaction(
        self,
        committer: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
        guard: VerificationGuard | None,
        reply: Completion[ErrorCode],
    ) -> None:
        """Write offsets that are committed with the producer's transaction (KIP-447)."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(reply, error)
            else:
                self._offsets.commit_in_transaction(committer, producer, commits, guard, reply)

    def end_transaction(self, marker: Marker, timestamp_ms: int, reply: Completion[ErrorCode]) -> None:
        """Write the marker of a transaction; its offsets are committed or dropped with it."""
        with self._lock:
            if error := self._life.gate_locked():
                self._core.answer_locked(reply, error)
            else:
                self._offsets.end_transaction(marker, timestamp_ms, reply)

    def fetch_offsets(self, query: OffsetQuery, reply: Completion[FetchedOffsets]) -> None:
        """Answer with a group's offsets."""
        with self._lock:
            if error := self._core.committed_gate_locked(query.group_id):
                self._core.answer_locked(reply, FetchedOffsets(error))
            else:
                self._offsets.fetch(query, reply)

    def delete_offsets(
        self, group_id: str, topics: Mapping[str, Container[int]], reply: Completion[DeletedOffsets]
    ) -> None:
        """Delete a group's offsets of these partitions, except those of topics that the group is subscribed to."""
        with self._lock:
            if error := self._core.committed_gate_locked():
                self._core.answer_locked(reply, DeletedOffsets(error))
            else:
                self._offsets.delete(group_id, topics, reply)

    def on_topics_replaced(self, former_ids: Mapping[str, bytes]) -> None:
        """Remove the offsets of deleted topics; see `GroupOffsets.remove_former`."""
        with self._lock:
            if self._life.is_active:
                self._offsets.remove_former(former_ids)
                self._shares.forget_topics(set(former_ids.values()))

    def expire(self) -> None:
        """Remove expired offsets, and groups that have neither members nor offsets left."""
        with self._lock:
            self._expire_locked()

    def _expire_locked(self) -> None:
        if self._life.is_active:
            self._offsets.expire()

    def _schedule_expiry_locked(self) -> None:
        context = self._core.context
        post = partial(self._lock.post, self._expire_and_reschedule_locked)
        self._expiry_task = CallbackTask(context.retention_check_ms, post)
        context.timer.add(self._expiry_task)

    def _expire_and_reschedule_locked(self) -> None:
        self._expire_locked()
        if self._life.is_active:
            self._schedule_expiry_locked()

    def invariants(self) -> None:
        """Assert the invariants of every group; for tests, debugging and simulation."""
        with self._lock:
            groups = self._all_groups()
            for group in groups:
                group.invariants()
            assert len(groups) == len({group.group_id for group in groups}), "a group of two kinds"

    def _all_groups(self) -> list[Group | ConsumerGroup | ShareGroup | StreamsGroup]:
        return [
            *self.groups.values(), *self.consumer_groups.values(), *self.share_groups.values(),
            *self.streams_groups.values(),
        ]  # fmt: skip

    # Groups

    def listed(self, states: frozenset[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """Return the groups in these states (lower case; an empty set means all)."""
        with self._lock:
            if error := self._life.gate_locked():
                return error, []
            return ErrorCode.NONE, [
                ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.TYPE)
                for group in self._all_groups()
                if not states or group.state.value.lower() in states
            ]

    def describe(self, group_id: str, read: Callable[[Group], T]) -> tuple[ErrorCode, T | None]:
        """Have `read` read a classic group under the lock; returns its result, or an error."""
        with self._lock:
            if error := self._life.gate_locked():
                return error, None
            group = self.groups.get(group_id)
            return (ErrorCode.GROUP_ID_NOT_FOUND, None) if group is None else (ErrorCode.NONE, read(group))

    def describe_consumer_group(self, group_id: str, read: Callable[[ConsumerGroup], T]) -> T:
        """Have `read` read a consumer group under the lock; returns its result. Raises ApiError."""
        with self._lock:
            if error := self._core.committed_gate_locked(group_id):
                raise ApiError(error)
            if refusal := self._other_kind_locked(group_id):
                raise refusal
            return read(self._consumers.find(group_id))

    def describe_share_group(self, group_id: str, read: Callable[[ShareGroup], T]) -> T:
        """Have `read` read a share group under the lock; returns its result. Raises ApiError."""
        with self._lock:
            if error := self._core.committed_gate_locked(group_id):
                raise ApiError(error)
            return read(self._shares.find(group_id))

    def describe_streams_group(self, group_id: str, read: Callable[[StreamsGroup], T]) -> T:
        """Have `read` read a streams group under the lock; returns its result. Raises ApiError."""
        with self._lock:
            if error := self._core.committed_gate_locked(group_id):
                raise ApiError(error)
            return read(self._streams.find(group_id))

    def delete_groups(self, group_ids: Sequence[str], reply: Completion[Mapping[str, ErrorCode]]) -> None:
        """Delete groups with their offsets; answered with the error of each group."""
        with self._lock:
            if error := self._core.committed_gate_locked():
                self._core.answer_locked(reply, dict.fromkeys(group_ids, error))
            elif shared := [group_id for group_id in group_ids if group_id in self.share_groups]:
                self._shares.changes.delete_states(shared, partial(self._delete_groups_locked, group_ids, reply))
            else:
                self._offsets.delete_groups(group_ids, reply)

    def _delete_groups_locked(
        self,
        group_ids: Sequence[str],
        reply: Completion[Mapping[str, ErrorCode]],
        errors: Mapping[str, ErrorCode],
    ) -> None:
        """Delete the groups whose share partitions are deleted, or that have none; `errors` has the others."""
        if error := self._life.gate_locked():
            self._core.answer_locked(reply, dict.fromkeys(group_ids, error))
            return
        rest = [group_id for group_id in group_ids if group_id not in errors]
        self._offsets.delete_groups(rest, lambda found: reply({**errors, **found}))
