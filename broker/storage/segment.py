"""A segment: one `.log` file of batches and its indexes, from a base offset to that of the next segment.

Files (named by the base offset in 20 digits): `.log` the batches, one after another; `.index`, `.timeindex` and, if a
transaction was aborted, `.txnindex`. The file is opened on the first read or write and held until the segment is
closed, or until too many are open (`open_files.py`); the two sparse indexes are mapped, by the same rule, when
something is looked up in what their files hold.

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
from collections.abc import Callable, Iterable

from barnabas.broker.storage.index import CorruptIndexError
from barnabas.broker.storage.log_types import NO_OFFSET, NO_TIMESTAMP, LogConfig, TimestampOffset
from barnabas.broker.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from barnabas.broker.storage.offset_index import RELATIVE_OFFSET_MAX
from barnabas.broker.storage.scan import scan_batches, scan_headers
from barnabas.broker.storage.segment_base import SegmentBase
from barnabas.common.files import Buffer
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, CorruptBatchError, verify_crc

OnBatch = Callable[[BatchHeader, memoryview], None]


class LogSegment(SegmentBase):
    """One segment; see the module's header."""

    __slots__ = ()

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

    # Loading, truncating

    def sanity_check(self) -> None:
        """Raise CorruptIndexError or FileNotFoundError if the sparse indexes must be rebuilt.

        Their last entries are looked at; what else is wrong in them is found by whoever meets it.
        """
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        if self.offset_index.entry_count and not self._is_batch_of(*self.offset_index.last_entry):
            raise CorruptIndexError(f"{self.offset_index.path}: no batch is where its last entry says")

    def recover(self, on_batch: OnBatch) -> int:
        """Check every batch, cut the file at the first bad one, rebuild the indexes; returns the bytes cut.

        `on_batch` takes in each good batch (leader epochs, producer state, aborted transactions).
        """
        self.txn_index.reset()
        valid = self._walk(on_batch)
        cut = self.size - valid
        if cut:
            self.file.truncate(valid)
            self.file.fsync()
            self.size = valid
        self._complete_indexes()
        return cut

    def reindex(self, on_batch: OnBatch) -> bool:
        """Rebuild the sparse indexes as far as the batches can be walked over, and cut nothing: what was flushed once
        and is bad now is left to be refused by whoever reads it. Tells whether all are good.
        """
        bad: list[int] = []
        valid = self._walk(on_batch, bad)
        self._complete_indexes()
        return valid == self.size and not bad

    def _complete_indexes(self) -> None:
        self._seal_time_index()
        self.offset_index.write_tail()
        self.time_index.write_tail()

    def _walk(self, on_batch: OnBatch, bad: list[int] | None = None) -> int:
        """Index the batches up to the first bad one; returns where it begins, or the last one ends.

        With `bad`, one that has a wrong CRC is indexed too, and its position noted there instead of being taken in.
        """
        self._forget_indexes()
        valid = 0
        next_offset = self.base_offset
        with contextlib.suppress(MalformedMessageError):
            for position, header, batch in scan_batches(self.file, 0, self.size):
                is_good = is_intact(batch, header)
                if not is_good and bad is None:
                    break
                # Why: the base offset is not under the CRC.
                if not self._holds(header) or header.base_offset < next_offset:
                    break
                next_offset = header.next_offset
                if is_good:
                    on_batch(header, batch)
                elif bad is not None:
                    bad.append(position)
                self._index_recovered(position, header)
                valid = position + header.size_in_bytes
        return valid

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
        self.offset_index.release()
        self.time_index.release()

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


def is_intact(batch: memoryview, header: BatchHeader) -> bool:
    """Tell whether a batch's CRC is right."""
    try:
        verify_crc(batch, 0, header)
    except CorruptBatchError:
        return False
    return True
