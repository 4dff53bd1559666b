"""Compacting one log: of each key the latest record stays.

A round, on segments that are not appended to any more:
1. The dirty section (from where the last round ended) is read and each key's latest record noted in the offset map, as
   far as the map has room: that is where the round ends, and the next begins.
2. All segments up to there are grouped so that each group fits one segment, and each group is written anew, without
   what is superseded, to a segment with the suffix `.cleaned`, which is flushed.
3. The log swaps it in (`Log.replace_segments`): `.cleaned` becomes `.swap`, the old files `.deleted`, and last the
   suffix goes. At every point of this a start after a crash finds either all of the old or all of the new.

The log goes on meanwhile. What was read of it may be truncated, deleted or moved: the swap is refused then and the
round abandoned; `check` is asked between pieces of work, so that it ends early.

Threads: a cleaner thread owns its Cleaner. Source: Kafka's Cleaner, 4.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.broker.storage.cleaner_batches import Round, clean_control_batch, clean_data_batch
from barnabas.broker.storage.cleaner_transactions import CleanedTransactions
from barnabas.broker.storage.courtesy import Courtesy, no_traffic
from barnabas.broker.storage.log import Log
from barnabas.broker.storage.names import CLEANED_SUFFIX, segment_file
from barnabas.broker.storage.offset_index import RELATIVE_OFFSET_MAX
from barnabas.broker.storage.offset_map import OffsetMap
from barnabas.broker.storage.scan import scan_batches
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segment_base import SEGMENT_SUFFIXES
from barnabas.broker.storage.throttler import Throttler
from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, read_header, records_payload, verify_crc
from barnabas.protocol.records.compression import Buffer

log = logging.getLogger("barnabas.storage.cleaner")

BUFFER_MIN = 64 * 1024
MS_PER_S = 1000

Check = Callable[[float], None]
"""Called between pieces of work with the milliseconds that the throttle asks to wait; raises to end the round."""


class CleaningAbortedError(Exception):
    """The log changed under the cleaner, or the cleaner is to stop; nothing was lost."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log and which part of it a round may touch; see `broker/storage/cleaner_manager.py`."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    must_clean_now: bool = False

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(slots=True)
class CleanerStats:
    """What a round did."""

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
        return (self.ended_ms - self.began_ms) / MS_PER_S


class Cleaner:
    """Cleans logs, one at a time."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        offset_map: OffsetMap,
        buffer_bytes: int,
        throttler: Throttler,
        courtesy: Courtesy | None = None,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._map = offset_map
        self._buffer_bytes = max(buffer_bytes, BUFFER_MIN)
        self._throttler = throttler
        self._courtesy = courtesy or Courtesy(no_traffic, clock)

    def clean(self, work: LogToClean, check: Check) -> tuple[int, CleanerStats]:
        """Run a round; returns the offset up to which the log is clean now, and what was done.

        Raises CleaningAbortedError; OSError if the disk fails; MalformedMessageError or OffsetMapFullError for a log
        that cannot be cleaned.
        """
        stats = CleanerStats(began_ms=self._clock.monotonic_ms())
        run = _Run(
            self._fs, self._clock, self._map, self._buffer_bytes, self._throttler, self._courtesy, work, check, stats
        )
        try:
            return run.run()
        except (MalformedMessageError, OSError) as error:
            if run.is_stale():  # it was read, or written, while it changed
                raise CleaningAbortedError(f"{work.log.topic_partition} changed while it was cleaned") from error
            raise
        finally:
            self._map.end()


class _Run:
    """One round."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        offset_map: OffsetMap,
        buffer_bytes: int,
        throttler: Throttler,
        courtesy: Courtesy,
        work: LogToClean,
        check: Check,
        stats: CleanerStats,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._map = offset_map
        self._buffer_bytes = buffer_bytes
        self._throttler = throttler
        self._courtesy = courtesy
        self._log = work.log
        self._config = work.log.config
        self._truncations = work.log.truncation_count
        self._directory = work.log.directory
        self._start = work.first_dirty_offset
        self._upper = work.first_uncleanable_offset
        self._end = self._start  # what the map knows ends here
        self._numbered = 0  # of the map's records, those already passed on the way through the log again
        self._check = check
        self._stats = stats
        self._unpaid_bytes = 0
        self._transactions = CleanedTransactions()
        self._round = Round(
            clock.wall_ms(), self._config.delete_retention_ms, self._upper, work.log.last_records_of_producers()
        )

    def run(self) -> tuple[int, CleanerStats]:
        tp = self._log.topic_partition
        log.info("Cleaning %s: building the offset map of [%d, %d)", tp, self._start, self._upper)
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

        Why not those below the log's start: retention deletes them; and a power cut may have torn them, since a start
        checks nothing that lies below the recovery point, which never lags behind the log's start.
        """
        segments = self._log.segments
        first = max(0, segments.floor_index(self._log.log_start_offset))
        return [segment for segment in segments.all[first:] if segment.base_offset < self._upper]

    def _work(self, count: int) -> None:
        """Note bytes read or written; every buffer's worth asks whether to go on, and how fast."""
        pause_ms = self._courtesy.pause_ms()
        if pause_ms:
            self._ask(pause_ms)
            self._courtesy.begin()
        self._unpaid_bytes += count
        if self._unpaid_bytes >= self._buffer_bytes:
            wait_ms = self._throttler.wait_ms(self._unpaid_bytes)
            self._unpaid_bytes = 0
            self._ask(wait_ms)

    def is_stale(self) -> bool:
        """Tell whether the log is no longer what this round began with."""
        return (
            self._log.is_closed
            or self._log.is_offline
            or self._log.truncation_count != self._truncations
            or self._log.directory != self._directory
        )

    def _ask(self, wait_ms: float = 0) -> None:
        if self.is_stale():
            raise CleaningAbortedError(f"{self._log.topic_partition} was truncated, moved or closed")
        self._check(wait_ms)

    def _batches(self, segment: LogSegment, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        self._ask()
        for _, header, batch in scan_batches(segment.file, position, segment.size, self._buffer_bytes):
            yield header, batch
            self._work(len(batch))

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
        """Take in the dirty batches of a segment; False once the map is full."""
        start = segment.translate(self._start, segment.size)
        if start is None:
            return True
        for header, batch in self._batches(segment, start[0]):
            verify_crc(batch, 0, header)
            self._stats.map_bytes_read += len(batch)
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
        directory, base_offset = self._directory, group[0].base_offset
        for suffix in SEGMENT_SUFFIXES:
            self._fs.unlink(segment_file(directory, base_offset, suffix + CLEANED_SUFFIX))
        cleaned = LogSegment(self._fs, directory, base_offset, self._config, self._clock, suffix=CLEANED_SUFFIX)
        try:
            self._transactions.cleaned_index = cleaned.txn_index
            for index, segment in enumerate(group):
                segment_end = group[index + 1].base_offset if index + 1 < len(group) else segment.read_next_offset()
                self._transactions.add_aborted(self._log.aborted_transactions_in(segment.base_offset, segment_end))
                self._clean_into(cleaned, segment)
            cleaned.become_inactive()
            cleaned.flush()
            self._fs.set_mtime_ms(cleaned.path, self._fs.mtime_ms(group[-1].path))
            self._ask()
            if not self._log.replace_segments(cleaned, group, self._truncations):
                raise CleaningAbortedError(f"{self._log.topic_partition} changed while it was cleaned")
        except BaseException:
            # Why whatever it was: what is left over would be removed at the next start, but a broker runs for years.
            if cleaned.has_suffix(CLEANED_SUFFIX):
                with contextlib.suppress(OSError):
                    cleaned.delete()
            raise

    def _clean_into(self, cleaned: LogSegment, segment: LogSegment) -> None:
        """Copy what stays of `segment` behind what `cleaned` holds."""
        pieces: list[Buffer] = []
        placed: list[tuple[int, int, int]] = []
        pending = 0
        for header, batch in self._batches(segment, 0):
            self._stats.bytes_read += len(batch)
            self._stats.records_read += header.record_count
            kept = self._clean_batch(header, batch)
            if kept is None:
                continue
            data, count = kept
            self._stats.records_written += count
            max_timestamp = header.max_timestamp
            if data is not batch:
                max_timestamp = read_header(data).max_timestamp
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
        self._work(size)

    def _clean_batch(self, header: BatchHeader, batch: memoryview) -> tuple[Buffer, int] | None:
        if header.is_control:
            can_go = self._transactions.on_control_batch(header, batch)
            return clean_control_batch(header, batch, self._round, can_go=can_go)
        is_aborted = self._transactions.on_data_batch(header)
        flags = self._flags(header, batch, is_aborted=is_aborted)
        return (batch, header.record_count) if flags is None else clean_data_batch(header, batch, flags, self._round)

    def _flags(self, header: BatchHeader, batch: memoryview, *, is_aborted: bool) -> bytearray | None:
        """Return what each record of a data batch is now; None for one that this round knows nothing of."""
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
    """Split segments into runs of neighbours that each fit one segment, whatever stays of them."""
    groups: list[list[LogSegment]] = []
    size = index_size = time_index_size = 0
    ends = [*(segment.base_offset for segment in segments[1:]), first_uncleanable_offset]
    for segment, end in zip(segments, ends, strict=False):
        size += segment.size
        index_size += segment.offset_index.size_in_bytes
        time_index_size += segment.time_index.size_in_bytes
        fits = size <= size_max and max(index_size, time_index_size) <= index_size_max
        # An empty segment adds no offset, so that one every 2**31 offsets does not stay for ever.
        if groups and fits and (not segment.size or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            index_size, time_index_size = segment.offset_index.size_in_bytes, segment.time_index.size_in_bytes
    return groups
