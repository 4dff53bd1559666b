"""Appending to a log: as its leader, as a follower, by the controller; rolling and flushing.

Rules, threads and invariants stand in `broker/storage/log.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.broker.storage.log_base import LogBase
from barnabas.broker.storage.log_producers import ProducerChanges, prepare_changes
from barnabas.broker.storage.log_types import (
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    AppendOrigin,
    LogAppendInfo,
)
from barnabas.broker.storage.names import PARTITION_METADATA_FILE
from barnabas.broker.storage.producer_state import BatchMetadata, ProducerEntry, sync_snapshot
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.txn_index import AbortedTxn
from barnabas.broker.storage.validator import ValidBatch, validate_for_leader
from barnabas.broker.storage.verification import VerificationGuard
from barnabas.common.clock import NS_PER_MS
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    LEADER_EPOCH_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    BatchHeader,
    iter_headers,
    reseal,
    verify_crc,
)

LATEST_PRODUCE_VERSION: Final = 13
RECENT_BATCHES_MAX: Final = 256

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")


class UnexpectedAppendOffsetError(Exception):
    """A follower was given batches that do not continue its log."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogWriter(LogBase):
    """A log that can be written to."""

    # Appending

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        request_version: int = LATEST_PRODUCE_VERSION,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Validate the one batch in `records`, give it the next offsets (in place if the buffer is writable) and
        append it.

        A transaction's first batch needs the `guard` that it was verified with; `transaction_version` is a marker's.

        Raises ApiError; RecordValidationError, a kind of it, names single records.
        """
        if origin is AppendOrigin.RAFT_LEADER:
            return self._append_given(records, leader_epoch, origin)
        now_ms = self._clock.wall_ms()
        valid = validate_for_leader(
            records,
            self.config,
            tp=self.topic_partition,
            origin=origin,
            now_ms=now_ms,
            request_version=request_version,
            full=self._full_validation,
            decompressed_max=self._decompressed_max,
        )
        with self._lock:
            self._check_usable_locked()
            try:
                info = self._append_valid_locked(valid, leader_epoch, origin, transaction_version, guard, now_ms)
            except OSError as error:
                raise self._fail(error) from error
        self._maybe_flush()
        return info

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Draw a guard for the first batch of a transaction; None when nothing is to be proved (KIP-890)."""
        with self._lock:
            state = self.producer_state
            if state.is_ongoing(producer_id, epoch):
                return None
            return state.start_verification(producer_id, epoch, sequence, supports_epoch_bump)

    def active_producer(self, producer_id: int) -> ProducerEntry | None:
        """What is remembered of one producer; None if nothing is."""
        with self._lock:
            entry = self.producer_state.entry(producer_id)
            return None if entry is None else entry.copy()

    def active_producers(self) -> list[ProducerEntry]:
        """What is remembered of producers, each as it was at some time during the call."""
        with self._lock:
            return [entry.copy() for entry in self.producer_state.producers.values()]

    def _append_valid_locked(
        self,
        valid: ValidBatch,
        leader_epoch: int,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
        now_ms: int,
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
            if header.is_transactional and not header.is_control:
                self.producer_state.require_transaction(header, guard)
            placed = header._replace(base_offset=first, max_timestamp=valid.max_timestamp)
            changes = prepare_changes(self.producer_state, [(placed, data)], origin, transaction_version)
        log_append_time_ms = NO_TIMESTAMP
        if config.message_timestamp_type == "LogAppendTime":
            log_append_time_ms = self._restamp(valid)
        _INT64.pack_into(data, 0, first)
        _INT32.pack_into(data, LEADER_EPOCH_OFFSET, leader_epoch)
        if leader_epoch >= 0:
            self.leader_epoch_cache.assign(leader_epoch, first)
        self._write_locked(data, ((size, last, valid.max_timestamp),), first, last, now_ms)
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

        Batches of a leader epoch above `leader_epoch` are left out too (the leader changed meanwhile). One of a lower
        epoch than the records before it is refused: epochs only grow along a log, and to believe it would make this
        log forget the later epochs, by which it tells where it parts from others. Raises ApiError(CORRUPT_MESSAGE) and
        UnexpectedAppendOffsetError. Without `leader_epoch` the batches are copied as they are.

        Different from Apache Kafka: it appends such a batch, and drops the later epochs with a warning.
        """
        return self._append_given(records, leader_epoch, AppendOrigin.REPLICATION)

    def _append_given(self, records: memoryview, leader_epoch: int | None, origin: AppendOrigin) -> LogAppendInfo:
        """Append batches whose offsets are decided elsewhere."""
        batches = self._check_given(records, leader_epoch, origin)
        with self._lock:
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
            if leader_epoch is not None:
                batches = self._with_rising_epochs(batches)
            try:
                for group in self._groups_that_fit(batches):
                    self._append_group_locked(records, group, origin)
            except OSError as error:  # Why not `_disk_errors`: a generator, twice a fetch of a follower
                raise self._fail(error) from error
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

    def _with_rising_epochs(self, batches: list[tuple[int, BatchHeader]]) -> list[tuple[int, BatchHeader]]:
        """Return the batches up to the first whose leader epoch is below that of what it follows; raises ApiError if
        that is the first of all.
        """
        # Why not the latest epoch: a leader that wrote nothing has an entry for its epoch at the end of its log.
        epoch = self.leader_epoch_cache.epoch_for_offset(self._end.offset - 1)
        for index, (_, header) in enumerate(batches):
            if NO_EPOCH < header.partition_leader_epoch < epoch:
                if index:
                    return batches[:index]
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The batch at offset {header.base_offset} of {self.topic_partition} has leader epoch "
                    f"{header.partition_leader_epoch}, but the records before it have {epoch}",
                )
            epoch = max(epoch, header.partition_leader_epoch)
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
        self._write_locked(records[start:end], sizes, first, last, self._clock.wall_ms())
        if changes is not None:
            self._apply_changes_locked(changes, last + 1)
        else:
            self.producer_state.map_end_offset = last + 1

    def _write_locked(
        self, data: bytearray | memoryview, batches: Sequence[tuple[int, int, int]], first: int, last: int, now_ms: int
    ) -> None:
        """Write batches to the active segment, a new one if they do not belong into it, and publish the new end."""
        segment = self._segments.active
        max_timestamp = max(batch[2] for batch in batches) if len(batches) > 1 else batches[0][2]
        if segment.should_roll(len(data), max_timestamp, last, now_ms, self.config):
            # Why: offsets of a follower may jump (a compacted log), and a segment reaches 2**31 - 1 above its base.
            segment = self._roll_locked(first)
        position = segment.append(data, batches)
        recent = self._recent
        recent[first] = (segment.base_offset, position)
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]
        self._set_end_locked(last + 1)

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
        """Make durable what a roll left behind, for the next start to go on from: the segment, and the producers as of
        its end.
        """
        if self._closed or self._failure is not None:
            return
        with self._flush_lock, self._disk_errors():
            sync_snapshot(self._fs, self.directory, offset)
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
            started_ns = self._clock.monotonic_ns()
            try:
                has_new_names = any(segment.base_offset >= recovery_point for segment in pending)
                for segment in pending:
                    # Why the active one's too: once the recovery point is behind it, nobody reads its batches again.
                    has_new_names |= segment.txn_index.flush()
                    if segment is self._segments.active:
                        segment.flush_data()
                    else:
                        segment.flush()
                if not self.is_settled:
                    self._settle()
                elif has_new_names:
                    self._fs.fsync_dir(self.directory)
                if any(segment.indexes_flushed and not segment.txn_index.is_empty for segment in pending):
                    self._txn_seals.update(self.directory, self._segments)
                self.leader_epoch_cache.flush()
            except OSError as error:
                if self._closed and isinstance(error, FileNotFoundError):
                    return  # its directory was renamed meanwhile, to be deleted
                raise self._fail(error) from error
            with self._lock:
                self.last_flushed_ms = self._clock.wall_ms()
                self.recovery_point = max(self.recovery_point, min(offset, self._end.offset))
            if self.on_flush is not None:
                self.on_flush((self._clock.monotonic_ns() - started_ns) / NS_PER_MS)

    def _settle(self) -> None:
        """Make the log's directory and its topic id durable, before any record is said to be.

        Why not when they are made: a request that makes a thousand partitions would wait for thousands of fsyncs. What
        a power cut takes before the first flush, an empty log or its topic id, the controller's next push brings back.
        """
        self.is_settled = True  # a topic id that is assigned meanwhile takes it back
        if self.topic_id is not None:
            handle = self._fs.open(f"{self.directory}/{PARTITION_METADATA_FILE}")
            try:
                handle.fsync()
            finally:
                handle.close()
        self._fs.fsync_dir(self.directory)
        self._fs.fsync_dir(self.directory.rpartition("/")[0])

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
