"""A partition's log: segments of batches, the offsets that bound them, its producers and leader epochs.

Rules
1. An append validates first, without the lock; under the lock it checks the producer, assigns offsets in place, rolls
   if it must, writes once, indexes, and only then publishes the new end. What failed before the write left no trace.
2. Readers take no lock: `_segments`, `_end`, `_high_watermark`, `_first_unstable` are immutable values, replaced whole.
3. Nobody fsyncs an active segment under the lock, but for a truncation: what it cuts must not come back after a power
   cut, behind segments made since, and nobody appends to a log that is being truncated.
4. An OSError means that the disk cannot be trusted: the log refuses everything from then on with KAFKA_STORAGE_ERROR
   and tells `on_disk_failure` (the log manager takes the whole directory offline).

Threads: any. Lock order: Partition's lock, then `_lock`. Methods named `_locked` want it held.

Invariants (`invariants()` checks them)
1. log_start_offset <= high_watermark <= log_end_offset, and last_stable_offset <= high_watermark.
2. The first segment's base offset <= log_start_offset, and recovery_point <= log_end_offset.
3. `_end` names the active segment and its size.

Guarantees: what an append returned is in the page cache, so it survives the death of the process; `flush.messages`,
`flush.ms` or `flush()` make it survive a power cut. A start after a crash checks everything from the recovery point
on and cuts a torn tail.

Source: Kafka's UnifiedLog and LocalLog, 4.3.
"""

from __future__ import annotations

import logging

from barnabas.broker.storage.checkpoints import confirms_topic_id, write_partition_metadata
from barnabas.broker.storage.log_producers import rebuild_producer_state
from barnabas.broker.storage.log_reader import Found, aborted_transactions, find
from barnabas.broker.storage.log_segments import LogSegmentKeeper
from barnabas.broker.storage.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    UNKNOWN_POSITION,
    AbortedTransaction,
    AppendOrigin,
    FetchData,
    FetchIsolation,
    LogAppendInfo,
    LogConfig,
    LogOffsetMetadata,
    RecordError,
    RecordValidationError,
    TimestampOffset,
)
from barnabas.broker.storage.log_writer import UnexpectedAppendOffsetError
from barnabas.broker.storage.names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, delete_dir_name, stray_dir_name
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import SegmentList
from barnabas.broker.storage.strays import Note, write_note
from barnabas.common.ids import uuid_to_string
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

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


class Log(LogSegmentKeeper):
    """One partition's log; see the module's header."""

    # Reading

    def read(self, fetch_offset: int, max_bytes: int, *, isolation: FetchIsolation, min_one_message: bool) -> FetchData:
        """Find up to `max_bytes` from the batch that holds `fetch_offset`, no further than `isolation` allows.

        With `min_one_message` a first batch larger than `max_bytes` is given whole. Raises
        ApiError(OFFSET_OUT_OF_RANGE).
        """
        failure = self._failure
        if failure is not None:
            raise self._storage_error(failure)
        limit = self._limit(isolation)
        if fetch_offset > self._end.offset or fetch_offset < self.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {fetch_offset} for partition {self.topic_partition}, but we only have "
                f"log segments from offset {self.log_start_offset} up to {self._end.offset}",
            )
        segments = self._segments
        try:
            found = find(segments, self._recent, fetch_offset, limit, max_bytes, min_one_message=min_one_message)
            aborted = (
                self._aborted(segments, found, fetch_offset, limit)
                if isolation is FetchIsolation.TXN_COMMITTED
                else None
            )
        except (MalformedMessageError, OSError) as error:
            if self._segments is not segments:  # taken away under this reader: compacted, or too old
                return self.read(fetch_offset, max_bytes, isolation=isolation, min_one_message=min_one_message)
            raise self._read_error(error) from error
        last_stable_offset = self.last_stable_offset  # Why first: the others only grow, so that it is below them
        return FetchData(
            fetch_offset,
            None if found is None else found.slice,
            0 if found is None else found.slice.size,
            self.log_start_offset,
            self._high_watermark.offset,
            last_stable_offset,
            self._end.offset,
            aborted,
        )

    def _read_error(self, error: MalformedMessageError | OSError) -> ApiError:
        if isinstance(error, FileNotFoundError) and self._closed:
            # Why not a failure of the disk: the directory was renamed under a reader that came late.
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {self.topic_partition} is being deleted")
        if isinstance(error, OSError):
            return self._fail(error)
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {self.topic_partition}")

    def _aborted(
        self, segments: SegmentList, found: Found | None, fetch_offset: int, limit: LogOffsetMetadata
    ) -> list[AbortedTransaction]:
        return [] if found is None else aborted_transactions(segments, found, fetch_offset, limit.offset)

    def _limit(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        if isolation is FetchIsolation.LOG_END:
            return self._end
        high_watermark = self._resolved_high_watermark()
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return high_watermark
        unstable = self._first_unstable
        if unstable is None or unstable.offset >= high_watermark.offset:
            return high_watermark
        return unstable if unstable.position != UNKNOWN_POSITION else self.locate(unstable.offset)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at least `timestamp`, or what a special (negative) one stands
        for; None if there is none.

        LATEST gives the log end offset: a leader with consumers to protect answers with its own bound.
        """
        epochs = self.leader_epoch_cache
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = self.log_start_offset
            return TimestampOffset(NO_TIMESTAMP, start, epochs.epoch_for_offset(start))
        if timestamp == LATEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self._end.offset, epochs.latest_epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)  # nothing is tiered
        segments = self._segments
        try:
            if timestamp == MAX_TIMESTAMP:
                newest = max(segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
                return newest.find_max_timestamp()
            for segment in segments:
                if segment.largest_timestamp >= timestamp:
                    # Why go on if none: all of the segment's records may lie below the log's start.
                    found = segment.find_by_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return found
        except (MalformedMessageError, OSError) as error:
            if self._segments is not segments:
                return self.fetch_offset_by_timestamp(timestamp)
            raise self._read_error(error) from error
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, where it ends, exclusive); (-1, -1) if unknown."""
        return self.leader_epoch_cache.end_offset_for(epoch, self._end.offset)

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins; what a new leader does before its first append."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            self.leader_epoch_cache.assign(epoch, start_offset)

    # Truncating

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at or above `offset`; tells whether there was something to drop."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            self.leader_epoch_cache.truncate_from_end(offset)
            if offset >= self._end.offset:
                return False
            log.info("Truncating %s to offset %d", self.topic_partition, offset)
            if offset < self._segments.first.base_offset:
                self._restart_locked(offset)
            else:
                self._cut_locked(offset)
        self._tell_truncated(offset)
        return True

    def _cut_locked(self, offset: int) -> None:
        self._recent = {}
        self.truncation_count += 1
        gone = [segment for segment in self._segments if segment.base_offset > offset]
        self._remove_segments_locked(gone)
        self._segments.active.truncate_to(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._set_end_locked(offset)
        self._reload_producers_locked(offset)

    def _tell_truncated(self, offset: int) -> None:
        if self._on_truncated is not None:
            with self._disk_errors():
                self._on_truncated(self, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            log.info("Truncating %s fully, to start at offset %d", self.topic_partition, offset)
            self._restart_locked(offset, log_start_offset)
        self._tell_truncated(offset)

    def _restart_locked(self, offset: int, log_start_offset: int | None = None) -> None:
        self._recent = {}
        self.truncation_count += 1
        old = self._segments.all
        for segment in old:
            segment.mark_deleted()
        fresh = LogSegment(self._fs, self.directory, offset, self.config, self._clock)
        self._segments = SegmentList([fresh])
        self._delete_later(old)
        self.leader_epoch_cache.clear()
        self.producer_state.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.recovery_point = min(self.recovery_point, offset)
        self._first_unstable = None
        self._end = LogOffsetMetadata(offset, offset, 0)
        self._set_high_watermark_locked(self._end)

    def _reload_producers_locked(self, end_offset: int) -> None:
        rebuild_producer_state(
            self.producer_state, self._segments.all, self.log_start_offset, end_offset, self._clock.wall_ms()
        )
        self._first_unstable = None
        self._update_first_unstable_locked()

    # Settings, identity, end of life

    def update_config(self, config: LogConfig) -> None:
        """Take over new topic settings; they hold from the next append, roll or retention pass on."""
        with self._lock:
            self.config = config
            self.is_configured = True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Record the topic's id beside the log; raises ApiError(INCONSISTENT_TOPIC_ID) if it has another one."""
        with self._lock, self._disk_errors():
            if self.topic_id == topic_id:
                return
            if self.topic_id is not None:
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"Tried to assign another topic ID to log for topic partition {self.topic_partition}",
                )
            path = f"{self.directory}/{PARTITION_METADATA_FILE}"
            if not confirms_topic_id(self._damaged_metadata, topic_id):
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{path} is damaged, and what is left of it does not bear out that the log is of topic "
                    f"{uuid_to_string(topic_id)}: remove the file if it is, the directory if it is not",
                )
            write_partition_metadata(self._fs, path, topic_id)
            self.topic_id, self._damaged_metadata = topic_id, b""
            self.is_settled = False

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for producer.id.expiration.ms."""
        with self._lock:
            return self.producer_state.remove_expired(self._clock.wall_ms())

    def close(self) -> None:
        """Write indexes and a producer snapshot, give the files up. Appends are refused afterwards."""
        with self._flush_lock, self._lock, self._disk_errors():
            if self._closed:
                return
            self._closed = True
            if self._failure is None:
                self._txn_seals.update(self.directory, self._segments)
                if self._end.offset:  # see _flush_epochs_later
                    self.leader_epoch_cache.flush()
                self.producer_state.take_snapshot()
                self._segments.active.become_inactive()
            for segment in self._segments:
                segment.release()

    def rename(self, name: str) -> None:
        """Move the directory to another name in the same log directory; readers that have files open go on."""
        with self._flush_lock, self._lock, self._disk_errors():  # a flush finds its files by their names
            self._check_usable_locked()
            self._rename_locked(name)
            self._fs.fsync_dir(self.directory.rpartition("/")[0])

    def rename_for_delete(self) -> str:
        """Move the directory to a name that marks it for deletion; returns the new path.

        The log directory is to be fsynced afterwards: by the caller, who may have many to delete.
        """
        with self._lock, self._disk_errors():
            self._closed = True
            self._rename_locked(delete_dir_name(self.topic_partition))
            return self.directory

    def set_aside(self, note: Note) -> str:
        """Leave a note in the directory, and move it to a name that start-up passes over; returns the new path.

        The log was flushed and closed. The log directory is to be fsynced afterwards.
        """
        with self._flush_lock, self._lock, self._disk_errors():
            write_note(self._fs, self.directory, note)
            self._rename_locked(stray_dir_name(self.topic_partition))
            return self.directory

    def _rename_locked(self, name: str) -> None:
        parent = self.directory.rpartition("/")[0]
        target = f"{parent}/{name}"
        self._fs.rename(self.directory, target)
        self.directory = target
        for segment in self._segments:
            segment.move_to(target)
        self.producer_state.directory = target
        self.leader_epoch_cache.path = f"{target}/{LEADER_EPOCH_FILE}"

    def delete(self) -> None:
        """Remove the directory and all in it."""
        with self._lock, self._disk_errors():
            for segment in self._segments:
                segment.release()
            self._fs.remove_tree(self.directory)
