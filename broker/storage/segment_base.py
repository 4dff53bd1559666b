"""A segment's files, and what can be read of them: the lower of a segment's two layers.

Rules, files, threads and invariants stand in `broker/storage/segment.py`.
"""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Final

from barnabas.broker.storage.log_types import NO_TIMESTAMP, LogConfig, TimestampOffset
from barnabas.broker.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from barnabas.broker.storage.offset_index import OffsetIndex
from barnabas.broker.storage.scan import scan_batches, scan_headers
from barnabas.broker.storage.time_index import TimeIndex
from barnabas.broker.storage.txn_index import TransactionIndex
from barnabas.common.clock import Clock
from barnabas.common.files import FileHandle, FileSlice, FileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, iter_records, read_header, verify_crc

log = logging.getLogger("barnabas.storage.log")


SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentBase:
    """The files of one segment and their indexes."""

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
            known = self._max_timestamp = self._sealed_max_timestamp()
        return known

    def _sealed_max_timestamp(self) -> TimestampOffset:
        """Return the last entry of the time index, which a segment got when it was completed or closed.

        If there is none, or the last batches are newer, what the headers say.
        """
        newest = self._indexed_max_timestamp()
        if not self.size or (newest.timestamp >= 0 and not self._ends_newer_than(newest.timestamp)):
            return newest
        found = self._max_timestamp_of_headers()
        if found.timestamp > newest.timestamp:
            self._distrust(f"the greatest timestamp is not {newest.timestamp} but {found.timestamp}")
        return found

    def _ends_newer_than(self, timestamp: int) -> bool:
        """Tell whether a batch behind the last entry of the offset index has a greater timestamp."""
        indexed, position = self.offset_index.last_entry
        start = position if position and self._is_batch_of(indexed, position) else 0
        with contextlib.suppress(MalformedMessageError):
            for _, header in scan_headers(self.file, start, self.size):
                if header.max_timestamp > timestamp:
                    return True
        return False

    def _indexed_max_timestamp(self) -> TimestampOffset:
        """Return the time index's last entry; if its batch does not confirm it, what the headers say."""
        newest = TimestampOffset(*self.time_index.last_entry)
        return newest if newest.timestamp < 0 or self._is_confirmed(newest) else self._max_timestamp_of_headers()

    def _max_timestamp_of_headers(self) -> TimestampOffset:
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

    def check_gap(self, offset: int, end: int) -> None:
        """Raise MalformedMessageError unless no batch hides `offset`, which is in none below position `end`.

        For who found none: one whose length is wrong hides all behind it, one whose last offset is wrong, itself.
        """
        indexed, start = self.offset_index.lookup(offset)
        reached = last = start if start and self._is_batch_of(indexed, start) else 0
        for last, header in scan_headers(self.file, reached, end):
            reached = last + header.size_in_bytes
        if reached != end:
            raise MalformedMessageError(f"the batches of {self.path} end at {reached}, not at {end}")
        if last < end:
            batch = self.file.pread(end - last, last)
            verify_crc(batch, 0, read_header(batch))

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
        entry. Raises MalformedMessageError if these do not end where the segment does.
        """
        next_offset = self.base_offset
        indexed, position = self.offset_index.last_entry
        if position and not self._is_batch_of(indexed, position):
            self._distrust(f"no batch of offset {indexed} begins at {position}")
            position = 0
        end = position
        for at, header in scan_headers(self.file, position, self.size):
            next_offset, end = header.next_offset, at + header.size_in_bytes
        if end != self.size:
            raise MalformedMessageError(f"the batches of {self.path} end at {end}, not at {self.size}")
        return next_offset
