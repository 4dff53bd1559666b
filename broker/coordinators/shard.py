"""A shard: the groups and offsets of one partition of __consumer_offsets, and the thread glue around them.

Rules
1. Everything here is guarded by the mailbox's lock; decisions are made by the pure parts (`group.py`, `offsets.py`).
2. Lock order: a shard's, then a partition's, then a log's. No answer is given and nobody is woken while it is held.
3. Records are appended in the order of decisions. A group's state changes at once, as Kafka's does; an offset is stored
   when its record is committed. Requests are answered when their records are committed.
4. A write that timed out stays in `_writes`: it is in the log, so it takes effect when the high watermark passes it.

States: loading (from the log) -> active -> closed (the leader moved). A failed load closes the shard.

Threads: any; loading on `group-metadata-manager-0`.
Source: Kafka's CoordinatorRuntime, GroupCoordinatorShard (4.3).
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from broker.coordinators import group_events as ev
from broker.coordinators import offset_records as records
from broker.coordinators.group import Group
from broker.coordinators.group_events import GroupSettings, GroupState
from broker.coordinators.mailbox import Mailbox
from broker.coordinators.offsets import CommittedOffset, FetchedTopic, OffsetStore, TopicWanted
from broker.coordinators.shard_timers import ShardTimers, TimerEntry
from broker.timing_wheel import CallbackTask

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from broker.timing_wheel import Timer

log = logging.getLogger("barnabas.group")

T = TypeVar("T")

GROUP_ID_NOT_FOUND_FROM = 9  # OffsetCommit version


class ShardState(Enum):
    """Whether the shard may be asked."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class LogWriter(Protocol):
    """What a shard needs of the replica manager."""

    def append_internal(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, on_done: Callable[[ErrorCode, int], None], *,
        moved: set[Any] | None = None,
    ) -> int:  # fmt: skip
        """Append with acks=all; see ReplicaManager."""

    def complete_delayed(self, tp: TopicPartition) -> None:
        """Wake those who wait for the partition."""

    def partition(self, tp: TopicPartition) -> Any:
        """The partition, or ApiError."""


@dataclass(slots=True)
class ShardContext:
    """What all shards of a broker share; the settings are replaced whole when the configuration changes."""

    writer: LogWriter
    clock: Clock
    timer: Timer
    settings: GroupSettings
    commit_timeout_ms: int = 5000
    metadata_max_chars: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_check_ms: int = 600_000


@dataclass(slots=True, frozen=True)
class Committer:
    """Who commits; `version` is the request's."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    version: int


@dataclass(slots=True, frozen=True)
class OffsetCommit:
    """A position to be committed."""

    topic: str
    partition: int
    committed: CommittedOffset


@dataclass(slots=True)
class Write:
    """A batch that was appended and is not known to be committed."""

    on_commit: Callable[[int], None]  # given the offset of its first record; changes state
    on_settled: Callable[[ErrorCode], None] | None  # called once, when committed or failed; None once called
    first_offset: int = -1  # -1 until appended
    end_offset: int = -1  # exclusive; -1 until appended


class Shard:
    """See the module. Public methods take the lock; names ending in `_locked` want it held."""

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: ShardContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # guarded by: _mailbox
        self.state = ShardState.LOADING  # guarded by: _mailbox
        self.groups: dict[str, Group] = {}  # guarded by: _mailbox
        self.offsets = OffsetStore()  # guarded by: _mailbox
        self._context = context
        self._mailbox = Mailbox()
        self._timers = ShardTimers(context.timer, context.clock, self._post_timer)  # guarded by: _mailbox
        self._writes: deque[Write] = deque()  # guarded by: _mailbox; in log order
        self._expiry_task: CallbackTask | None = None  # guarded by: _mailbox

    # Members

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; `event.reply(JoinResult)` is called, maybe much later."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.JoinResult(error, event.member_id))
                return
            group = self.groups.get(group_id)
            if group is not None:
                self._step_locked(group, event)
            elif event.member_id != ev.UNKNOWN_MEMBER_ID:
                self._say(event.reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
            else:
                self._create_group_locked(group_id, event)

    def _create_group_locked(self, group_id: str, event: ev.Join) -> None:
        now_ms = self._context.clock.wall_ms()
        group = self.groups[group_id] = Group(group_id, now_ms)
        self._step_locked(group, event)
        done = ev.EmptyStored(0, reply=event.reply)
        self._append_locked([records.new_group(group_id, now_ms)], _nothing, partial(self._stored, group, done))

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup; `event.reply(SyncResult)` is called, maybe later."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.SyncResult(error))
            elif (group := self.groups.get(group_id)) is None:
                self._say(event.reply, ev.SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                self._step_locked(group, event)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat; while loading it is taken on trust."""
        with self._mailbox:
            if error := self._gate_locked():
                return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
            group = self.groups.get(group_id)
            if group is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return self._ask_locked(group, ev.Heartbeat(member_id, instance_id, generation_id, None))

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup; `event.reply(LeaveResult)` is called once what it changes is written."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.LeaveResult(error))
            elif (group := self.groups.get(group_id)) is None:
                unknown = tuple(
                    ev.LeftMember(m.member_id, m.instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in event.members
                )
                self._say(event.reply, ev.LeaveResult(ErrorCode.NONE, unknown))
            else:
                self._step_locked(group, event)

    # Offsets

    def commit_offsets(
        self, who: Committer, commits: Sequence[OffsetCommit], reply: Callable[[ErrorCode], None]
    ) -> None:
        """Commit positions; `reply(error)` is called once, with NONE when all are committed."""
        with self._mailbox:
            error = self._gate_locked() or self._commit_error_locked(who)
            if error or not commits:
                self._say(reply, error)
                return
            group_id = who.group_id
            batch = [records.offset_commit(group_id, c.topic, c.partition, c.committed) for c in commits]
            self._append_locked(
                batch, partial(self._apply_commits, group_id, commits), lambda error: self._say(reply, error)
            )

    def _commit_error_locked(self, who: Committer) -> ErrorCode:
        group = self.groups.get(who.group_id)
        if group is not None:
            return self._ask_locked(
                group, ev.Commit(who.member_id, who.instance_id, who.generation_id, None)
            )
        if who.generation_id < 0:  # a simple consumer or an administrator: the first offset creates the group
            return ErrorCode.NONE
        is_new = who.version >= GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION

    def _apply_commits(self, group_id: str, commits: Sequence[OffsetCommit], first_offset: int) -> None:
        self._ensure_group_locked(group_id)
        for index, commit in enumerate(commits):
            committed = commit.committed._replace(record_offset=first_offset + index)
            self.offsets.put(group_id, commit.topic, commit.partition, committed)

    def _ensure_group_locked(self, group_id: str) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._context.clock.wall_ms())

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[TopicWanted] | None,
        require_stable: bool,
        reply: Callable[[ErrorCode, list[FetchedTopic]], None],
    ) -> None:
        """Tell positions; with `require_stable` after all writes before it are committed (KIP-447)."""
        with self._mailbox:
            if error := self._gate_locked():
                self._mailbox.say(partial(reply, error, []))
                return
            self._catch_up_locked()
            if not (require_stable and self._writes):
                self._tell_offsets_locked(group_id, wanted, require_stable, reply)
                return
            self._after_last_write_locked(
                lambda error: self._mailbox.say(partial(reply, ErrorCode.NOT_COORDINATOR, []))
                if error
                else self._tell_offsets_locked(group_id, wanted, require_stable, reply)
            )

    def _tell_offsets_locked(
        self,
        group_id: str,
        wanted: Sequence[TopicWanted] | None,
        require_stable: bool,
        reply: Callable[[ErrorCode, list[FetchedTopic]], None],
    ) -> None:
        known_id = group_id if group_id in self.groups else ""
        topics = self.offsets.fetch(known_id, wanted, require_stable=require_stable)
        self._mailbox.say(partial(reply, ErrorCode.NONE, topics))

    def _once_written_locked(self, then: Callable[[], None]) -> None:
        """Go on when all offsets on their way are stored, so that none escapes a deletion."""
        self._catch_up_locked()
        if self._writes:
            self._after_last_write_locked(lambda _error: then())
        else:
            then()

    def _after_last_write_locked(self, then: Callable[[ErrorCode], None]) -> None:
        last = self._writes[-1]
        before = last.on_settled
        if before is None:  # its time ran out: nobody knows when it will be committed
            then(ErrorCode.REQUEST_TIMED_OUT)
            return

        def both(error: ErrorCode) -> None:
            before(error)
            then(error)

        last.on_settled = both

    def delete_offsets(
        self,
        group_id: str,
        topics: Mapping[str, Sequence[int]],
        reply: Callable[[ErrorCode, dict[str, ErrorCode]], None],
    ) -> None:
        """Remove positions; `reply(group's error, errors by topic)`: of topics that are subscribed to."""
        with self._mailbox:
            group = self.groups.get(group_id)
            error = self._gate_locked()
            if not error:
                error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
            if error or group is None:
                self._mailbox.say(partial(reply, error, {}))
            else:
                self._once_written_locked(partial(self._delete_offsets_locked, group, topics, reply))

    def _delete_offsets_locked(
        self,
        group: Group,
        topics: Mapping[str, Sequence[int]],
        reply: Callable[[ErrorCode, dict[str, ErrorCode]], None],
    ) -> None:
        group_id = group.group_id
        errors = {
            name: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for name in topics if group.is_subscribed_to(name)
        }
        doomed = [
            (group_id, tp)
            for tp in self.offsets.all_partitions(group_id)
            if tp.partition in topics.get(tp.topic, ()) and tp.topic not in errors
        ]

        def settled(error: ErrorCode) -> None:
            self._mailbox.say(partial(reply, error, {} if error else errors))

        self._remove_offsets_locked(doomed, [], settled)

    # Groups

    def listed(self, states: frozenset[str]) -> tuple[ErrorCode, list[tuple[str, str, str]]]:
        """(group id, protocol type, state) of the groups in these states (lower case; none: all)."""
        with self._mailbox:
            if error := self._gate_locked():
                return error, []
            return ErrorCode.NONE, [
                (group.group_id, group.protocol_type or "", group.state.value)
                for group in self.groups.values()
                if not states or group.state.value.lower() in states
            ]

    def describe(self, group_id: str, look: Callable[[Group], T]) -> tuple[ErrorCode, T | None]:
        """Let `look` read a group under the lock."""
        with self._mailbox:
            if error := self._gate_locked():
                return error, None
            group = self.groups.get(group_id)
            return (ErrorCode.GROUP_ID_NOT_FOUND, None) if group is None else (ErrorCode.NONE, look(group))

    def delete_groups(
        self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], None]
    ) -> None:
        """Delete groups with their offsets; `reply(errors by group)`."""
        with self._mailbox:
            if error := self._gate_locked():
                self._mailbox.say(partial(reply, dict.fromkeys(group_ids, error)))
            else:
                self._once_written_locked(partial(self._delete_groups_locked, group_ids, reply))

    def _delete_groups_locked(
        self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], None]
    ) -> None:
        errors = {group_id: self._delete_error_locked(group_id) for group_id in group_ids}
        deleted = [group_id for group_id, error in errors.items() if not error]
        doomed = [(group_id, tp) for group_id in deleted for tp in self.offsets.all_partitions(group_id)]

        def settled(error: ErrorCode) -> None:
            if error:
                errors.update(dict.fromkeys(deleted, error))
            self._mailbox.say(partial(reply, errors))

        self._remove_offsets_locked(doomed, deleted, settled)

    def _delete_error_locked(self, group_id: str) -> ErrorCode:
        group = self.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()

    def on_topics_deleted(self, topics: set[str]) -> None:
        """Remove the positions in topics that are gone."""
        with self._mailbox:
            if self.state is ShardState.ACTIVE:
                self._remove_offsets_locked(self.offsets.of_topics(topics), [], _log_failure)

    def _remove_offsets_locked(
        self,
        doomed: Sequence[tuple[str, TopicPartition]],
        deleted_groups: Iterable[str],
        settled: Callable[[ErrorCode], None],
    ) -> None:
        """Write tombstones; groups go at once, their offsets when the tombstones are committed."""
        batch = [records.offset_tombstone(group_id, tp.topic, tp.partition) for group_id, tp in doomed]
        batch += [records.group_tombstone(group_id) for group_id in deleted_groups]
        if not batch:
            settled(ErrorCode.NONE)
            return

        def apply(_first_offset: int) -> None:
            for group_id, tp in doomed:
                self.offsets.remove(group_id, tp.topic, tp.partition)

        if self._append_locked(batch, apply, settled):
            for group_id in deleted_groups:
                self._timers.stop_group(group_id)
                del self.groups[group_id]

    def expire(self) -> None:
        """Remove what nobody has used for the retention time, and groups that are left with nothing."""
        with self._mailbox:
            self._expire_locked()

    def _expire_locked(self) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        now_ms = self._context.clock.wall_ms()
        doomed: list[tuple[str, TopicPartition]] = []
        empty: list[str] = []
        for group in self.groups.values():
            due, is_all = self.offsets.expired(group, now_ms, self._context.retention_ms)
            doomed += [(group.group_id, tp) for tp in due]
            is_idle = group.state is GroupState.EMPTY and not group.members.pending_join and not self._writes
            if is_all and is_idle:
                empty.append(group.group_id)
        if doomed or empty:
            log.info("Removing %d expired offsets and %d groups of %s", len(doomed), len(empty), self.tp)
            self._remove_offsets_locked(doomed, empty, _log_failure)

    # Life

    def activate(self) -> None:
        """Begin to serve what was loaded."""
        with self._mailbox:
            if self.state is not ShardState.LOADING:
                return
            self.state = ShardState.ACTIVE
            for group in list(self.groups.values()):
                self._step_locked(group, ev.Loaded())
            self._schedule_expiry_locked()

    def close(self) -> None:
        """Stop serving: whoever waits is sent to look for the new coordinator."""
        with self._mailbox:
            before, self.state = self.state, ShardState.CLOSED
            if before is not ShardState.ACTIVE:
                return  # while it loads, groups and offsets are the loader's
            self._timers.stop_all()
            if self._expiry_task is not None:
                self._context.timer.cancel(self._expiry_task)
            writes, self._writes = self._writes, deque()
            for write in writes:
                self._settle_locked(write, ErrorCode.NOT_COORDINATOR)
            for group in self.groups.values():
                self._step_locked(group, ev.Unload())
            self._timers.stop_all()
            self.groups = {}
            self.offsets = OffsetStore()

    def _schedule_expiry_locked(self) -> None:
        post = partial(self._mailbox.post, self._expire_again)
        self._expiry_task = CallbackTask(self._context.retention_check_ms, post)
        self._context.timer.add(self._expiry_task)

    def _expire_again(self) -> None:
        self._expire_locked()
        if self.state is ShardState.ACTIVE:
            self._schedule_expiry_locked()

    def replay(self, record: records.OffsetRecord | records.GroupRecord, producer_id: int) -> None:
        """Take over a record while loading; `producer_id` is -1 outside transactions. Only the loader calls."""
        if isinstance(record, records.GroupRecord):
            if record.group is None:
                self.groups.pop(record.group_id, None)
            else:
                self.groups[record.group_id] = record.group
        elif record.committed is None:
            self.offsets.remove(record.group_id, record.topic, record.partition)
        else:
            self._ensure_group_locked(record.group_id)
            if producer_id < 0:
                self.offsets.put(record.group_id, record.topic, record.partition, record.committed)
            else:
                self.offsets.put_pending(
                    producer_id, record.group_id, record.topic, record.partition, record.committed
                )

    # The glue

    def _gate_locked(self) -> ErrorCode:
        if self.state is ShardState.ACTIVE:
            return ErrorCode.NONE
        is_loading = self.state is ShardState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    def _say(self, reply: Callable[[Any], object], result: ev.Result) -> None:
        self._mailbox.say(partial(reply, result))

    def _step_locked(self, group: Group, event: ev.Event) -> None:
        self._carry_out_locked(group, group.step(event, self._context.clock.wall_ms(), self._context.settings))

    def _ask_locked(self, group: Group, event: ev.Heartbeat | ev.Commit) -> ErrorCode:
        """Step, and return the answer instead of sending it: these two are always answered at once."""
        effects = group.step(event, self._context.clock.wall_ms(), self._context.settings)
        answer = effects.pop()
        assert isinstance(answer, ev.Answer)
        assert isinstance(answer.result, ErrorCode)
        self._carry_out_locked(group, effects)
        return answer.result

    def _carry_out_locked(self, group: Group, effects: list[ev.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ev.StartTimer):
                self._timers.start(group.group_id, effect.key, effect.delay_ms, effect.event)
            elif isinstance(effect, ev.Answer):
                self._say(effect.reply, effect.result)
            elif isinstance(effect, ev.StopTimer):
                self._timers.stop(group.group_id, effect.key)
            else:
                record = records.group_metadata(group, effect.assignments)
                self._append_locked([record], _nothing, partial(self._stored, group, effect.done))

    def _stored(self, group: Group, done: ev.StoredEvent, error: ErrorCode) -> None:
        event = dataclasses.replace(done, error=error) if error else done
        self._step_locked(group, event)

    def _post_timer(self, entry: TimerEntry) -> None:
        self._mailbox.post(partial(self._fired_locked, entry))

    def _fired_locked(self, entry: TimerEntry) -> None:
        event = self._timers.fired(entry)
        group = self.groups.get(entry.group_id)
        if event is not None and group is not None:
            self._step_locked(group, event)

    def _append_locked(
        self,
        key_values: Sequence[records.KeyValue],
        on_commit: Callable[[int], None],
        on_settled: Callable[[ErrorCode], None],
    ) -> bool:
        """Append records as one batch; false (and `on_settled` posted) when the log refuses them."""
        now_ms = self._context.clock.wall_ms()
        batch = build_batch([SimpleRecord(now_ms, key, value) for key, value in key_values])
        write = Write(on_commit, on_settled)
        writer, moved = self._context.writer, set[Any]()
        self._writes.append(write)
        try:
            first_offset = writer.append_internal(
                self.tp, batch, self._context.commit_timeout_ms, partial(self._post_done, write), moved=moved
            )
        except ApiError as error:
            self._writes.remove(write)
            self._mailbox.post(partial(self._settle_locked, write, _for_clients(error.code)))
            return False
        write.first_offset = first_offset
        write.end_offset = first_offset + len(key_values)
        if moved:
            self._mailbox.say(partial(writer.complete_delayed, self.tp))
        return True

    def _post_done(self, write: Write, error: ErrorCode, _first_offset: int) -> None:
        self._mailbox.post(partial(self._done_locked, write, error))

    def _done_locked(self, write: Write, error: ErrorCode) -> None:
        if error:
            self._settle_locked(write, _for_clients(error))
        elif self.state is ShardState.ACTIVE:
            self._commit_up_to_locked(write.end_offset)

    def _commit_up_to_locked(self, high_watermark: int) -> None:
        """Let every write below the high watermark take effect, in log order."""
        while self._writes and self._writes[0].end_offset <= high_watermark:
            write = self._writes.popleft()
            write.on_commit(write.first_offset)
            self._settle_locked(write, ErrorCode.NONE)

    def _catch_up_locked(self) -> None:
        """Look whether writes were committed that nobody waits for any more."""
        if not self._writes:
            return
        try:
            high_watermark = self._context.writer.partition(self.tp).log.high_watermark
        except ApiError:
            return
        self._commit_up_to_locked(high_watermark)

    def _settle_locked(self, write: Write, error: ErrorCode) -> None:
        on_settled, write.on_settled = write.on_settled, None
        if on_settled is not None:
            on_settled(error)


def _nothing(_first_offset: int) -> None:
    """State has changed already."""


def _log_failure(error: ErrorCode) -> None:
    if error:
        log.warning("Failed to write tombstones: %s", error.name)


APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _for_clients(error: ErrorCode) -> ErrorCode:
    """Say an append's error in a coordinator's words."""
    return APPEND_ERRORS.get(error, error)
