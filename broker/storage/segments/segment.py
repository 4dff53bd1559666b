"""A segment: one `.log` file of batches and its indexes, from a base offset to that of the next segment.

Files (named by the base offset in 20 digits): `.log` holds the batches; `.index`, `.timeindex` and, if a transaction
was aborted, `.txnindex` are the indexes. A segment owns its files (`segment_files.py`), the searches in them
(`segment_lookup.py`) and its timestamps (`segment_timestamps.py`).

Threads: the log changes a segment under its lock. Reads (`translate`, `read_slice`, `find_by_timestamp`, the
properties) take no lock: bytes below a published end never change except by truncation.

Invariants
1. Offsets in the segment are at least `base_offset` and at most 2**31 - 1 above it.
2. `size` bytes of the file are whole batches. Bytes past them (a failed write, preallocated zeros) are overwritten or
   cut.
3. The indexes refer only to positions below `size`. They have no checksum; a lookup compares an entry with its batch.

Source: Kafka's LogSegment, 4.3.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator

from barnabas.broker.storage.directories.names import DELETED_SUFFIX
from barnabas.broker.storage.log.log_types import AppendSettings, LogConfig, TimestampOffset
from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.broker.storage.segments.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from barnabas.broker.storage.segments.scan import scan_batches, scan_headers
from barnabas.broker.storage.segments.segment_files import SegmentFiles
from barnabas.broker.storage.segments.segment_lookup import SegmentLookup
from barnabas.broker.storage.segments.segment_timestamps import SegmentTimestamps
from barnabas.broker.storage.segments.time_index import TimeIndex
from barnabas.broker.storage.segments.txn_index import TransactionIndex
from barnabas.common.clock import Clock
from barnabas.common.disk.files import Buffer, FileHandle, FileSlice, FileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, is_intact

OnBatch = Callable[[BatchHeader, memoryview], None]
"""Takes in one good batch while a segment is recovered."""


class LogSegment:
    """One segment; see the module's header."""

    __slots__ = (
        "_bytes_since_index",
        "_clock",
        "_files",
        "_index_interval_bytes",
        "_lookup",
        "_timestamps",
        "base_offset",
        "indexes_flushed",
        "roll_jitter_ms",
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
        is_new: bool = False,
    ) -> None:
        """Open the segment at `base_offset` in a partition's directory, or create it if `create` is set.

        With `is_new` none of its files is there.
        """
        self.base_offset = base_offset  # fixed before start
        self.roll_jitter_ms = random.randrange(min(config.segment_jitter_ms, config.max_segment_ms) + 1)
        self.indexes_flushed = False  # whether an inactive segment's indexes are durable
        self._index_interval_bytes = config.index_interval_bytes  # fixed before start
        self._bytes_since_index = 0
        self._clock = clock
        self._files = SegmentFiles(fs, directory, base_offset, config, suffix=suffix, create=create, is_new=is_new)
        self._lookup = SegmentLookup(self._files)
        self._timestamps = SegmentTimestamps(self._files, self._lookup, clock.wall_ms())

    # Files

    @property
    def size(self) -> int:
        """Bytes of whole batches in the `.log` file."""
        return self._files.size

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self._files.directory

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return self._files.path

    @property
    def file(self) -> FileHandle:
        """The `.log` file; opens it if it is not open."""
        return self._files.file

    @property
    def is_open(self) -> bool:
        """Whether the `.log` file is open now."""
        return self._files.is_open

    @property
    def offset_index(self) -> OffsetIndex:
        """The index from offset to position."""
        return self._files.offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The index from timestamp to offset."""
        return self._files.time_index

    @property
    def txn_index(self) -> TransactionIndex:
        """The index of aborted transactions."""
        return self._files.txn_index

    # Timestamps

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The greatest timestamp and the last offset of its batch; (-1, base offset) if the segment is empty."""
        return self._timestamps.greatest

    @property
    def largest_timestamp(self) -> int:
        """The greatest timestamp in ms; the file's modification time if no record has one (used by retention)."""
        return self._timestamps.greatest_or_file_age()

    @property
    def last_modified_ms(self) -> int:
        """When the `.log` file was last written; raises FileNotFoundError."""
        return self._files.mtime_ms()

    @property
    def first_batch_timestamp(self) -> int | None:
        """The greatest timestamp of the first batch; None if there is no batch."""
        return self._timestamps.of_first_batch()

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return for how many ms the segment has been filling: by record timestamps, else by the broker's clock."""
        return self._timestamps.waited_for_roll(now_ms, message_timestamp)

    # Reading

    @property
    def has_damaged_index(self) -> bool:
        """Whether a lookup met a wrong entry in an index that was not rebuilt since."""
        return self._lookup.has_damaged_index

    def translate(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """Find the first batch below position `end` whose last offset is at least `offset`: (position, header)."""
        return self._lookup.translate(offset, end)

    def begins_by(self, offset: int, position: int, header: BatchHeader) -> bool:
        """Return whether the batch at `position` begins at or before `offset`; a damaged wrapper does not."""
        return self._lookup.begins_by(offset, position, header)

    def check_gap(self, offset: int, end: int) -> None:
        """Raise MalformedMessageError if damage may hide `offset`, which is in no batch below position `end`."""
        self._lookup.check_gap(offset, end)

    def header_at(self, position: int, end: int) -> BatchHeader | None:
        """Read the header of the batch at `position`; None if there is no whole header below `end`."""
        return self._lookup.header_at(position, end)

    def read_slice(self, position: int, size: int) -> FileSlice:
        """Return bytes of the `.log` file without reading them."""
        return self._files.file.slice(position, size)

    def read_next_offset(self) -> int:
        """Return the offset after the segment's last one; raises MalformedMessageError for damaged last batches."""
        return self._lookup.read_next_offset()

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or after `start_offset` whose timestamp is at least `timestamp`."""
        return self._lookup.find_by_timestamp(timestamp, start_offset)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the greatest timestamp, which may be -1; None if there is no record."""
        return self._lookup.find_record_of(self._timestamps.greatest)

    def fetch_upper_bound(self, position: int, size: int) -> int:
        """Return an offset above all records in the `size` bytes at `position`; -1 if unknown."""
        return self._lookup.fetch_upper_bound(position, size)

    # Appending

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, now_ms: int, settings: AppendSettings
    ) -> bool:
        """Return whether `size` more bytes up to `last_offset` belong in a new segment."""
        files = self._files
        if size > settings.segment_bytes - files.size:
            return True
        if files.offset_index.is_full or files.time_index.is_full:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not files.size:
            return False
        waited_ms = self._timestamps.waited_for_roll(now_ms, max_timestamp)
        return waited_ms > settings.max_segment_ms - self.roll_jitter_ms

    def append(self, data: Buffer, batches: Iterable[tuple[int, int, int]]) -> int:
        """Write whole batches with one write and index them; returns the position at which they begin.

        `batches` has (size, last offset, max timestamp) of each batch in `data`. On OSError nothing is appended.
        """
        files = self._files
        start = position = files.size
        try:
            files.file.pwrite(data, start)
        except OSError:
            # Why: a part may have reached the file. It lies past `size` (inv. 2), but a later start would have to
            # cut it.
            with contextlib.suppress(OSError):
                files.file.truncate(start)
            raise
        for size, last_offset, max_timestamp in batches:
            self._timestamps.add(max_timestamp, last_offset, is_first=position == 0)
            if self._bytes_since_index > self._index_interval_bytes:
                self._add_index_entries(last_offset, position)
            position += size
            self._bytes_since_index += size
        files.size = position
        return start

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        files = self._files
        if files.offset_index.is_full or files.time_index.is_full:
            return  # an append rolls first; the cleaner may merge segments that were written with other settings
        if last_offset <= files.offset_index.last_offset and files.offset_index.entry_count:
            return  # a batch before had a damaged base offset
        files.offset_index.append(last_offset, position)
        newest = self._timestamps.greatest
        files.time_index.maybe_append(newest.timestamp, newest.offset)
        self._bytes_since_index = 0

    # Loading, truncating

    def sanity_check(self) -> None:
        """Raise CorruptIndexError or FileNotFoundError if the sparse indexes must be rebuilt.

        Only their last entries are checked. A lookup finds other wrong entries.
        """
        files = self._files
        files.offset_index.sanity_check()
        files.time_index.sanity_check()
        if files.offset_index.entry_count and not self._lookup.is_batch_of(*files.offset_index.last_entry):
            raise CorruptIndexError(f"{files.offset_index.path}: its last entry points at no batch")

    def recover(self, on_batch: OnBatch) -> int:
        """Check every batch, cut the file at the first bad one, rebuild the indexes; returns the bytes cut.

        `on_batch` takes in each good batch (leader epochs, producer state, aborted transactions).
        """
        files = self._files
        files.txn_index.reset()
        valid = self._walk(on_batch)
        cut = files.size - valid
        if cut:
            files.truncate(valid)
        self._complete_indexes()
        return cut

    def reindex(self, on_batch: OnBatch) -> bool:
        """Rebuild the sparse indexes from the batches and cut nothing; returns whether all batches are good.

        A batch that was flushed once and is bad now stays: readers refuse it.
        """
        bad: list[int] = []
        valid = self._walk(on_batch, bad)
        self._complete_indexes()
        return valid == self._files.size and not bad

    def _walk(self, on_batch: OnBatch, bad: list[int] | None = None) -> int:
        """Index the batches up to the first bad one; returns the position where the good ones end.

        With `bad`, a batch with a wrong CRC is indexed, too, and its position is added there. `on_batch` is not called
        with it.
        """
        self._forget_indexes()
        valid = 0
        next_offset = self.base_offset
        with contextlib.suppress(MalformedMessageError):
            for position, header, batch in scan_batches(self._files.file, 0, self._files.size):
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

    def rebuild_indexes(self, end_offset: int, *, is_active: bool) -> None:
        """Rebuild the offset and time index from the batch headers; the segment's offsets are below `end_offset`."""
        self._forget_indexes()
        with contextlib.suppress(MalformedMessageError):
            for position, header in self._headers_in_order(end_offset):
                self._index_recovered(position, header)
        if not is_active:
            self._complete_time_index()
        self._files.write_index_tails()
        self._files.flush_sparse_indexes()
        self._lookup.has_damaged_index = False

    def _headers_in_order(self, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch, without those that claim offsets of the next, or of none.

        Their base offset is damaged, which no checksum covers.
        """
        last: tuple[int, BatchHeader] | None = None
        for position, header in scan_headers(self._files.file, 0, self._files.size):
            if last is not None and self._holds(last[1]) and last[1].last_offset < header.base_offset:
                yield last
            last = position, header
        if last is not None and self._holds(last[1]) and last[1].last_offset < end_offset:
            yield last

    def _forget_indexes(self) -> None:
        self._files.offset_index.reset()
        self._files.time_index.reset()
        self._timestamps.reset()
        self._bytes_since_index = 0

    def _holds(self, header: BatchHeader) -> bool:
        return 0 <= header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def _index_recovered(self, position: int, header: BatchHeader) -> None:
        self._timestamps.add(header.max_timestamp, header.last_offset)
        if self._bytes_since_index > self._index_interval_bytes:
            self._add_index_entries(header.last_offset, position)
        self._bytes_since_index += header.size_in_bytes

    def truncate_to(self, offset: int) -> int:
        """Drop all batches that reach `offset` or beyond; returns the bytes cut."""
        files = self._files
        found = self._lookup.translate(offset, files.size)
        files.offset_index.truncate_to(offset)
        files.time_index.truncate_to(offset)
        files.txn_index.truncate_to(offset)
        cut = 0
        self.indexes_flushed = False
        if found is not None:
            end = self._end_below(offset, *found)
            cut = files.size - end
            files.truncate(end)
        if not files.size:
            self._timestamps.restart(self._clock.wall_ms())
        self._bytes_since_index = 0
        self._timestamps.rescan()
        return cut

    def _end_below(self, offset: int, position: int, found: BatchHeader) -> int:
        """Return where the batches below `offset` end; `found`, at `position`, is the first that is not below.

        If it begins above, there is a gap, or its base offset is damaged and batches below `offset` may follow it.
        """
        if found.base_offset <= offset:
            return position
        end = position
        with contextlib.suppress(MalformedMessageError):
            for at, header in scan_headers(self._files.file, position, self._files.size):
                if header.last_offset < offset:
                    end = at + header.size_in_bytes
        return end

    # End of life

    def become_inactive(self) -> None:
        """Complete the indexes and cut preallocated space: nothing more will be appended."""
        self._complete_indexes()
        self._files.cut_preallocated()
        self._files.read_ahead()

    def _complete_indexes(self) -> None:
        self._complete_time_index()
        self._files.write_index_tails()

    def _complete_time_index(self) -> None:
        newest = self._timestamps.greatest
        self._files.time_index.maybe_append(newest.timestamp, newest.offset, skip_full_check=True)

    def flush_data(self) -> None:
        """Make the batches durable."""
        self._files.file.fsync()

    def flush(self) -> None:
        """Make batches and indexes durable; no other thread may append or truncate."""
        self.flush_data()
        self.write_index_tails()
        self.flush_indexes()

    def write_index_tails(self) -> None:
        """Write what the indexes have only in memory."""
        self._files.write_index_tails()

    def flush_indexes(self) -> None:
        """Make the indexes durable, without what they have only in memory."""
        self._files.flush_sparse_indexes()
        self._files.txn_index.flush()
        self.indexes_flushed = True

    def release(self) -> None:
        """Close the files without writing."""
        self._files.release()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files of the segment; readers with an open file are not disturbed."""
        assert self._files.suffix == old, (self._files.suffix, old)
        self._files.change_suffix(new)

    def has_suffix(self, suffix: str) -> bool:
        """Return whether the files' names have this second suffix (`.cleaned`, `.swap`, `.deleted`)."""
        return self._files.suffix == suffix

    def mark_deleted(self) -> None:
        """Rename the files for deletion: a start ignores them, readers may still hold them."""
        self._files.change_suffix(DELETED_SUFFIX)

    def delete(self) -> None:
        """Close and remove the files."""
        self._files.delete()

    def move_to(self, directory: str) -> None:
        """Follow the partition's directory to a new path."""
        self._files.move_to(directory)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size}, path={self.path})"
