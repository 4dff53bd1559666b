"""Appends to a log: one batch as its leader, batches with given offsets as a follower or for the controller.

Rules, threads and invariants are in `broker/storage/log/log.py`. Methods named `_locked` need the log's lock held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from barnabas.broker.storage.log.flusher import LogFlusher
from barnabas.broker.storage.log.log_state import LogState
from barnabas.broker.storage.log.log_types import (
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    AppendOrigin,
    LogAppendInfo,
    UnexpectedAppendOffsetError,
)
from barnabas.broker.storage.log.segment_keeper import SegmentKeeper
from barnabas.broker.storage.log.validator import LeaderValidator, ValidBatch
from barnabas.broker.storage.producers.log_producers import ProducerChanges, prepare_changes
from barnabas.broker.storage.producers.producer_entry import BatchMetadata
from barnabas.broker.storage.producers.verification import VerificationGuard
from barnabas.broker.storage.segments.offset_index import RELATIVE_OFFSET_MAX
from barnabas.broker.storage.segments.txn_index import AbortedTxn
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    BatchHeader,
    read_stored_header,
    set_max_timestamp,
    set_offset_and_epoch,
    verify_crc,
    whole_size,
)

RECENT_BATCHES_MAX: Final = 320  # what fits a table of 1,024 entries, however often it is filled again
RECENT_BATCHES_DROPPED: Final = 128

PlacedHeader = tuple[int, BatchHeader]
"""Where a batch begins in the appended bytes, and its header."""


class LogAppender:
    """Appends to one log."""

    __slots__ = ("_flusher", "_segments", "_state", "_validator")

    def __init__(
        self, state: LogState, segments: SegmentKeeper, flusher: LogFlusher, validator: LeaderValidator
    ) -> None:
        self._state = state
        self._segments = segments
        self._flusher = flusher
        self._validator = validator

    # As leader

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Append one batch; see `Log.append_as_leader`."""
        if origin is AppendOrigin.RAFT_LEADER:
            return self.append_given(records, leader_epoch, origin)
        state = self._state
        now_ms = state.clock.wall_ms()
        valid = self._validator.validate(records, state.append_settings, origin, now_ms)
        with state.lock:
            state.check_usable_locked()
            try:
                info = self._append_valid_locked(valid, leader_epoch, origin, transaction_version, guard, now_ms)
            except OSError as error:
                raise state.fail(error) from error
        self._flusher.flush_if_due()
        return info

    def _append_valid_locked(
        self,
        valid: ValidBatch,
        leader_epoch: int,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
        now_ms: int,
    ) -> LogAppendInfo:
        state = self._state
        header, data, settings = valid.header, valid.data, state.append_settings
        size = len(data)
        first = state.end.offset
        last = first + header.last_offset_delta
        if size > settings.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {state.topic_partition}, which exceeds the "
                f"maximum configured segment size of {settings.segment_bytes}",
            )
        changes = None
        if header.producer_id >= 0:
            duplicate = self._duplicate_locked(header, origin)
            if duplicate is not None:
                return self._duplicate_info(header, duplicate, size)
            if header.is_transactional and not header.is_control:
                state.producer_state.require_transaction(header, guard)
            placed = header.placed_at(first, valid.max_timestamp)
            changes = prepare_changes(state.producer_state, [(placed, data)], origin, transaction_version)
        log_append_time_ms = NO_TIMESTAMP
        if settings.is_stamped:
            log_append_time_ms = self._restamp_locked(valid)
        set_offset_and_epoch(data, first, leader_epoch)
        if leader_epoch >= 0:
            state.leader_epochs.assign(leader_epoch, first)
        self._write_locked(data, ((size, last, valid.max_timestamp),), first, last, now_ms)
        if changes is not None:
            self._apply_changes_locked(changes, last + 1)
        else:
            state.producer_state.map_end_offset = last + 1
        return LogAppendInfo(
            first,
            last,
            valid.max_timestamp,
            log_append_time_ms,
            state.log_start_offset,
            header.record_count,
            size,
            leader_epoch,
        )

    def _duplicate_locked(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Return the batch that a client's batch repeats; None if it is new."""
        entry = self._state.producer_state.entry(header.producer_id)
        return entry.find_duplicate(header) if entry is not None and origin is AppendOrigin.CLIENT else None

    def _restamp_locked(self, valid: ValidBatch) -> int:
        """Stamp the batch again if another append, with a later stamp, went first while this one waited for the lock.

        Returns the batch's timestamp.
        """
        newest = self._state.segments.active.max_timestamp_so_far.timestamp
        now_ms = self._state.clock.wall_ms()
        if valid.max_timestamp < newest <= now_ms:
            valid.max_timestamp = now_ms
            set_max_timestamp(valid.data, now_ms)
        return valid.max_timestamp

    def _duplicate_info(self, header: BatchHeader, duplicate: BatchMetadata, size: int) -> LogAppendInfo:
        return LogAppendInfo(
            duplicate.first_offset,
            duplicate.last_offset,
            duplicate.timestamp,
            duplicate.timestamp,
            self._state.log_start_offset,
            header.record_count,
            size,
            header.partition_leader_epoch,
            is_duplicate=True,
        )

    # With given offsets

    def append_given(self, records: memoryview, leader_epoch: int | None, origin: AppendOrigin) -> LogAppendInfo:
        """Append batches whose offsets were assigned elsewhere; see `Log.append_as_follower`."""
        state = self._state
        batches = self._check_given(records, leader_epoch, origin)
        with state.lock:
            state.check_usable_locked()
            if batches:
                self._check_continues_locked(batches)
            if leader_epoch is not None:
                batches = self._with_rising_epochs_locked(batches)
            try:
                if self._fit_locked(batches):
                    self._append_group_locked(records, batches, origin)
                else:
                    for group in self._groups_that_fit_locked(batches):
                        self._append_group_locked(records, group, origin)
            except OSError as error:  # Why not `disk_errors`: it is a generator, and would run twice a fetch
                raise state.fail(error) from error
            log_start_offset = state.log_start_offset
        self._flusher.flush_if_due()
        return _given_info(batches, log_start_offset)

    def _check_given(self, records: memoryview, leader_epoch: int | None, origin: AppendOrigin) -> list[PlacedHeader]:
        """Return the whole batches up to the first of a later leader epoch; raises ApiError for damage or disorder."""
        tp = self._state.topic_partition
        batches: list[PlacedHeader] = []
        last_offset = NO_OFFSET
        position = 0
        try:
            while size := whole_size(records, position):  # Why not `iter_headers`: a generator costs more than the rest
                header = read_stored_header(records, position)
                if origin is AppendOrigin.RAFT_LEADER and header.partition_leader_epoch != leader_epoch:
                    raise ApiError(
                        ErrorCode.INVALID_RECORD,
                        f"Append from Raft leader did not set the batch epoch correctly, expected {leader_epoch} but "
                        f"the batch has {header.partition_leader_epoch}",
                    )
                if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                    break
                if header.last_offset <= last_offset or header.last_offset_delta < 0:
                    raise ApiError(ErrorCode.INVALID_RECORD, f"Out of order offsets found in append to {tp}")
                last_offset = header.last_offset
                verify_crc(records, position, header)
                batches.append((position, header))
                position += size
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {tp}") from None
        return batches

    def _check_continues_locked(self, batches: list[PlacedHeader]) -> None:
        state = self._state
        first, last = batches[0][1].base_offset, batches[-1][1].last_offset
        if first < state.end.offset:
            raise UnexpectedAppendOffsetError(
                f"Unexpected offset in append to {state.topic_partition}. First offset {first} is less than the "
                f"next offset {state.end.offset}",
                first,
                last,
            )

    def _with_rising_epochs_locked(self, batches: list[PlacedHeader]) -> list[PlacedHeader]:
        """Return the batches up to the first whose leader epoch is below that of the records before it.

        Raises ApiError(CORRUPT_MESSAGE) if that is the very first batch.
        """
        state = self._state
        # Why not the latest epoch: a leader that wrote nothing has an entry for its epoch at the end of its log.
        epoch = state.leader_epochs.epoch_for_offset(state.end.offset - 1)
        for index, (_, header) in enumerate(batches):
            if NO_EPOCH < header.partition_leader_epoch < epoch:
                if index:
                    return batches[:index]
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The batch at offset {header.base_offset} of {state.topic_partition} has leader epoch "
                    f"{header.partition_leader_epoch}, but the records before it have {epoch}",
                )
            epoch = max(epoch, header.partition_leader_epoch)
        return batches

    def _fit_locked(self, batches: list[PlacedHeader]) -> bool:
        """Whether there are batches, and all fit the active segment, as nearly always."""
        if not batches:
            return False
        position, last = batches[-1]
        segments = self._state.segments
        return position + last.size_in_bytes <= self._state.append_settings.segment_bytes - segments.active.size

    def _groups_that_fit_locked(self, batches: list[PlacedHeader]) -> Iterator[list[PlacedHeader]]:
        """Split batches into runs that each fit one segment, so that each costs one write."""
        state = self._state
        segment_bytes = state.append_settings.segment_bytes
        group: list[PlacedHeader] = []
        room = segment_bytes - state.segments.active.size
        for position, header in batches:
            size = header.size_in_bytes
            if group and size > room:
                yield group
                group = []
            if not group:
                room = segment_bytes - state.segments.active.size
                room = room if size <= room else segment_bytes
            group.append((position, header))
            room -= size
        if group:
            yield group

    def _append_group_locked(self, records: memoryview, group: list[PlacedHeader], origin: AppendOrigin) -> None:
        state = self._state
        start = group[0][0]
        end = group[-1][0] + group[-1][1].size_in_bytes
        changes = None
        if any(header.producer_id >= 0 for _, header in group):
            # Why whole only if it is a marker's: nothing else is read.
            placed = [(h, records[at : at + h.size_in_bytes] if h.is_control else records) for at, h in group]
            changes = prepare_changes(state.producer_state, placed, origin, 0)
        for _, header in group:
            if header.partition_leader_epoch >= 0:
                state.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        sizes = [(header.size_in_bytes, header.last_offset, header.max_timestamp) for _, header in group]
        first, last = group[0][1].base_offset, group[-1][1].last_offset
        self._write_locked(records[start:end], sizes, first, last, state.clock.wall_ms())
        if changes is not None:
            self._apply_changes_locked(changes, last + 1)
        else:
            state.producer_state.map_end_offset = last + 1

    # Writing

    def _write_locked(
        self, data: bytearray | memoryview, batches: Sequence[tuple[int, int, int]], first: int, last: int, now_ms: int
    ) -> None:
        """Write batches to the active segment, or to a new one if it must roll, and publish the new end.

        `batches` has (size, last offset, max timestamp) of each.
        """
        state = self._state
        segment = state.segments.active
        max_timestamp = max(batch[2] for batch in batches) if len(batches) > 1 else batches[0][2]
        if segment.should_roll(len(data), max_timestamp, last, now_ms, state.append_settings):
            # A follower's offsets may jump (a compacted log). The new segment begins at the log's end all the same:
            # a gap between segments shows that something is lost. But a segment ends 2**31 - 1 above its base.
            fits = last - state.end.offset <= RELATIVE_OFFSET_MAX
            segment = self._segments.roll_locked(0 if fits else first)
        position = segment.append(data, batches)
        if not state.recent:
            state.recent = {}  # the shared one is never changed
        recent = state.recent
        recent[first] = (segment.base_offset, position)
        if len(recent) > RECENT_BATCHES_MAX:
            # Why a copy, and many at once: to remove them one by one takes longer.
            state.recent = dict(islice(recent.items(), RECENT_BATCHES_DROPPED, None))
        state.set_end_locked(last + 1)

    def _apply_changes_locked(self, changes: ProducerChanges, map_end_offset: int) -> None:
        state = self._state
        producers = state.producer_state
        for change in changes.producers:
            producers.apply(change)
        for completed in changes.completed:
            last_stable_offset = producers.last_stable_offset_after(completed)
            if completed.is_aborted:
                state.segments.active.txn_index.append(
                    AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
                )
            producers.complete(completed)
        producers.map_end_offset = map_end_offset
        state.update_first_unstable_locked()


def _given_info(batches: list[PlacedHeader], log_start_offset: int) -> LogAppendInfo:
    if not batches:
        return LogAppendInfo(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, log_start_offset, 0, 0, NO_EPOCH)
    max_timestamp, record_count, size = batches[0][1].max_timestamp, 0, 0
    for _, header in batches:  # Why no `max` and `sum`: each would make a list first
        max_timestamp = max(max_timestamp, header.max_timestamp)
        record_count += header.record_count
        size += header.size_in_bytes
    return LogAppendInfo(
        batches[0][1].base_offset,
        batches[-1][1].last_offset,
        max_timestamp,
        NO_TIMESTAMP,
        log_start_offset,
        record_count,
        size,
        batches[-1][1].partition_leader_epoch,
    )
