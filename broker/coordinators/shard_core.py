"""The glue of a shard: its life, its writes, its timers; what requests ask of it is in `shard.py`.

Rules
1. Everything is guarded by the mailbox's lock; decisions are made by the pure parts (`group.py`, `offsets.py`).
2. Lock order: a shard's, then a partition's, then a log's. No answer is given and nobody is woken while it is held.
3. Records are appended in the order of decisions. A group's state changes at once, as Kafka's does; an offset is stored
   when its record is committed. Requests are answered when their records are committed.
4. A write that timed out stays in `_writes`: it is in the log, so it takes effect when the high watermark passes it.

States: loading (from the log) -> active -> closed (the leader moved). A shard whose load fails, or that meets something
after it that it cannot handle, is failed: its groups are told to look for their coordinator, as Apache Kafka tells
them, until the partition has a new leader (or its leader a new epoch), which loads it again. Other shards serve.

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
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators import offset_records as records
from barnabas.broker.coordinators.consumer_context import ConsumerContext
from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.consumer_group_records import ConsumerGroupRecord
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.group_events import GroupSettings
from barnabas.broker.coordinators.log_replay import describe
from barnabas.broker.coordinators.mailbox import Mailbox
from barnabas.broker.coordinators.offsets import OffsetStore
from barnabas.broker.coordinators.shard_timers import ShardTimers, TimerEntry
from barnabas.broker.timing_wheel import CallbackTask
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.coordinator_metrics import GroupSensors
    from barnabas.broker.storage.verification import VerificationGuard
    from barnabas.broker.timing_wheel import Timer
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.group")


class ShardState(Enum):
    """Whether the shard may be asked."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"  # offline until the next leader, or leader epoch, loads it


class LogWriter(Protocol):
    """What a shard needs of the replica manager."""

    def append_internal(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, on_done: Callable[[ErrorCode, int], None], *,
        moved: set[Any] | None = None, transaction_version: int = 0, guard: VerificationGuard | None = None,
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
    consumers: ConsumerContext
    commit_timeout_ms: int = 5000
    compression: CompressionType = CompressionType.NONE
    metadata_max_chars: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_check_ms: int = 600_000
    sensors: GroupSensors | None = None


@dataclass(slots=True)
class Write:
    """A batch that was appended and is not known to be committed."""

    on_commit: Callable[[int], object]  # given the offset of its first record; changes state
    on_settled: Callable[[ErrorCode], object] | None  # called once, when committed or failed; None once called
    first_offset: int = -1  # -1 until appended
    end_offset: int = -1  # exclusive; -1 until appended


class ShardCore:
    """See the module. Public methods take the lock; names ending in `_locked` want it held."""

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: ShardContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # guarded by: the coordinator's lock
        self.state = ShardState.LOADING  # guarded by: _mailbox
        self.groups: dict[str, Group] = {}  # guarded by: _mailbox; classic groups
        self.consumer_groups: dict[str, ConsumerGroup] = {}  # guarded by: _mailbox; no id is in both
        self.offsets = OffsetStore()  # guarded by: _mailbox
        self._context = context
        self._mailbox = Mailbox(self._failed_locked)
        self._timers = ShardTimers(context.timer, context.clock, self._post_timer)  # guarded by: _mailbox
        self._writes: deque[Write] = deque()  # guarded by: _mailbox; in log order
        self._loaded_end_offset = 0  # set by the loader; what was read below it may not be committed yet
        self._expiry_task: CallbackTask | None = None  # guarded by: _mailbox

    @property
    def group_count(self) -> int:
        """How many groups there are, of any kind."""
        return len(self.groups) + len(self.consumer_groups)

    def _all_groups_locked(self) -> list[Group | ConsumerGroup]:
        return [*self.groups.values(), *self.consumer_groups.values()]

    # Life

    def activate(self) -> None:
        """Begin to serve what was loaded."""
        with self._mailbox:
            if self.state is not ShardState.LOADING:
                return
            self.state = ShardState.ACTIVE
            for group in list(self.groups.values()):
                self._step_locked(group, ev.Loaded())
            self._watch_consumer_groups_locked()
            self._schedule_expiry_locked()
            topics = self._context.consumers.watch.look().snapshot.topics
            self._remove_former_locked(dict.fromkeys(topics, ZERO_UUID))

    def close(self) -> None:
        """Stop serving: whoever waits is sent to look for the new coordinator."""
        with self._mailbox:
            self._close_locked(ShardState.CLOSED)

    def fail(self, why: str) -> None:
        """Take the shard offline until the next leader loads it, unless it is closed; `why` is for the log."""
        with self._mailbox:
            self._fail_locked(why, None)

    def _failed_locked(self, error: Exception) -> None:
        """Something that no request waits for went wrong half way: what the shard knows can no longer be trusted."""
        self._fail_locked(f"{self.tp}: {describe(error)}", error)

    def _fail_locked(self, why: str, error: Exception | None) -> None:
        if self.state not in (ShardState.LOADING, ShardState.ACTIVE):
            return
        log.error("The groups of %s are offline until it has a new leader: %s", self.tp, why, exc_info=error)
        try:
            self._close_locked(ShardState.FAILED)
        except Exception:
            log.exception("%s did not close cleanly", self.tp)

    def _close_locked(self, state: ShardState) -> None:
        before, self.state = self.state, state
        if before is not ShardState.ACTIVE:
            return  # while it loads, groups and offsets are the loader's
        groups, self.groups, self.consumer_groups = self.groups, {}, {}
        writes, self._writes = self._writes, deque()
        self.offsets = OffsetStore()
        if self._expiry_task is not None:
            self._context.timer.cancel(self._expiry_task)
        self._timers.stop_all()
        for write in writes:
            self._settle_locked(write, ErrorCode.NOT_COORDINATOR)
        for group in groups.values():
            self._dismiss_locked(group)

    def _dismiss_locked(self, group: Group) -> None:
        """Send away whoever waits in the group, which is gone."""
        effects = group.step(ev.Unload(), self._context.clock.wall_ms(), self._context.settings)
        for effect in effects:
            if isinstance(effect, ev.Answer):
                self._say(effect.reply, effect.result)

    # Consumer groups: `shard_consumer.py`

    def _replay_consumer_record(self, record: ConsumerGroupRecord) -> None:
        """Take over a record of a consumer group while loading."""
        raise NotImplementedError

    def _watch_consumer_groups_locked(self) -> None:
        """Start the timers of consumer groups that were loaded."""
        raise NotImplementedError

    def _schedule_expiry_locked(self) -> None:
        post = partial(self._mailbox.post, self._expire_again)
        self._expiry_task = CallbackTask(self._context.retention_check_ms, post)
        self._context.timer.add(self._expiry_task)

    def _expire_again(self) -> None:
        self._expire_locked()
        if self.state is ShardState.ACTIVE:
            self._schedule_expiry_locked()

    def replay(
        self,
        record: records.OffsetRecord | records.GroupRecord | ConsumerGroupRecord,
        producer_id: int,
        record_offset: int,
        is_committed: bool,
    ) -> None:
        """Take over a record while loading; `producer_id` is -1 outside transactions. Only the loader calls."""
        if isinstance(record, ConsumerGroupRecord):
            self._replay_consumer_record(record)
            if not is_committed:
                self._once_committed(lambda: None, record_offset, is_committed)
            return
        if isinstance(record, records.GroupRecord):
            if record.group is None:
                self.groups.pop(record.group_id, None)
            else:
                self.consumer_groups.pop(record.group_id, None)
                self.groups[record.group_id] = record.group
            return
        group_id, topic, partition, committed = record
        if committed is None:
            change = partial(self.offsets.remove, group_id, topic, partition)
        elif producer_id < 0:
            change = partial(self.offsets.put, group_id, topic, partition, committed)
        else:
            change = partial(self.offsets.put_pending, producer_id, group_id, topic, partition, committed)
        if committed is not None:
            self._ensure_group_locked(group_id)
        self._once_committed(change, record_offset, is_committed)

    def replay_marker(self, producer_id: int, is_commit: bool, record_offset: int, is_committed: bool) -> None:
        """Take over a transaction's end while loading. Only the loader calls."""
        end = partial(self.offsets.end_transaction, producer_id, is_commit)
        self._once_committed(end, record_offset, is_committed)

    def _once_committed(self, change: Callable[[], object], record_offset: int, is_committed: bool) -> None:
        """Do it now, or when the high watermark has passed the record: until then it is a write like any other."""
        if is_committed:
            change()
        else:
            self._writes.append(Write(lambda _first_offset: change(), None, record_offset, record_offset + 1))
            self._loaded_end_offset = record_offset + 1

    # The glue

    def _gate_locked(self) -> ErrorCode:
        if self.state is ShardState.ACTIVE:
            return ErrorCode.NONE
        is_loading = self.state is ShardState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    def _offset_gate_locked(self) -> ErrorCode:
        """The gate for who asks after offsets or consumer groups: does what was loaded, and may have been told, stand?

        To tell it could be to take it back after the next move, and to tell what was there before could take back what
        the coordinator before told. So nothing is told until the high watermark has passed it. (Different from Apache
        Kafka, which for that moment tells what was there before.)
        """
        error = self._gate_locked()
        if not error:
            self._catch_up_locked()
            if self._writes and self._writes[0].end_offset <= self._loaded_end_offset:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return error

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
        is_current = self.groups.get(group.group_id) is group  # else it became a consumer group, or another took its id
        for effect in effects:
            if isinstance(effect, ev.Answer):
                self._say(effect.reply, effect.result)
            elif not is_current:
                continue
            elif isinstance(effect, ev.StartTimer):
                if effect.key == ev.SYNC_TIMER and self._context.sensors is not None:
                    self._context.sensors.completed_rebalances.record()  # it starts once a generation
                self._timers.start(group.group_id, effect.key, effect.delay_ms, effect.event)
            elif isinstance(effect, ev.StopTimer):
                self._timers.stop(group.group_id, effect.key)
            else:
                record = records.group_metadata(group, effect.assignments)
                self._append_locked([record], nothing, partial(self._stored, group, effect.done))

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
        on_commit: Callable[[int], object],
        on_settled: Callable[[ErrorCode], object],
    ) -> bool:
        """Append records as one batch; false (and `on_settled` posted) when the log refuses them."""
        return self._append_batch_locked(self._batch(key_values), len(key_values), Write(on_commit, on_settled))

    def _batch(self, key_values: Sequence[records.KeyValue], **producer: Any) -> bytes:
        """Build a batch; `producer` says whose, in a transaction."""
        now_ms = self._context.clock.wall_ms()
        simple = [SimpleRecord(now_ms, key, value) for key, value in key_values]
        return build_batch(simple, compression=self._context.compression, **producer)

    def _append_batch_locked(
        self,
        batch: bytes,
        count: int,
        write: Write,
        *,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> bool:
        """Append a batch of `count` records; false (and `on_settled` posted) when the log refuses it."""
        writer, moved = self._context.writer, set[Any]()
        self._writes.append(write)
        try:
            first_offset = writer.append_internal(
                self.tp, batch, self._context.commit_timeout_ms, partial(self._post_done, write), moved=moved,
                transaction_version=transaction_version, guard=guard,
            )  # fmt: skip
        except ApiError as error:
            self._writes.remove(write)
            self._mailbox.post(partial(self._settle_locked, write, _for_clients(error.code)))
            return False
        write.first_offset = first_offset
        write.end_offset = first_offset + count
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

    def _after_last_write_locked(self, then: Callable[[ErrorCode], object]) -> None:
        last = self._writes[-1]
        before = last.on_settled
        if before is None:  # its time ran out: nobody knows when it will be committed
            then(_for_clients(ErrorCode.REQUEST_TIMED_OUT))
            return

        def both(error: ErrorCode) -> None:
            before(error)
            then(error)

        last.on_settled = both

    # Removal

    def _remove_former_locked(self, former_ids: Mapping[str, bytes]) -> None:
        """Remove the positions that belong to former topics of these names.

        `former_ids` has the id of the topic that had the name until now, ZERO_UUID if none or not known. A position
        without id goes with the topic that was there. A partition whose positions belong partly to the present topic
        (a transaction is open) is left alone: a tombstone would remove them all, and the former one is never told.
        """
        present_id = self._context.consumers.watch.topic_id
        doomed = []
        for (group_id, tp), topic_ids in self.offsets.of_topics(former_ids.keys()).items():
            former_id, current_id = former_ids[tp.topic], present_id(tp.topic)
            if current_id == ZERO_UUID:
                is_former = former_id != ZERO_UUID
            else:
                is_former = current_id not in topic_ids and (former_id != ZERO_UUID or ZERO_UUID not in topic_ids)
            if is_former:
                doomed.append((group_id, tp))
        if doomed:
            log.info("Removing %d offsets of %s in topics that were deleted", len(doomed), self.tp)
        self._remove_offsets_locked(doomed, [], log_failure)

    def _remove_offsets_locked(
        self,
        doomed: Sequence[tuple[str, TopicPartition]],
        deleted_groups: Iterable[str],
        settled: Callable[[ErrorCode], object],
    ) -> None:
        """Write tombstones; groups go at once, their offsets when the tombstones are committed."""
        batch = [records.offset_tombstone(group_id, tp.topic, tp.partition) for group_id, tp in doomed]
        batch += [tombstone for group_id in deleted_groups for tombstone in self._tombstones_locked(group_id)]
        if not batch:
            settled(ErrorCode.NONE)
            return

        def apply(_first_offset: int) -> None:
            for group_id, tp in doomed:
                self.offsets.remove(group_id, tp.topic, tp.partition)

        if self._append_locked(batch, apply, settled):
            for group_id in deleted_groups:
                self._timers.stop_group(group_id)
                self._forget_locked(group_id)

    def _tombstones_locked(self, group_id: str) -> list[records.KeyValue]:
        return [records.group_tombstone(group_id)]

    def _forget_locked(self, group_id: str) -> None:
        del self.groups[group_id]

    def expire(self) -> None:
        """Remove what nobody has used for the retention time, and groups that are left with nothing."""
        with self._mailbox:
            self._expire_locked()

    def _expire_locked(self) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        self._catch_up_locked()
        now_ms = self._context.clock.wall_ms()
        doomed: list[tuple[str, TopicPartition]] = []
        empty: list[str] = []
        for group in self._all_groups_locked():
            due, is_all = self.offsets.expired(group, now_ms, self._context.retention_ms)
            doomed += [(group.group_id, tp) for tp in due]
            if is_all and group.is_idle and not self._writes:
                empty.append(group.group_id)
        if doomed or empty:
            log.info("Removing %d expired offsets and %d groups of %s", len(doomed), len(empty), self.tp)
            if self._context.sensors is not None:
                self._context.sensors.expirations.record(len(doomed))
            self._remove_offsets_locked(doomed, empty, log_failure)

    def _ensure_group_locked(self, group_id: str) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._context.clock.wall_ms())


def nothing(_first_offset: int) -> None:
    """State has changed already."""


def log_failure(error: ErrorCode) -> None:
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
