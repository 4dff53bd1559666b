"""A segment: one `.log` file of batches and its indexes, from a base offset to that of the next segment.

Files (named by the base offset in 20 digits): `.log` the batches, one after another; `.index`, `.timeindex` and, if a
transaction was aborted, `.txnindex`. The file is opened on the first read or write and held until the segment is
closed, or until too many are open (`open_files.py`); indexes hold no descriptor.

Threads: everything that changes is called by the log under its lock. Reading (`translate`, `read_slice`,
`find_by_timestamp`, the properties) takes no lock: bytes below a published end never change except by truncation.

Invariants
1. Offsets in the segment are at least `base_offset` and at most 2**31 - 1 above it.
2. `size` bytes of the file are whole batches; what lies behind (a failed write, preallocated zeros) is overwritten or
   cut.
3. The indexes speak only of positions below `size`. They have no checksum, so what they say is checked against the
   batch that they point at; an entry that is wrong costs a scan from the beginning, and marks the segment's indexes to
   be rebuilt (`has_damaged_index`).

Source: Kafka's LogSegment, 4.3.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.files import Buffer, FileHandle, FileSlice, FileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, iter_records, read_header, verify_crc
from broker.storage.index import CorruptIndexError
from broker.storage.log_types import NO_OFFSET, NO_TIMESTAMP, LogConfig, TimestampOffset
from broker.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from broker.storage.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from broker.storage.scan import scan_batches, scan_headers
from broker.storage.time_index import TimeIndex
from broker.storage.txn_index import AbortedTxn, TransactionIndex

log = logging.getLogger("barnabas.storage.log")

OnBatch = Callable[[BatchHeader, memoryview], None]

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class LogSegment:
    """One segment; see the module's header."""

    __slots__ = (
        "_bytes_since_index",
        "_clock",
        "_file",
        "_fs",
        "_max_timestamp",
        "_rolling_timestamp",
        "_suffix",
        "base_offset",
        "created_ms",
        "directory",
        "has_damaged_index",
        "index_interval_bytes",
        "indexes_flushed",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        clock: Clock,
        *,
        suffix: str = "",
        create: bool = True,
    ) -> None:
        self.base_offset = base_offset  # fixed before start
        self.directory = directory  # replaced by renames
        self.created_ms = clock.wall_ms()
        self.index_interval_bytes = config.index_interval_bytes  # fixed before start
        self.roll_jitter_ms = random.randrange(min(config.segment_jitter_ms, config.max_segment_ms) + 1)
        self.has_damaged_index = False  # set by whoever meets a wrong entry, reset by rebuild_indexes
        self.indexes_flushed = False  # whether an inactive segment's indexes are durable
        self._fs = fs
        self._clock = clock
        self._suffix = suffix
        self._file: FileHandle | None = None  # opened on first use; reset by close
        self._bytes_since_index = 0
        self._rolling_timestamp: int | None = None  # greatest timestamp of the first batch
        self._max_timestamp: TimestampOffset | None = None  # None until read from the time index
        path = self._path(LOG_SUFFIX)
        self.size = self._create(path, config) if create and not fs.exists(path) else fs.size(path)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset)

    def _path(self, suffix: str) -> str:
        return segment_file(self.directory, self.base_offset, suffix + self._suffix)

    def _create(self, path: str, config: LogConfig) -> int:
        self._file = self._fs.open(path, create=True)
        self._fs.open_files.add(self)
        if config.preallocate:
            self._file.preallocate(config.segment_bytes)
        return 0

    @property
    def file(self) -> FileHandle:
        """The `.log` file, opened now if it was not."""
        file = self._file
        if file is None:
            # Why no lock: two readers may both open it; one handle is kept, the other closes itself.
            file = self._file = self._fs.open(self._path(LOG_SUFFIX))
            self._fs.open_files.add(self)
        return file

    def let_go(self) -> None:
        """Drop the file, to be opened again when it is needed: too many are open. On any thread."""
        self._file = None

    @property
    def path(self) -> str:
        return self._path(LOG_SUFFIX)

    # Timestamps

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The greatest timestamp in the segment and the last offset of its batch; (-1, base offset) if empty."""
        known = self._max_timestamp
        if known is None:
            known = self._max_timestamp = self._indexed_max_timestamp()
        return known

    def _indexed_max_timestamp(self) -> TimestampOffset:
        """Return the time index's last entry; if its batch does not confirm it, what the headers say."""
        newest = TimestampOffset(*self.time_index.last_entry)
        if newest.timestamp < 0 or self._is_confirmed(newest):
            return newest
        newest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        with contextlib.suppress(MalformedMessageError):
            for _, header in scan_headers(self.file, 0, self.size):
                if header.max_timestamp > newest.timestamp:
                    newest = TimestampOffset(header.max_timestamp, header.last_offset)
        return newest

    def _is_confirmed(self, entry: TimestampOffset) -> bool:
        """Tell whether the batch that an entry of the time index speaks of bears its timestamp."""
        found = self.translate(entry.offset, self.size)
        if found is not None and found[1].max_timestamp == entry.timestamp:
            return True
        self._distrust(f"no batch at offset {entry.offset} has the greatest timestamp {entry.timestamp}")
        return False

    @property
    def largest_record_timestamp(self) -> int | None:
        """The greatest timestamp; None if no record bears one."""
        timestamp = self.max_timestamp_so_far.timestamp
        return timestamp if timestamp >= 0 else None

    @property
    def largest_timestamp(self) -> int:
        """The greatest timestamp; the file's age if no record bears one (retention and search by time use it)."""
        timestamp = self.max_timestamp_so_far.timestamp
        if timestamp >= 0:
            return timestamp
        try:
            return self._fs.mtime_ms(self.path)
        except FileNotFoundError:
            return self.created_ms

    @property
    def first_batch_timestamp(self) -> int | None:
        """The greatest timestamp of the first batch; None if there is no batch."""
        if self._rolling_timestamp is None and self.size:
            for _, header in scan_headers(self.file, 0, self.size):
                self._rolling_timestamp = header.max_timestamp
                break
        return self._rolling_timestamp

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return how long the segment has been filling: by its records' clock if they have one, else by ours."""
        began_ms = self.first_batch_timestamp
        if began_ms is not None and began_ms >= 0:
            return message_timestamp - began_ms
        return now_ms - self.created_ms

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int, config: LogConfig) -> bool:
        """Tell whether `size` more bytes up to `last_offset` belong into a new segment."""
        if size > config.segment_bytes - self.size:
            return True
        if self.offset_index.is_full or self.time_index.is_full:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return False
        began_ms = self._rolling_timestamp
        if began_ms is not None and began_ms >= 0:
            waited_ms = max_timestamp - began_ms
        else:
            waited_ms = self.time_waited_for_roll(now_ms, max_timestamp)
        return waited_ms > config.max_segment_ms - self.roll_jitter_ms

    # Appending

    def append(self, data: Buffer, batches: Iterable[tuple[int, int, int]]) -> int:
        """Write whole batches with one write, and index them; returns the position they begin at.

        `batches` has (size, last offset, max timestamp) of each batch in `data`. On OSError nothing is appended.
        """
        start = position = self.size
        try:
            (self._file or self.file).pwrite(data, start)
        except OSError:
            # Why: a part may have reached the file. It lies behind `size` (inv. 2), but a later start would have to
            # cut it.
            with contextlib.suppress(OSError):
                self.file.truncate(start)
            raise
        for size, last_offset, max_timestamp in batches:
            if position == 0:
                self._rolling_timestamp = max_timestamp
            known = self._max_timestamp
            if known is None:
                known = self.max_timestamp_so_far
            if max_timestamp > known.timestamp:
                self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
            if self._bytes_since_index > self.index_interval_bytes:
                self._add_index_entries(last_offset, position)
            position += size
            self._bytes_since_index += size
        self.size = position
        return start

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        if self.offset_index.is_full or self.time_index.is_full:
            return  # an append rolls before that; the cleaner copies into what segments of other settings have left
        self.offset_index.append(last_offset, position)
        newest = self.max_timestamp_so_far
        self.time_index.maybe_append(newest.timestamp, newest.offset)
        self._bytes_since_index = 0

    # Reading

    def translate(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """Find the first batch below position `end` whose last offset is at least `offset`: (position, header)."""
        indexed, position = self.offset_index.lookup(offset)
        if position:
            if self._is_batch_of(indexed, position):
                return self._scan_to(offset, position, end)
            self._distrust(f"no batch of offset {indexed} begins at {position}")
        return self._scan_to(offset, 0, end)

    def _scan_to(self, offset: int, position: int, end: int) -> tuple[int, BatchHeader] | None:
        for found, header in scan_headers(self.file, position, end):
            if header.last_offset >= offset:
                return found, header
        return None

    def _is_batch_of(self, offset: int, position: int) -> bool:
        """Tell whether a batch at `position` begins at or before `offset`, as an entry of the offset index says."""
        if not 0 < position <= self.size - HEADER_SIZE:
            return False
        try:
            header = read_header(self.file.pread(HEADER_SIZE, position))
        except MalformedMessageError:
            return False
        return self.base_offset <= header.base_offset <= offset

    def _distrust(self, reason: str) -> None:
        if not self.has_damaged_index:
            self.has_damaged_index = True
            log.warning("An index of %s is damaged and is passed over until it is rebuilt: %s", self, reason)

    def read_slice(self, position: int, size: int) -> FileSlice:
        """Return bytes of the file without reading them."""
        return self.file.slice(position, size)

    def header_at(self, position: int, end: int) -> BatchHeader | None:
        """Read the header of the batch that begins at `position`; None if there is no whole header below `end`."""
        for _, header in scan_headers(self.file, position, end):
            return header
        return None

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or after `start_offset` whose timestamp is at least `timestamp`."""
        indexed = TimestampOffset(*self.time_index.lookup(timestamp))
        offset = indexed.offset if indexed.timestamp >= 0 and self._is_confirmed(indexed) else self.base_offset
        start = self.translate(max(offset, start_offset), self.size)
        if start is None:
            return None
        for _, header, batch in scan_batches(self.file, start[0], self.size):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in iter_records(batch):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record that bears the segment's greatest timestamp."""
        newest = self.max_timestamp_so_far
        if newest.timestamp < 0:
            return None
        start = self.translate(newest.offset, self.size)
        for _, header, batch in scan_batches(self.file, 0 if start is None else start[0], self.size):
            if header.max_timestamp != newest.timestamp:
                continue
            for record in iter_records(batch):
                if record.timestamp == newest.timestamp:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def read_next_offset(self) -> int:
        """Return the offset after the last one in the segment, from the index and the few batches behind its last
        entry.
        """
        next_offset = self.base_offset
        indexed, position = self.offset_index.last_entry
        if position and not self._is_batch_of(indexed, position):
            self._distrust(f"no batch of offset {indexed} begins at {position}")
            position = 0
        for _, header in scan_headers(self.file, position, self.size):
            next_offset = header.next_offset
        return next_offset

    # Loading, truncating

    def sanity_check(self) -> None:
        """Raise CorruptIndexError or FileNotFoundError if the indexes must be rebuilt."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        self.txn_index.sanity_check()
        for entry in self.txn_index.entries():
            if not self._ends_transaction(entry):
                raise CorruptIndexError(f"{self.txn_index.path}: no transaction ended as {entry} says")

    def _ends_transaction(self, entry: AbortedTxn) -> bool:
        try:
            found = self.translate(entry.last_offset, self.size)
        except MalformedMessageError:
            return False
        if found is None or not entry.first_offset <= entry.last_offset == found[1].last_offset:
            return False
        return found[1].is_control and found[1].producer_id == entry.producer_id

    def recover(self, on_batch: OnBatch) -> int:
        """Check every batch, cut the file at the first bad one, rebuild the indexes; returns the bytes cut.

        `on_batch` takes in each good batch (leader epochs, producer state).
        """
        self._forget_indexes()
        self.txn_index.reset()
        valid = 0
        next_offset = self.base_offset
        with contextlib.suppress(MalformedMessageError):
            for position, header, batch in scan_batches(self.file, 0, self.size):
                verify_crc(batch, 0, header)
                # Why: the base offset is not under the CRC.
                if not self._holds(header) or header.base_offset < next_offset:
                    break
                next_offset = header.next_offset
                on_batch(header, batch)
                self._index_recovered(position, header)
                valid = position + header.size_in_bytes
        cut = self.size - valid
        if cut:
            self.file.truncate(valid)
            self.file.fsync()
            self.size = valid
        self._seal_time_index()
        self.offset_index.write_tail()
        self.time_index.write_tail()
        return cut

    def rebuild_indexes(self, *, is_active: bool) -> None:
        """Make the offset and time index anew from the headers of the batches."""
        self._forget_indexes()
        with contextlib.suppress(MalformedMessageError):
            for position, header in scan_headers(self.file, 0, self.size):
                self._index_recovered(position, header)
        if not is_active:
            self._seal_time_index()
        self.offset_index.flush()
        self.time_index.flush()
        self.has_damaged_index = False

    def _forget_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._bytes_since_index = 0
        self._rolling_timestamp = None

    def _holds(self, header: BatchHeader) -> bool:
        return 0 <= header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def _index_recovered(self, position: int, header: BatchHeader) -> None:
        if header.max_timestamp > self.max_timestamp_so_far.timestamp:
            self._max_timestamp = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_index > self.index_interval_bytes:
            self._add_index_entries(header.last_offset, position)
        self._bytes_since_index += header.size_in_bytes

    def truncate_to(self, offset: int) -> int:
        """Drop all batches that reach `offset` or beyond; returns the bytes cut."""
        found = self.translate(offset, self.size)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        cut = 0
        self.indexes_flushed = False
        if found is not None:
            cut = self.size - found[0]
            self.size = found[0]
            self.file.truncate(self.size)
            self.file.fsync()
        if not self.size:
            self.created_ms = self._clock.wall_ms()
            self._rolling_timestamp = None
        self._bytes_since_index = 0
        self._rescan_max_timestamp()
        return cut

    def _rescan_max_timestamp(self) -> None:
        """Find the greatest timestamp again: the index's last entry, and what follows it."""
        newest = self._indexed_max_timestamp()
        start = self.translate(newest.offset, self.size)
        for _, header in scan_headers(self.file, 0 if start is None else start[0], self.size):
            if header.max_timestamp > newest.timestamp:
                newest = TimestampOffset(header.max_timestamp, header.last_offset)
        self._max_timestamp = newest

    # The end of its life

    def become_inactive(self) -> None:
        """Complete the indexes, cut preallocated space: nothing more will be appended."""
        self._seal_time_index()
        self.offset_index.write_tail()
        self.time_index.write_tail()
        file = self._file
        # Why: a file that was not opened since the start was not preallocated or written by this process.
        if file is not None and file.size() > self.size:
            file.truncate(self.size)

    def _seal_time_index(self) -> None:
        newest = self.max_timestamp_so_far
        self.time_index.maybe_append(newest.timestamp, newest.offset, skip_full_check=True)

    def flush_data(self) -> None:
        """Make the batches durable."""
        self.file.fsync()

    def flush(self) -> None:
        """Make batches and indexes durable."""
        self.flush_data()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()
        self.indexes_flushed = True

    def release(self) -> None:
        """Give the file up, as it is."""
        self._fs.open_files.remove(self)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files of the segment; a reader that has the file open goes on reading."""
        assert self._suffix == old, (self._suffix, old)
        _ = self.file  # readers that come later still need the descriptor
        self._fs.open_files.remove(self)
        source = self._path(LOG_SUFFIX)
        self._suffix = new
        self._fs.rename(source, self._path(LOG_SUFFIX))
        self.offset_index.rename(self._path(INDEX_SUFFIX))
        self.time_index.rename(self._path(TIME_INDEX_SUFFIX))
        self.txn_index.rename(self._path(TXN_INDEX_SUFFIX))

    def has_suffix(self, suffix: str) -> bool:
        """Tell whether the files' names end like this (`.cleaned`, `.swap`, `.deleted`)."""
        return self._suffix == suffix

    def mark_deleted(self) -> None:
        """Rename the files for deletion: they are then gone for a start, though readers may still hold them."""
        self.change_suffix(self._suffix, DELETED_SUFFIX)

    def delete(self) -> None:
        """Remove the files."""
        self.release()
        self._fs.unlink(self._path(LOG_SUFFIX))
        self.offset_index.delete()
        self.time_index.delete()
        self.txn_index.delete()

    def move_to(self, directory: str) -> None:
        """Follow the partition's directory to a new name."""
        self.directory = directory
        self.offset_index.path = self._path(INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._path(TXN_INDEX_SUFFIX)

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> tuple[list[tuple[int, int]], bool]:
        """Return (producer id, first offset) of the aborted transactions in a range, and whether that is all."""
        found, complete = self.txn_index.collect(fetch_offset, upper_bound)
        return [(entry.producer_id, entry.first_offset) for entry in found], complete

    def fetch_upper_bound(self, position: int, size: int) -> int:
        """Return an offset that no record of the `size` bytes at `position` reaches; -1 if unknown."""
        entry = self.offset_index.upper_bound(position, size)
        return entry[0] if entry is not None and self._is_batch_of(*entry) else NO_OFFSET

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size}, path={self.path})"
