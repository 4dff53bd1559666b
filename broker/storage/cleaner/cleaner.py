"""Compacts one log: of each key the latest record stays.

A round, on segments that are no longer appended to:
1. The dirty section (from the end of the last round) is read. The offset map notes each key's latest record, as far as
   it has room. The round ends there, and the next round begins there.
2. All segments up to there are grouped so that each group fits one segment. Each group is copied, without superseded
   records, to a segment with the suffix `.cleaned`, which is flushed.
3. The log swaps it in (`Log.replace_segments`): `.cleaned` becomes `.swap`, the old files `.deleted`, and last the
   suffix is removed. After a crash at any point a start finds either all old segments or the new one.

The log is used meanwhile. If it was truncated, moved or closed, or if segments were deleted, the swap is refused and
the round abandoned. `check` is called between pieces of work, so that a round can be ended early.

`may_forget` says whether tombstones and transaction markers may go. It is asked when a round begins, and again before
each swap: a replica that is added meanwhile begins to copy the old segments.

Threads: a cleaner thread owns its Cleaner. Source: Kafka's Cleaner, 4.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.broker.storage.cleaner.cleaner_batches import Round, clean_control_batch, clean_data_batch
from barnabas.broker.storage.cleaner.cleaner_transactions import CleanedTransactions
from barnabas.broker.storage.cleaner.offset_map import OffsetMap
from barnabas.broker.storage.cleaner.throttler import Throttler
from barnabas.broker.storage.cleaner.yielding import Yielding
from barnabas.broker.storage.directories.names import CLEANED_SUFFIX, segment_file
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segments.offset_index import RELATIVE_OFFSET_MAX
from barnabas.broker.storage.segments.scan import scan_batches
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.segment_files import SEGMENT_SUFFIXES
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, read_header, records_payload, verify_crc
from barnabas.protocol.records.compression import Buffer
from barnabas.protocol.records.stored_messages import as_batch

log = logging.getLogger("barnabas.storage.cleaner")

BUFFER_MIN = 64 * 1024
MS_PER_S = 1000

Check = Callable[[float], None]
"""Called between pieces of work with the ms to wait, as the throttle requires; raises to end the round."""


MayForget = Callable[[TopicPartition], bool]
"""Whether every replica of a partition has copied it, so that tombstones and transaction markers may go."""


def always(_tp: TopicPartition) -> bool:
    """Every replica has everything: there is only one."""
    return True


class CleaningAbortedError(Exception):
    """The log changed during the round, or the cleaner must stop; nothing was lost."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log and the part of it that a round may touch; see `cleaner_manager.py`."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    truncations: int
    """The log's `truncation_count` from before the offsets were chosen."""
    must_clean_now: bool = False

    @property
    def total_bytes(self) -> int:
        """Bytes of the segments that a round reads."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty share of these bytes, from 0 to 1."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(slots=True)
class CleanerStats:
    """What a round read and wrote; times are monotonic."""

    began_ms: int = 0
    indexed_ms: int = 0
    ended_ms: int = 0
    map_bytes_read: int = 0
    map_records_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    map_utilization: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long the round took."""
        return (self.ended_ms - self.began_ms) / MS_PER_S


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Cleans logs, one at a time."""

    fs: FileSystem
    clock: Clock
    offset_map: OffsetMap
    buffer_bytes: int
    """What is read, or written, in one piece; at least BUFFER_MIN is used."""
    throttler: Throttler
    yielding: Yielding
    may_forget: MayForget = always

    def clean(self, work: LogToClean, check: Check) -> tuple[int, CleanerStats]:
        """Run a round; returns the offset up to which the log is clean now, and the round's statistics.

        Raises CleaningAbortedError; OSError if the disk fails; MalformedMessageError or OffsetMapFullError for a log
        that cannot be cleaned.
        """
        run = _Run(self, work, check)
        try:
            return run.run()
        except (MalformedMessageError, OSError) as error:
            if run.is_stale():  # the log changed while it was read or written
                raise CleaningAbortedError(f"{work.log.topic_partition} changed while it was cleaned") from error
            raise
        finally:
            self.offset_map.end()


class _Run:
    """One round."""

    def __init__(self, cleaner: Cleaner, work: LogToClean, check: Check) -> None:
        self._fs = cleaner.fs
        self._clock = cleaner.clock
        self._map = cleaner.offset_map
        self._buffer_bytes = max(cleaner.buffer_bytes, BUFFER_MIN)
        self._throttler = cleaner.throttler
        self._yielding = cleaner.yielding
        self._may_forget = cleaner.may_forget
        self._log = work.log
        self._config = work.log.config
        self._truncations = work.truncations
        self._directory = work.log.directory
        self._start = work.first_dirty_offset
        self._upper = work.first_uncleanable_offset
        self._end = self._start  # the map covers [_start, _end)
        self._numbered = 0  # how many of the map's records were passed while copying
        self._check = check
        self._stats = CleanerStats(began_ms=self._clock.monotonic_ms())
        self._next_offset = 0  # after what was copied to the cleaned segment, at least its base
        self._unpaid_bytes = 0  # read or written since the throttle was last asked
        self._transactions = CleanedTransactions()
        self._round = Round(
            self._clock.wall_ms(),
            self._config.delete_retention_ms,
            self._upper,
            work.log.last_records_of_producers(),
            may_forget=self._may_forget(work.log.topic_partition),
        )

    def run(self) -> tuple[int, CleanerStats]:
        """Run the round; returns as `Cleaner.clean`."""
        tp = self._log.topic_partition
        log.info("Cleaning %s: building the offset map of [%d, %d)", tp, self._start, self._upper)
        if not self._round.may_forget:
            log.info("Tombstones and transaction markers of %s stay: not every replica is in sync", tp)
        segments = self._segments()
        self._build_map(segments)
        self._stats.indexed_ms = self._clock.monotonic_ms()
        cleaned = [segment for segment in segments if segment.base_offset < self._end]
        for group in group_segments(cleaned, self._config.segment_bytes, self._config.segment_index_bytes, self._upper):
            self._clean_group(group)
        self._stats.map_utilization = self._map.utilization
        self._stats.ended_ms = self._clock.monotonic_ms()
        return self._end, self._stats

    def _segments(self) -> list[LogSegment]:
        """Return the segments that a round may touch.

        Why not those below the log's start: retention deletes them. A power cut may also have torn them: a start checks
        nothing below the recovery point, which is never below the log's start.
        """
        segments = self._log.segments
        first = max(0, segments.floor_index(self._log.log_start_offset))
        return [segment for segment in segments.all[first:] if segment.base_offset < self._upper]

    # Between pieces of work

    def _count(self, count: int) -> None:
        """Count bytes read or written; after each buffer's worth, wait as the throttle requires."""
        pause_ms = self._yielding.pause_ms()
        if pause_ms:
            self._pause(pause_ms)
            self._yielding.begin()
        self._unpaid_bytes += count
        if self._unpaid_bytes >= self._buffer_bytes:
            wait_ms = self._throttler.wait_ms(self._unpaid_bytes)
            self._unpaid_bytes = 0
            self._pause(wait_ms)

    def is_stale(self) -> bool:
        """Return whether the log changed so that this round's result cannot be used."""
        return (
            self._log.is_closed
            or self._log.is_offline
            or self._log.truncation_count != self._truncations
            or self._log.directory != self._directory
        )

    def _pause(self, wait_ms: float = 0) -> None:
        if self.is_stale():
            raise CleaningAbortedError(f"{self._log.topic_partition} was truncated, moved or closed")
        self._check(wait_ms)

    def _batches(self, segment: LogSegment, position: int) -> Iterator[tuple[BatchHeader, Buffer, memoryview]]:
        """Yield (header, batch, bytes in the segment) of each batch; entries of format v0 and v1 as batches."""
        self._pause()
        for _, header, stored in scan_batches(segment.file, position, segment.size, self._buffer_bytes):
            yield *as_batch(header, stored), stored
            self._count(len(stored))

    # The map

    def _build_map(self, segments: Sequence[LogSegment]) -> None:
        self._map.begin(self._upper - self._start)
        transactions = CleanedTransactions()
        transactions.add_aborted(self._log.aborted_transactions_in(self._start, self._upper))
        for index, segment in enumerate(segments):
            segment_end = segments[index + 1].base_offset if index + 1 < len(segments) else self._upper
            if segment_end <= self._start:
                continue
            if not self._index_segment(segment, transactions):
                return
            # Why: offsets at a segment's end may be missing, and the next round must not look for them again.
            self._end = segment_end

    def _index_segment(self, segment: LogSegment, transactions: CleanedTransactions) -> bool:
        """Put the dirty batches of a segment into the map; returns False when the map is full."""
        start = segment.translate(self._start, segment.size)
        if start is None:
            return True
        for header, batch, stored in self._batches(segment, start[0]):
            verify_crc(batch, 0, header)
            self._stats.map_bytes_read += len(stored)
            if header.is_control:
                transactions.on_control_batch(header, batch)
                continue
            count = header.record_count
            if not self._map.has_room_for(count):
                return False
            if transactions.on_data_batch(header):
                self._map.skip(count)
            elif count:
                self._map.put(bytes(records_payload(batch, 0, header)), count)
            self._stats.map_records_read += count
            self._end = header.next_offset
        return True

    # A group

    def _clean_group(self, group: Sequence[LogSegment]) -> None:
        cleaned = self._new_cleaned(group[0].base_offset)
        try:
            self._copy_group(cleaned, group)
            self._pause()
            if self._round.may_forget and not self._may_forget(self._log.topic_partition):
                raise CleaningAbortedError(f"a replica of {self._log.topic_partition} has become out of sync")
            if not self._log.replace_segments(cleaned, group, self._truncations):
                raise CleaningAbortedError(f"{self._log.topic_partition} changed while it was cleaned")
        except BaseException:
            # Why any exception: the next start would remove what is left, but a broker runs for years.
            if cleaned.has_suffix(CLEANED_SUFFIX):
                with contextlib.suppress(OSError):
                    cleaned.delete()
            raise

    def _new_cleaned(self, base_offset: int) -> LogSegment:
        for suffix in SEGMENT_SUFFIXES:
            self._fs.unlink(segment_file(self._directory, base_offset, suffix + CLEANED_SUFFIX))
        return LogSegment(self._fs, self._directory, base_offset, self._config, self._clock, suffix=CLEANED_SUFFIX)

    def _copy_group(self, cleaned: LogSegment, group: Sequence[LogSegment]) -> None:
        """Copy the records that stay from a group to `cleaned`, and make it durable."""
        self._transactions.cleaned_index = cleaned.txn_index
        self._next_offset = cleaned.base_offset
        for index, segment in enumerate(group):
            segment_end = group[index + 1].base_offset if index + 1 < len(group) else segment.read_next_offset()
            self._transactions.add_aborted(self._log.aborted_transactions_in(segment.base_offset, segment_end))
            self._clean_into(cleaned, segment)
        cleaned.become_inactive()
        cleaned.flush()
        self._fs.set_mtime_ms(cleaned.path, self._fs.mtime_ms(group[-1].path))

    def _clean_into(self, cleaned: LogSegment, segment: LogSegment) -> None:
        """Append the records that stay from `segment` to `cleaned`."""
        pieces: list[Buffer] = []
        placed: list[tuple[int, int, int]] = []
        pending = 0
        for header, batch, stored in self._batches(segment, 0):
            self._stats.bytes_read += len(stored)
            self._stats.records_read += header.record_count
            kept = self._clean_batch(header, batch)
            if kept is None:
                continue
            data, count = kept
            max_timestamp = header.max_timestamp
            if data is batch:
                data = stored  # Why: a message of format v0 or v1 is smaller than the batch that has it
            elif header.base_offset < self._next_offset:
                # Why: recovery cuts a batch that begins below its segment, or below what precedes it. The messages of a
                # wrapper may; all that its header has is its last offset.
                data, count = stored, header.record_count
            else:
                max_timestamp = read_header(data).max_timestamp
            self._stats.records_written += count
            self._next_offset = header.next_offset
            pieces.append(data)
            placed.append((len(data), header.last_offset, max_timestamp))
            pending += len(data)
            if pending >= self._buffer_bytes:
                self._write(cleaned, pieces, placed, pending)
                pieces, placed, pending = [], [], 0
        if pieces:
            self._write(cleaned, pieces, placed, pending)

    def _write(self, cleaned: LogSegment, pieces: list[Buffer], placed: list[tuple[int, int, int]], size: int) -> None:
        cleaned.append(b"".join(pieces), placed)
        self._stats.bytes_written += size
        self._count(size)

    def _clean_batch(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer, int] | None:
        """Return the bytes that stay of a batch and how many records they are; None if the batch is dropped."""
        if header.is_control:
            can_go = self._transactions.on_control_batch(header, batch)
            return clean_control_batch(header, batch, self._round, can_go=can_go)
        is_aborted = self._transactions.on_data_batch(header)
        flags = self._flags(header, batch, is_aborted=is_aborted)
        return (batch, header.record_count) if flags is None else clean_data_batch(header, batch, flags, self._round)

    def _flags(self, header: BatchHeader, batch: Buffer, *, is_aborted: bool) -> bytearray | None:
        """Return the state of each record of a data batch; None for a batch past the end of the map."""
        count = header.record_count
        if header.base_offset >= self._end:
            return bytearray(count) if is_aborted else None
        if header.last_offset >= self._start:
            first = self._numbered
            self._numbered += count
            return bytearray(count) if is_aborted else self._map.flags[first : first + count]
        if is_aborted:
            return bytearray(count)
        verify_crc(batch, 0, header)
        return self._map.flags_of_older(bytes(records_payload(batch, 0, header)), count)


def group_segments(
    segments: Sequence[LogSegment], size_max: int, index_size_max: int, first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Split segments into runs of neighbours that each fit one segment, even if no record is dropped."""
    groups: list[list[LogSegment]] = []
    size = index_size = time_index_size = 0
    ends = [*(segment.base_offset for segment in segments[1:]), first_uncleanable_offset]
    for segment, end in zip(segments, ends, strict=False):
        size += segment.size
        index_size += segment.offset_index.size_in_bytes
        time_index_size += segment.time_index.size_in_bytes
        fits = size <= size_max and max(index_size, time_index_size) <= index_size_max
        # Why empty segments always fit: they add no offset; otherwise one every 2**31 offsets would stay forever.
        if groups and fits and (not segment.size or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            index_size, time_index_size = segment.offset_index.size_in_bytes, segment.time_index.size_in_bytes
    return groups
