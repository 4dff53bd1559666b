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
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    LEADER_EPOCH_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    BatchHeader,
    iter_headers,
    reseal,
    verify_crc,
)
from broker.storage.checkpoints import read_partition_metadata, write_partition_metadata
from broker.storage.log_producers import ProducerChanges, prepare_changes, rebuild_producer_state
from broker.storage.log_reader import Found, aborted_transactions, find, resolve
from broker.storage.log_types import (
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
from broker.storage.names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, delete_dir_name
from broker.storage.producer_state import BatchMetadata
from broker.storage.scheduler import TaskScheduler
from broker.storage.segment import LogSegment
from broker.storage.segments import SegmentList
from broker.storage.txn_index import AbortedTxn
from broker.storage.validator import ValidBatch, validate_for_leader

if TYPE_CHECKING:
    from broker.storage.recovery import LoadedLog

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

LATEST_PRODUCE_VERSION = 13
RECENT_BATCHES_MAX = 256
LATE_TRANSACTION_MS = 5 * 60 * 1000

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")

DiskFailureHandler = Callable[[str, OSError], None]
"""Told the partition's directory and the error."""


class UnexpectedAppendOffsetError(Exception):
    """A follower was given batches that do not continue its log."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


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
        always_full_validation: bool = False,
    ) -> None:
        # Fixed before start
        self.topic_partition = tp
        self._fs = fs
        self._clock = clock
        self._scheduler = scheduler
        self._on_disk_failure = on_disk_failure
        self._always_full = always_full_validation
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()  # one flush at a time; taken before _lock
        # Replaced whole under _lock, read without it
        self.config = config
        self.directory = directory
        self.topic_id: bytes | None = read_partition_metadata(fs, f"{directory}/{PARTITION_METADATA_FILE}")
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self._segments = loaded.segments
        self._end = LogOffsetMetadata(
            loaded.next_offset, loaded.segments.active.base_offset, loaded.segments.active.size
        )
        self._high_watermark = LogOffsetMetadata(loaded.log_start_offset)
        self._first_unstable: LogOffsetMetadata | None = None
        self._failure: OSError | None = None  # set once
        self._closed = False
        self.last_flushed_ms = clock.wall_ms()
        # Guarded by: _lock (the epoch cache and the dict below are also read without it)
        self.producer_state = loaded.producer_state
        self.leader_epoch_cache = loaded.leader_epochs
        self._recent: dict[int, tuple[int, int]] = {}  # base offset of a late batch -> (segment base, position)
        with self._lock:
            self._update_first_unstable_locked()

    # Offsets and sizes

    @property
    def log_end_offset(self) -> int:
        return self._end.offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable
        high_watermark = self._high_watermark.offset
        return unstable.offset if unstable is not None and unstable.offset < high_watermark else high_watermark

    @property
    def log_end_metadata(self) -> LogOffsetMetadata:
        return self._end

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position, looked up now if it was not known."""
        return self._resolved_high_watermark()

    @property
    def segments(self) -> SegmentList:
        return self._segments

    @property
    def active_segment(self) -> LogSegment:
        return self._segments.active

    @property
    def num_segments(self) -> int:
        return len(self._segments)

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 if there is none."""
        return self.leader_epoch_cache.latest_epoch

    @property
    def unflushed_messages(self) -> int:
        return self._end.offset - self.recovery_point

    @property
    def is_offline(self) -> bool:
        return self._failure is not None

    def locate(self, offset: int) -> LogOffsetMetadata:
        """Return `offset` with its position, so that bytes between two offsets of a segment can be counted."""
        if offset == self._end.offset:
            return self._end
        return resolve(self._segments, self._recent, offset)

    # Appending

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        request_version: int = LATEST_PRODUCE_VERSION,
        transaction_version: int = 0,
    ) -> LogAppendInfo:
        """Validate the one batch in `records`, give it the next offsets (in place if the buffer is writable) and
        append it.

        Raises ApiError; RecordValidationError, a kind of it, names single records.
        """
        if origin is AppendOrigin.RAFT_LEADER:
            return self._append_given(records, leader_epoch, origin)
        valid = validate_for_leader(
            records,
            self.config,
            tp=self.topic_partition,
            origin=origin,
            now_ms=self._clock.wall_ms(),
            request_version=request_version,
            always_full=self._always_full,
        )
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            info = self._append_valid_locked(valid, leader_epoch, origin, transaction_version)
        self._maybe_flush()
        return info

    def _append_valid_locked(
        self, valid: ValidBatch, leader_epoch: int, origin: AppendOrigin, transaction_version: int
    ) -> LogAppendInfo:
        header, data, config = valid.header, valid.data, self.config
        size = len(data)
        first = self._end.offset
        last = first + header.last_offset_delta
        if size > config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which exceeds the "
                f"maximum configured segment size of {config.segment_bytes}",
            )
        changes = None
        if header.producer_id >= 0:
            entry = self.producer_state.entry(header.producer_id)
            if entry is not None and origin is AppendOrigin.CLIENT:
                duplicate = entry.find_duplicate(header)
                if duplicate is not None:
                    return self._duplicate_info(header, duplicate, size)
            placed = header._replace(base_offset=first, max_timestamp=valid.max_timestamp)
            changes = prepare_changes(self.producer_state, [(placed, data)], origin, transaction_version)
        log_append_time_ms = NO_TIMESTAMP
        if config.message_timestamp_type == "LogAppendTime":
            log_append_time_ms = self._restamp(valid)
        _INT64.pack_into(data, 0, first)
        _INT32.pack_into(data, LEADER_EPOCH_OFFSET, leader_epoch)
        if leader_epoch >= 0:
            self.leader_epoch_cache.assign(leader_epoch, first)
        self._write_locked(data, ((size, last, valid.max_timestamp),), first, last)
        if changes is not None:
            self._apply_changes_locked(changes, last + 1)
        else:
            self.producer_state.map_end_offset = last + 1
        return LogAppendInfo(
            first,
            last,
            valid.max_timestamp,
            log_append_time_ms,
            self.log_start_offset,
            header.record_count,
            size,
            leader_epoch,
        )

    def _restamp(self, valid: ValidBatch) -> int:
        """Stamp the batch again if another append was stamped later while this one waited for the lock."""
        newest = self._segments.active.max_timestamp_so_far.timestamp
        now_ms = self._clock.wall_ms()
        if valid.max_timestamp < newest <= now_ms:
            valid.max_timestamp = now_ms
            _INT64.pack_into(valid.data, MAX_TIMESTAMP_OFFSET, now_ms)
            reseal(valid.data, 0, len(valid.data))
        return valid.max_timestamp

    def _duplicate_info(self, header: BatchHeader, duplicate: BatchMetadata, size: int) -> LogAppendInfo:
        return LogAppendInfo(
            duplicate.first_offset,
            duplicate.last_offset,
            duplicate.timestamp,
            duplicate.timestamp,
            self.log_start_offset,
            header.record_count,
            size,
            header.partition_leader_epoch,
            is_duplicate=True,
        )

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append whole batches as the leader wrote them; a batch cut at the end of `records` is left out.

        Batches of a leader epoch above `leader_epoch` are left out too (the leader changed meanwhile). Raises
        ApiError(CORRUPT_MESSAGE) and UnexpectedAppendOffsetError.
        """
        return self._append_given(records, leader_epoch, AppendOrigin.REPLICATION)

    def _append_given(self, records: memoryview, leader_epoch: int | None, origin: AppendOrigin) -> LogAppendInfo:
        """Append batches whose offsets are decided elsewhere."""
        batches = self._check_given(records, leader_epoch, origin)
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            if batches:
                first, last = batches[0][1].base_offset, batches[-1][1].last_offset
                if first < self._end.offset:
                    raise UnexpectedAppendOffsetError(
                        f"Unexpected offset in append to {self.topic_partition}. First offset {first} is less than the "
                        f"next offset {self._end.offset}",
                        first,
                        last,
                    )
            for group in self._groups_that_fit(batches):
                self._append_group_locked(records, group, origin)
            log_start_offset = self.log_start_offset
        self._maybe_flush()
        return _given_info(batches, log_start_offset)

    def _check_given(
        self, records: memoryview, leader_epoch: int | None, origin: AppendOrigin
    ) -> list[tuple[int, BatchHeader]]:
        batches: list[tuple[int, BatchHeader]] = []
        last_offset = NO_OFFSET
        try:
            for position, header in iter_headers(records):
                if origin is AppendOrigin.RAFT_LEADER and header.partition_leader_epoch != leader_epoch:
                    raise ApiError(
                        ErrorCode.INVALID_RECORD,
                        f"Append from Raft leader did not set the batch epoch correctly, expected {leader_epoch} but "
                        f"the batch has {header.partition_leader_epoch}",
                    )
                if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                    break
                if header.last_offset <= last_offset or header.last_offset_delta < 0:
                    raise ApiError(
                        ErrorCode.INVALID_RECORD, f"Out of order offsets found in append to {self.topic_partition}"
                    )
                last_offset = header.last_offset
                verify_crc(records, position, header)
                batches.append((position, header))
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {self.topic_partition}") from None
        return batches

    def _groups_that_fit(self, batches: list[tuple[int, BatchHeader]]) -> Iterator[list[tuple[int, BatchHeader]]]:
        """Split batches into runs that each fit one segment, so that each costs one write."""
        segment_bytes = self.config.segment_bytes
        group: list[tuple[int, BatchHeader]] = []
        room = segment_bytes - self._segments.active.size
        for position, header in batches:
            size = header.size_in_bytes
            if group and size > room:
                yield group
                group = []
            if not group:
                room = segment_bytes - self._segments.active.size
                room = room if size <= room else segment_bytes
            group.append((position, header))
            room -= size
        if group:
            yield group

    def _append_group_locked(
        self, records: memoryview, group: list[tuple[int, BatchHeader]], origin: AppendOrigin
    ) -> None:
        start = group[0][0]
        end = group[-1][0] + group[-1][1].size_in_bytes
        changes = None
        if any(header.producer_id >= 0 for _, header in group):
            placed = [(header, records[at : at + header.size_in_bytes]) for at, header in group]
            changes = prepare_changes(self.producer_state, placed, origin, 0)
        for _, header in group:
            if header.partition_leader_epoch >= 0:
                self.leader_epoch_cache.assign(header.partition_leader_epoch, header.base_offset)
        sizes = [(header.size_in_bytes, header.last_offset, header.max_timestamp) for _, header in group]
        first, last = group[0][1].base_offset, group[-1][1].last_offset
        self._write_locked(records[start:end], sizes, first, last)
        if changes is not None:
            self._apply_changes_locked(changes, last + 1)
        else:
            self.producer_state.map_end_offset = last + 1

    def _write_locked(
        self, data: bytearray | memoryview, batches: Sequence[tuple[int, int, int]], first: int, last: int
    ) -> None:
        """Write batches to the active segment, a new one if they do not belong into it, and publish the new end."""
        segment = self._segments.active
        max_timestamp = max(batch[2] for batch in batches) if len(batches) > 1 else batches[0][2]
        now_ms = self._clock.wall_ms()
        if segment.should_roll(len(data), max_timestamp, last, now_ms, self.config):
            # Why: offsets of a follower may jump (a compacted log), and a segment reaches 2**31 - 1 above its base.
            segment = self._roll_locked(first)
        position = segment.append(data, batches)
        recent = self._recent
        recent[first] = (segment.base_offset, position)
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]
        self._set_end_locked(last + 1)

    def _set_end_locked(self, offset: int) -> None:
        """Publish a new end; a high watermark at or above the old end follows it back, never forward."""
        active = self._segments.active
        self._end = LogOffsetMetadata(offset, active.base_offset, active.size)
        if self._high_watermark.offset >= offset:
            self._set_high_watermark_locked(self._end)

    def _apply_changes_locked(self, changes: ProducerChanges, map_end_offset: int) -> None:
        state = self.producer_state
        for change in changes.producers:
            state.apply(change)
        for completed in changes.completed:
            last_stable_offset = state.last_stable_offset_after(completed)
            if completed.is_aborted:
                self._segments.active.txn_index.append(
                    AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
                )
            state.complete(completed)
        state.map_end_offset = map_end_offset
        self._update_first_unstable_locked()

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
                f"Received request for offset {fetch_offset} for partition {self.topic_partition}, but we only have log "
                f"segments from offset {self.log_start_offset} up to {self._end.offset}",
            )
        segments = self._segments
        try:
            found = find(segments, self._recent, fetch_offset, limit, max_bytes, min_one_message=min_one_message)
            aborted = (
                self._aborted(segments, found, fetch_offset, limit)
                if isolation is FetchIsolation.TXN_COMMITTED
                else None
            )
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {self.topic_partition}") from None
        except OSError as error:
            raise self._fail(error) from error
        return FetchData(
            fetch_offset,
            None if found is None else found.slice,
            0 if found is None else found.slice.size,
            self.log_start_offset,
            self._high_watermark.offset,
            self.last_stable_offset,
            self._end.offset,
            aborted,
        )

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

    def _resolved_high_watermark(self) -> LogOffsetMetadata:
        known = self._high_watermark
        if known.position != UNKNOWN_POSITION:
            return known
        try:
            located = self.locate(known.offset)
        except (MalformedMessageError, OSError):
            return known  # the reader meets the same trouble and reports it
        with self._lock:
            if self._high_watermark is known:
                self._high_watermark = located
        return located

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
        try:
            if timestamp == MAX_TIMESTAMP:
                newest = max(self._segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
                return newest.find_max_timestamp()
            for segment in self._segments:
                if segment.largest_timestamp >= timestamp:
                    # Why go on if none: all of the segment's records may lie below the log's start.
                    found = segment.find_by_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return found
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {self.topic_partition}") from None
        except OSError as error:
            raise self._fail(error) from error
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, where it ends, exclusive); (-1, -1) if unknown."""
        return self.leader_epoch_cache.end_offset_for(epoch, self._end.offset)

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins; what a new leader does before its first append."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            self.leader_epoch_cache.assign(epoch, start_offset)

    # High watermark, log start offset

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, kept within the log; tells whether it moved forward.

        Deciding is replication's: only a truncation may move it back.
        """
        with self._lock:
            before = self._high_watermark.offset
            end = self._end
            if offset >= end.offset:
                self._set_high_watermark_locked(end)
            elif offset != before:
                self._set_high_watermark_locked(self._metadata_of(max(offset, self.log_start_offset)))
            return self._high_watermark.offset > before

    def _metadata_of(self, offset: int) -> LogOffsetMetadata:
        known = self._recent.get(offset)
        return LogOffsetMetadata(offset) if known is None else LogOffsetMetadata(offset, *known)

    def _set_high_watermark_locked(self, metadata: LogOffsetMetadata) -> None:
        self._high_watermark = metadata
        self.producer_state.on_high_watermark(metadata.offset)
        self._update_first_unstable_locked()

    def _update_first_unstable_locked(self) -> None:
        offset = self.producer_state.first_unstable_offset
        if offset is None:
            self._first_unstable = None
            return
        offset = max(offset, self.log_start_offset)
        known = self._first_unstable
        if known is None or known.offset != offset:
            self._first_unstable = self._metadata_of(offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Move the log's start forward, never above the high watermark (ApiError OFFSET_OUT_OF_RANGE).

        Tells whether it moved.
        """
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            if offset > self._high_watermark.offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it is "
                    f"larger than the high watermark {self._high_watermark.offset}",
                )
            if offset <= self.log_start_offset:
                return False
            self._set_log_start_locked(offset)
            log.info("Incremented log start offset of %s to %d due to %s", self.topic_partition, offset, reason)
            self.leader_epoch_cache.truncate_from_start(offset)
            self.producer_state.on_log_start_offset(offset)
            self._update_first_unstable_locked()
            return True

    def _set_log_start_locked(self, offset: int) -> None:
        self.log_start_offset = offset
        if self._high_watermark.offset < offset:
            self._set_high_watermark_locked(self._metadata_of(offset))
        self.recovery_point = max(self.recovery_point, offset)

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
                return True
            self._recent = {}
            gone = [segment for segment in self._segments if segment.base_offset > offset]
            self._remove_segments_locked(gone)
            self._segments.active.truncate_to(offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._set_end_locked(offset)
            self._reload_producers_locked(offset)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            log.info("Truncating %s fully, to start at offset %d", self.topic_partition, offset)
            self._restart_locked(offset, log_start_offset)

    def _restart_locked(self, offset: int, log_start_offset: int | None = None) -> None:
        self._recent = {}
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

    # Rolling, flushing

    def roll(self, expected_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log end offset (or `expected_offset`, if that is higher)."""
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            return self._roll_locked(expected_offset or 0)

    def _roll_locked(self, expected_offset: int) -> LogSegment:
        active = self._segments.active
        base_offset = max(expected_offset, self._end.offset)
        if active.base_offset == base_offset:
            assert not active.size, f"{active} has data at its own end"
            return active
        active.become_inactive()
        state = self.producer_state
        state.map_end_offset = base_offset
        state.take_snapshot(sync=False)
        segment = LogSegment(self._fs, self.directory, base_offset, self.config, self._clock)
        self._segments = self._segments.with_added(segment)
        self._set_end_locked(self._end.offset)
        self._scheduler.schedule_once("flush-log", lambda: self._flush_quietly(base_offset))
        return segment

    def _flush_quietly(self, offset: int) -> None:
        if not self._closed and self._failure is None:
            self._flush_to(offset)

    def _maybe_flush(self) -> None:
        if self._end.offset - self.recovery_point >= self.config.flush_messages:
            self._flush_to(self._end.offset)

    def flush(self) -> None:
        """Make everything appended so far survive a power cut; raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._flush_to(self._end.offset)

    def _flush_to(self, offset: int) -> None:
        """Flush the segments between the recovery point and `offset`, without the log's lock, then move the
        recovery point.
        """
        with self._flush_lock:
            recovery_point = self.recovery_point
            pending = self._unflushed_segments(recovery_point, offset)
            if not pending:
                return
            with self._disk_errors():
                for segment in pending:
                    if segment is self._segments.active:
                        segment.flush_data()
                    else:
                        segment.flush()
                if any(segment.base_offset >= recovery_point for segment in pending):
                    self._fs.fsync_dir(self.directory)
            with self._lock:
                self.last_flushed_ms = self._clock.wall_ms()
                self.recovery_point = max(self.recovery_point, min(offset, self._end.offset))

    def _unflushed_segments(self, recovery_point: int, offset: int) -> list[LogSegment]:
        """Return the segments with something to make durable between the recovery point and `offset`."""
        segments = self._segments
        # Why one more to the left: a recovery point at a segment's end leaves that segment's indexes to be flushed.
        first = max(0, segments.floor_index(recovery_point) - 1)
        return [
            segment
            for segment in segments.all[first:]
            if segment.base_offset < offset
            and (recovery_point < offset if segment is segments.active else not segment.indexes_flushed)
        ]

    # Deleting old segments

    def deletable_segments(self, predicate: Callable[[LogSegment, int | None], bool]) -> list[LogSegment]:
        """Return the oldest segments for which `predicate(segment, next base offset)` holds, none that reaches
        above the high watermark.
        """
        segments = self._segments
        found: list[LogSegment] = []
        for index, segment in enumerate(segments.all):
            next_base = segments.next_base(index)
            upper_bound = self._end.offset if next_base is None else next_base
            is_last_and_empty = next_base is None and segment.size == 0
            if self._high_watermark.offset < upper_bound or is_last_and_empty or not predicate(segment, next_base):
                break
            found.append(segment)
        return found

    def delete_segments(self, segments: Sequence[LogSegment], reason: str) -> int:
        """Delete segments from the log's beginning, moving its start; rolls first if the active one is among them."""
        if not segments:
            return 0
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            current = {id(segment) for segment in self._segments}
            doomed = [segment for segment in segments if id(segment) in current]
            if not doomed:
                return 0
            if self._segments.active in doomed:
                self._roll_locked(0)
            index = self._segments.floor_index(doomed[-1].base_offset)
            start = self._segments.next_base(index)
            assert start is not None
            if start > self.log_start_offset:
                self._set_log_start_locked(start)
                self.leader_epoch_cache.truncate_from_start(start)
                self.producer_state.on_log_start_offset(start)
                self._update_first_unstable_locked()
            log.info("Deleting %d segments of %s due to %s", len(doomed), self.topic_partition, reason)
            self._remove_segments_locked(doomed)
            return len(doomed)

    def _remove_segments_locked(self, gone: Sequence[LogSegment]) -> None:
        """Take segments out of the log, rename their files now and remove them after file.delete.delay.ms."""
        if not gone:
            return
        self._segments = self._segments.without(gone)
        snapshots = []
        for segment in gone:
            segment.mark_deleted()
            marked = self.producer_state.mark_snapshot_deleted(segment.base_offset)
            if marked is not None:
                snapshots.append(marked)
        self._delete_later(gone, snapshots)

    def _delete_later(self, gone: Sequence[LogSegment], paths: Sequence[str] = ()) -> None:
        def delete() -> None:
            with self._disk_errors():
                for segment in gone:
                    segment.delete()
                for path in paths:
                    self._fs.unlink(path)

        self._scheduler.schedule_once("delete-file", delete, self.config.file_delete_delay_ms)

    # Settings, identity, end of life

    def update_config(self, config: LogConfig) -> None:
        """Take over new topic settings; they hold from the next append, roll or retention pass on."""
        with self._lock:
            self.config = config

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
            write_partition_metadata(self._fs, f"{self.directory}/{PARTITION_METADATA_FILE}", topic_id)
            self.topic_id = topic_id

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for producer.id.expiration.ms."""
        with self._lock:
            return self.producer_state.remove_expired(self._clock.wall_ms())

    def close(self) -> None:
        """Write indexes and a producer snapshot, give the files up. Appends are refused afterwards."""
        with self._lock, self._disk_errors():
            if self._closed:
                return
            self._closed = True
            if self._failure is None:
                self.producer_state.take_snapshot()
                self._segments.active.become_inactive()
            for segment in self._segments:
                segment.release()

    def rename_for_delete(self) -> str:
        """Move the directory to a name that marks it for deletion; returns the new path.

        Readers that have files open go on.
        """
        with self._lock, self._disk_errors():
            parent = self.directory.rpartition("/")[0]
            target = f"{parent}/{delete_dir_name(self.topic_partition)}"
            self._fs.rename(self.directory, target)
            self._fs.fsync_dir(parent)
            self.directory = target
            for segment in self._segments:
                segment.move_to(target)
            self.producer_state.directory = target
            self.leader_epoch_cache.path = f"{target}/{LEADER_EPOCH_FILE}"
            self._closed = True
            return target

    def delete(self) -> None:
        """Remove the directory and all in it."""
        with self._lock, self._disk_errors():
            for segment in self._segments:
                segment.release()
            self._fs.remove_tree(self.directory)

    def mark_offline(self, error: OSError) -> None:
        """Refuse everything from now on: the disk failed under another log of the same directory."""
        if self._failure is None:
            self._failure = error

    def _check_usable_locked(self) -> None:
        if self._failure is not None:
            raise self._storage_error(self._failure)
        if self._closed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is closed")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn an OSError into the failure of this log (rule 4)."""
        try:
            yield
        except OSError as error:
            raise self._fail(error) from error

    def _fail(self, error: OSError) -> ApiError:
        self.mark_offline(error)
        log.error("Disk failure under %s in %s: %s", self.topic_partition, self.directory, error)
        if self._on_disk_failure is not None:
            self._on_disk_failure(self.directory, error)
        return self._storage_error(error)

    def _storage_error(self, error: OSError) -> ApiError:
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is offline: {error}"
        )

    def invariants(self) -> None:
        """Assert what the module's header promises."""
        with self._lock:
            high_watermark, end = self._high_watermark.offset, self._end
            assert self.log_start_offset <= high_watermark <= end.offset, "inv. 1"
            assert self.last_stable_offset <= high_watermark, "inv. 1"
            assert self._segments.first.base_offset <= self.log_start_offset, "inv. 2"
            assert self.recovery_point <= end.offset, "inv. 2"
            active = self._segments.active
            assert (end.segment_base_offset, end.position) == (active.base_offset, active.size), "inv. 3"


def _given_info(batches: list[tuple[int, BatchHeader]], log_start_offset: int) -> LogAppendInfo:
    if not batches:
        return LogAppendInfo(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, log_start_offset, 0, 0, NO_EPOCH)
    return LogAppendInfo(
        batches[0][1].base_offset,
        batches[-1][1].last_offset,
        max(header.max_timestamp for _, header in batches),
        NO_TIMESTAMP,
        log_start_offset,
        sum(header.record_count for _, header in batches),
        sum(header.size_in_bytes for _, header in batches),
        batches[-1][1].partition_leader_epoch,
    )
