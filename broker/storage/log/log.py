"""A partition's log: segments of batches, the offsets that bound it, its producers and leader epochs.

A log owns four components that work on one shared state (`log_state.py`): an appender (`appender.py`), a flusher
(`flusher.py`), a segment keeper (`segment_keeper.py`: rolling, deleting, truncating, swapping) and a reader
(`reader.py`).

Rules
1. An append validates first, without the lock. Under the lock it checks the producer, assigns offsets in place, rolls
   if it must, writes once, indexes, and only then publishes the new end. A failure before the write leaves no trace.
2. Readers take no lock: `segments`, `end`, `high_watermark` and `first_unstable` of the state are immutable values,
   replaced whole.
3. An active segment is not fsynced under the lock, except by a truncation: the batches that it cuts must not come back
   after a power cut, in front of later segments. Nothing is appended while a log is truncated. Until the checkpoint has
   the truncation, a roll fsyncs, too.
4. After an OSError the disk cannot be trusted: the log refuses everything from then on with KAFKA_STORAGE_ERROR and
   calls `on_disk_failure` (the log manager takes the whole directory offline).

Threads: any. Lock order: Partition's lock, then the flush lock, then the state's `lock`. Methods named `_locked` need
the state's lock held.

Invariants (`invariants()` checks them)
1. log_start_offset <= high_watermark <= log_end_offset, and last_stable_offset <= high_watermark.
2. The first segment's base offset <= log_start_offset, and recovery_point <= log_end_offset.
3. The state's `end` names the active segment and its size.

Guarantees: when an append returns, its records are in the page cache, so they survive the death of the process;
`flush.messages`, `flush.ms` or `flush()` make them survive a power cut. A start after a crash checks everything from
the recovery point on and cuts a torn tail.

Source: Kafka's UnifiedLog and LocalLog, 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.broker.storage.directories.checkpoints import (
    confirms_topic_id,
    write_partition_metadata,
)
from barnabas.broker.storage.directories.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    delete_dir_name,
    stray_dir_name,
)
from barnabas.broker.storage.directories.strays import Note, write_note
from barnabas.broker.storage.invariants import check_log
from barnabas.broker.storage.large_batches import ORDINARY_BYTES
from barnabas.broker.storage.log.appender import LogAppender
from barnabas.broker.storage.log.flusher import LogFlusher
from barnabas.broker.storage.log.leader_epochs import LeaderEpochCache
from barnabas.broker.storage.log.log_state import DiskFailureHandler, LogState
from barnabas.broker.storage.log.log_types import (
    AbortedTransaction,
    AppendOrigin,
    FetchData,
    FetchIsolation,
    LastRecord,
    LogAppendInfo,
    LogConfig,
    LogOffsetMetadata,
    RecordError,
    RecordValidationError,
    TimestampOffset,
    UnexpectedAppendOffsetError,
    append_settings,
)
from barnabas.broker.storage.log.reader import LogReader
from barnabas.broker.storage.log.recovery import LoadedLog
from barnabas.broker.storage.log.segment_keeper import SegmentKeeper
from barnabas.broker.storage.log.validator import LeaderValidator
from barnabas.broker.storage.producers.producer_entry import ProducerEntry
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.producers.verification import VerificationGuard
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.segments import SegmentList
from barnabas.broker.storage.segments.txn_index import AbortedTxn
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.ids import uuid_to_string
from barnabas.common.processes.causes import cause_of
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

__all__ = [
    "AbortedTransaction",
    "AppendOrigin",
    "FetchData",
    "FetchIsolation",
    "Log",
    "LogAppendInfo",
    "LogConfig",
    "LogOffsetMetadata",
    "RecordError",
    "RecordValidationError",
    "TimestampOffset",
    "UnexpectedAppendOffsetError",
]

log = logging.getLogger("barnabas.storage.log")

TruncationListener = Callable[["Log", int], None]
"""Called with the log and the offset that it was truncated to, without the log's lock."""


class Log:
    """One partition's log; see the module's header."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        config: LogConfig,
        clock: Clock,
        scheduler: TaskScheduler,
        loaded: LoadedLog,
        *,
        on_disk_failure: DiskFailureHandler | None = None,
        on_truncated: TruncationListener | None = None,
        full_validation: bool = True,
        decompressed_max: int = ORDINARY_BYTES,
    ) -> None:
        """Take over what `LogLoader` loaded from a partition's directory."""
        # Fixed before start
        self.topic_partition = tp
        self._state = state = LogState(fs, directory, tp, config, clock, scheduler, loaded, on_disk_failure)
        self._flusher = LogFlusher(state)
        self._segment_keeper = SegmentKeeper(state, self._flusher)
        validator = LeaderValidator(tp, full=full_validation, decompressed_max=decompressed_max)
        self._appender = LogAppender(state, self._segment_keeper, self._flusher, validator)
        self._reader = LogReader(state)
        self._on_truncated = on_truncated
        # Replaced under the state's lock
        self.is_configured = True  # False: the topic's settings are not known yet, so retention waits
        self._damaged_metadata = loaded.damaged_metadata
        state.topic_id = loaded.topic_id
        with state.lock:
            state.update_first_unstable_locked()

    # Identity

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._state.config

    @property
    def directory(self) -> str:
        """The path of the partition's directory."""
        return self._state.directory

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id (16 bytes); None if it is not recorded."""
        return self._state.topic_id

    @property
    def producer_state(self) -> ProducerStateManager:
        """The log's producers."""
        return self._state.producer_state

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        """The log's leader epochs."""
        return self._state.leader_epochs

    @property
    def on_flush(self) -> Callable[[float], None] | None:
        """Called with the milliseconds of each flush."""
        return self._flusher.on_flush

    @on_flush.setter
    def on_flush(self, listener: Callable[[float], None] | None) -> None:
        """Set what is called; None for nothing."""
        self._flusher.on_flush = listener

    # Offsets and sizes

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._state.end.offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which (exclusive) records are replicated."""
        return self._state.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which (exclusive) every transaction is decided and replicated."""
        return self._state.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """The offset up to which (exclusive) records are durable."""
        return self._state.recovery_point

    def point_to_checkpoint(self) -> int:
        """Return the recovery point, which is written to the checkpoint next; then call `note_checkpointed`."""
        state = self._state
        with state.lock:
            state.checkpointed_point = max(state.checkpointed_point, state.recovery_point)
            return state.recovery_point

    def note_checkpointed(self, point: int) -> None:
        """Take in that the checkpoint holds this recovery point now."""
        with self._state.lock:
            self._state.checkpointed_point = point

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position, looked up now if it was not known."""
        return self._reader.high_watermark_metadata()

    @property
    def segments(self) -> SegmentList:
        """The segments, oldest first; an immutable value."""
        return self._state.segments

    @property
    def active_segment(self) -> LogSegment:
        """The segment that is appended to."""
        return self._state.segments.active

    @property
    def num_segments(self) -> int:
        """How many segments the log has."""
        return len(self._state.segments)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._state.segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 if there is none."""
        return self._state.leader_epochs.latest_epoch

    @property
    def unflushed_messages(self) -> int:
        """How many offsets are not durable yet."""
        return self._state.end.offset - self._state.recovery_point

    @property
    def last_flushed_ms(self) -> int:
        """When the log was last flushed (wall clock)."""
        return self._state.last_flushed_ms

    @property
    def truncation_count(self) -> int:
        """How often the log was truncated since it was opened."""
        return self._state.truncation_count

    @property
    def is_offline(self) -> bool:
        """Whether the disk failed under the log."""
        return self._state.failure is not None

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or is being deleted."""
        return self._state.is_closed

    def locate(self, offset: int) -> LogOffsetMetadata:
        """Return `offset` with its position, so that bytes between two offsets of a segment can be counted."""
        return self._reader.locate(offset)

    def invariants(self) -> None:
        """Check the invariants in the module's header and the producers'; raises AssertionError."""
        check_log(self._state)

    # Moving the bounds

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, kept within the log; returns whether it moved forward.

        Replication decides on the offset. Only a truncation may move the high watermark back.
        """
        state = self._state
        with state.lock:
            before = state.high_watermark.offset
            end = state.end
            if offset >= end.offset:
                state.set_high_watermark_locked(end)
            elif offset != before:
                state.set_high_watermark_locked(state.metadata_of(max(offset, state.log_start_offset)))
            return state.high_watermark.offset > before

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Move the log's start forward; returns whether it moved.

        Raises ApiError(OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            if offset > state.high_watermark.offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it "
                    f"is larger than the high watermark {state.high_watermark.offset}",
                )
            if offset <= state.log_start_offset:
                return False
            log.info("Incremented log start offset of %s to %d due to %s", self.topic_partition, offset, reason)
            state.move_start_locked(offset)
            return True

    # Appending

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Validate the one batch in `records`, assign the next offsets (in place if the buffer is writable), append it.

        A transaction's first batch needs the `guard` that it was verified with; `transaction_version` is a marker's.
        Raises ApiError; RecordValidationError, a kind of it, for single records.
        """
        return self._appender.append_as_leader(records, leader_epoch, origin, transaction_version, guard)

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append whole batches as the leader wrote them, without the batch that the end of `records` cuts.

        Batches of a leader epoch above `leader_epoch` are left out, too (the leader changed meanwhile). A batch of a
        lower epoch than the records before it is refused: epochs only grow along a log, and such a batch would make
        this log forget the later epochs, which show where it diverges from others. Without `leader_epoch` the batches
        are copied as they are. Raises ApiError(CORRUPT_MESSAGE) and UnexpectedAppendOffsetError.

        The leader's log may start inside a batch (DeleteRecords). An empty log that starts there begins anew with that
        batch; its start moves forward again with the leader's.

        Different from Apache Kafka: it appends a batch of a lower epoch, and drops the later epochs with a warning.
        """
        try:
            return self._appender.append_given(records, leader_epoch, AppendOrigin.REPLICATION)
        except UnexpectedAppendOffsetError as gap:
            end = self.log_end_offset
            if end != self.log_start_offset or not gap.first_offset < end <= gap.last_offset:
                raise
            log.info("%s: the log is empty and begins with that batch", gap)
            # Why the recovery point, which moves back, need not be checkpointed first, as Kafka does: the batch reaches
            # beyond the old one, so recovery finds it in the first segment, and checks everything.
            self.truncate_fully_and_start_at(gap.first_offset)
            return self._appender.append_given(records, leader_epoch, AppendOrigin.REPLICATION)

    def roll(self, expected_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log end offset (or `expected_offset`, if that is higher)."""
        return self._segment_keeper.roll(expected_offset or 0)

    def flush(self) -> None:
        """Make everything appended so far survive a power cut; raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._flusher.flush_to(self._state.end.offset)

    def note_gaps(self) -> None:
        """Take in that recovery looks for no holes in this log from now on: the cleaner may leave gaps in it."""
        self._state.may_have_gaps = True

    def flush_rolled(self) -> None:
        """Make everything below the active segment survive a power cut; raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._flusher.flush_to(self._state.segments.active.base_offset)

    # Producers

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Return a guard for the first batch of a transaction; None if the transaction is open already (KIP-890).

        Raises ApiError(INVALID_PRODUCER_EPOCH).
        """
        with self._state.lock:
            state = self._state.producer_state
            if state.is_ongoing(producer_id, epoch):
                return None
            return state.start_verification(producer_id, epoch, sequence, supports_epoch_bump)

    def active_producer(self, producer_id: int) -> ProducerEntry | None:
        """Return a copy of one producer's state; None if it is unknown."""
        with self._state.lock:
            entry = self._state.producer_state.entry(producer_id)
            return None if entry is None else entry.copy()

    def active_producers(self) -> list[ProducerEntry]:
        """Return a copy of every producer's state, all as of one moment."""
        with self._state.lock:
            return [entry.copy() for entry in self._state.producer_state.producers.values()]

    def last_records_of_producers(self) -> dict[int, LastRecord]:
        """Return, by producer id, the record that the cleaner must keep."""
        with self._state.lock:
            return {
                entry.producer_id: LastRecord(entry.last_offset, entry.epoch)
                for entry in self._state.producer_state.producers.values()
            }

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for producer.id.expiration.ms; returns how many."""
        with self._state.lock:
            return self._state.producer_state.remove_expired(self._state.clock.wall_ms())

    # Reading

    def read(self, fetch_offset: int, max_bytes: int, *, isolation: FetchIsolation, min_one_message: bool) -> FetchData:
        """Find up to `max_bytes` from the batch that holds `fetch_offset`, no further than `isolation` allows.

        With `min_one_message` a first batch larger than `max_bytes` is returned whole. Raises
        ApiError(OFFSET_OUT_OF_RANGE).
        """
        return self._reader.read(fetch_offset, max_bytes, isolation, min_one_message)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at least `timestamp`; None if there is none.

        A negative timestamp has a special meaning (`log_types.py`). LATEST returns the log end offset: a leader with
        consumers to protect answers with its own bound.
        """
        return self._reader.fetch_offset_by_timestamp(timestamp)

    def aborted_transactions_in(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch [start, end), ordered by their ends."""
        return self._reader.aborted_transactions_in(start_offset, end_offset)

    # Leader epochs

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, its end offset, exclusive); (-1, -1) if unknown."""
        return self._state.leader_epochs.end_offset_for(epoch, self._state.end.offset)

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Record that a leader epoch begins; a new leader does so before its first append."""
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            state.leader_epochs.assign(epoch, start_offset)

    # Truncating, deleting segments, compaction

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at or above `offset`; returns whether there was something to drop."""
        is_truncated = self._segment_keeper.truncate_to(offset)
        if is_truncated:
            self._report_truncated(offset)
        return is_truncated

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`. The log starts there, or at `log_start_offset`."""
        self._segment_keeper.truncate_fully_and_start_at(offset, log_start_offset)
        self._report_truncated(offset)

    def _report_truncated(self, offset: int) -> None:
        if self._on_truncated is not None:
            with self._state.disk_errors():
                self._on_truncated(self, offset)

    def deletable_segments(self, predicate: Callable[[LogSegment, int | None], bool]) -> list[LogSegment]:
        """Return the oldest segments, up to the first that does not satisfy `predicate(segment, next base offset)`.

        No segment that reaches above the high watermark is returned.
        """
        return self._segment_keeper.deletable(predicate)

    def delete_segments(self, segments: Sequence[LogSegment], reason: str) -> int:
        """Delete segments from the log's beginning and move its start; returns how many were deleted."""
        return self._segment_keeper.delete(segments, reason)

    def rebuild_damaged_indexes(self) -> int:
        """Rebuild the indexes in which a lookup met a wrong entry; returns of how many segments."""
        return self._segment_keeper.rebuild_damaged_indexes()

    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment], truncations: int) -> bool:
        """Swap in a cleaned segment for those compacted into it; False if the log is no longer what was compacted.

        `truncations` is the `truncation_count` from before the log was read.
        """
        return self._segment_keeper.replace(cleaned, replaced, truncations)

    # Failing

    def mark_offline(self, error: OSError) -> None:
        """Refuse everything from now on: the disk failed under another log of the same directory."""
        self._state.mark_offline(error)

    def fail(self, error: OSError) -> ApiError:
        """Report that the disk failed under this log in work outside of it; returns the error for the caller to raise.

        The cleaner does so, and a move to another directory.
        """
        return self._state.fail(error)

    # Settings, identity, end of life

    def update_config(self, config: LogConfig) -> None:
        """Take over new topic settings; they hold from the next append, roll or retention pass on."""
        with self._state.lock:
            self._state.config = config
            self._state.append_settings = append_settings(config)
            self.is_configured = True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Record the topic's id beside the log; raises ApiError(INCONSISTENT_TOPIC_ID) if the log has another one."""
        state = self._state
        with state.lock, state.disk_errors():
            if state.topic_id == topic_id:
                return
            if state.topic_id is not None:
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"Tried to assign another topic ID to log for topic partition {self.topic_partition}",
                )
            path = f"{state.directory}/{PARTITION_METADATA_FILE}"
            if self._damaged_metadata and not confirms_topic_id(self._damaged_metadata, topic_id):
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{path} is damaged, and its remains do not show that the log belongs to topic "
                    f"{uuid_to_string(topic_id)}: remove the file if it does, the directory if it does not",
                )
            write_partition_metadata(state.fs, path, topic_id)
            state.topic_id, self._damaged_metadata = topic_id, b""
            state.is_settled = False

    def flush_recovered(self) -> None:
        """Flush what a process that was killed has written and not flushed, if `flush.messages` asks for that.

        Otherwise a replica would join the ISR with records that it seems to have flushed, and has not; Kafka leaves
        them to the next append. Raises OSError.
        """
        try:
            self._flusher.flush_if_due()
        except ApiError as error:
            cause = cause_of(error)
            raise (cause if isinstance(cause, OSError) else error) from None

    def close(self) -> None:
        """Write indexes and a producer snapshot, then close the files. Later appends are refused."""
        state = self._state
        with state.flush_lock, state.lock, state.disk_errors():
            if state.is_closed:
                return
            state.is_closed = True
            if state.failure is None:
                state.txn_checksums.write(state.directory, state.segments)
                if state.end.offset:  # a log without records needs no epochs on disk
                    state.leader_epochs.flush()
                state.producer_state.take_snapshot()
                state.segments.active.become_inactive()
            for segment in state.segments:
                segment.release()
            state.leader_epochs.flush_no_more()

    def rename(self, name: str) -> None:
        """Rename the directory within its log directory; readers with open files are not disturbed."""
        state = self._state
        with state.flush_lock, state.lock, state.disk_errors():  # a flush finds its files by their names
            state.check_usable_locked()
            self._rename_locked(name)
            state.fs.fsync_dir(state.directory.rpartition("/")[0])

    def rename_for_delete(self) -> str:
        """Rename the directory so that its name marks it for deletion; returns the new path.

        The caller must fsync the log directory afterwards: it may have many logs to delete.
        """
        state = self._state
        with state.lock, state.disk_errors():
            state.is_closed = True
            self._rename_locked(delete_dir_name(self.topic_partition))
            return state.directory

    def set_aside(self, note: Note) -> str:
        """Write a note into the directory and rename it so that a start ignores it; returns the new path.

        The log was flushed and closed. The caller must fsync the log directory afterwards.
        """
        state = self._state
        with state.flush_lock, state.lock, state.disk_errors():
            write_note(state.fs, state.directory, note)
            self._rename_locked(stray_dir_name(self.topic_partition))
            return state.directory

    def _rename_locked(self, name: str) -> None:
        state = self._state
        parent = state.directory.rpartition("/")[0]
        target = f"{parent}/{name}"
        state.fs.rename(state.directory, target)
        state.directory = target
        for segment in state.segments:
            segment.move_to(target)
        state.producer_state.move_to(target)
        state.leader_epochs.path = f"{target}/{LEADER_EPOCH_FILE}"

    def delete(self) -> None:
        """Remove the directory and everything in it."""
        state = self._state
        with state.lock, state.disk_errors():
            for segment in state.segments:
                segment.release()
            state.leader_epochs.flush_no_more()
            state.fs.remove_tree(state.directory)
