"""Finds batches in a segment by offset or timestamp: one index lookup, then a short scan.

The sparse indexes have no checksum, so an entry is compared with the batch that it points at. A wrong entry costs a
scan from the segment's beginning and marks the indexes to be rebuilt (`has_damaged_index`).

Threads: any, without a lock. Bytes below a published end never change except by truncation.

Source: Kafka's LogSegment, 4.3.
"""

from __future__ import annotations

import logging

from barnabas.broker.storage.large_batches import first_offset, first_record
from barnabas.broker.storage.log.log_types import NO_OFFSET, TimestampOffset
from barnabas.broker.storage.segments.scan import scan_batches, scan_headers
from barnabas.broker.storage.segments.segment_files import SegmentFiles
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LEGACY_HEADER_SIZE,
    MAGIC_V2,
    BatchHeader,
    CorruptBatchError,
    is_intact,
    read_stored_header,
    verify_crc,
)

log = logging.getLogger("barnabas.storage.log")


class SegmentLookup:
    """Searches in one segment's files."""

    __slots__ = ("_files", "has_damaged_index")

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self.has_damaged_index = False  # set by a lookup that meets a wrong entry, reset when indexes are rebuilt

    # By offset

    def translate(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """Find the first batch below position `end` whose last offset is at least `offset`: (position, header)."""
        indexed, position = self._files.offset_index.lookup(offset)
        if position:
            if self.is_batch_of(indexed, position):
                return self._scan_to(offset, position, end)
            self.distrust(f"no batch of offset {indexed} begins at {position}")
        return self._scan_to(offset, 0, end)

    def _scan_to(self, offset: int, position: int, end: int) -> tuple[int, BatchHeader] | None:
        for found, header in scan_headers(self._files.file, position, end):
            if header.last_offset >= offset:
                return found, header
        return None

    def is_batch_of(self, offset: int, position: int) -> bool:
        """Return whether an entry of the offset index is right: a batch at `position` begins at or before `offset`."""
        files = self._files
        if not 0 < position <= files.size - LEGACY_HEADER_SIZE:
            return False
        try:
            header = read_stored_header(files.file.pread(HEADER_SIZE, position))
        except MalformedMessageError:
            return False
        return (
            files.base_offset <= header.base_offset
            # Why: bytes amid a batch may look like a message of format v0 or v1.
            and (header.magic >= MAGIC_V2 or self._has_right_crc(header, position))
            and self.begins_by(offset, position, header)
        )

    def begins_by(self, offset: int, position: int, header: BatchHeader) -> bool:
        """Return whether the batch at `position` begins at or before `offset`; a damaged wrapper does not.

        The header of a wrapper has only the offset of its last message. Old brokers put that of the first one into the
        index.
        """
        if header.base_offset <= offset or header.magic >= MAGIC_V2 or not header.attributes & COMPRESSION_MASK:
            return header.base_offset <= offset
        try:
            return first_offset(self._files.file.pread(header.size_in_bytes, position), header) <= offset
        except MalformedMessageError:
            return False

    def _has_right_crc(self, header: BatchHeader, position: int) -> bool:
        size = header.size_in_bytes
        return size <= self._files.size - position and is_intact(self._files.file.pread(size, position), header)

    def distrust(self, reason: str) -> None:
        """Mark the indexes as damaged and log why, once."""
        if not self.has_damaged_index:
            self.has_damaged_index = True
            log.warning("An index of %s is damaged and is not used until it is rebuilt: %s", self._files.path, reason)

    def check_gap(self, offset: int, end: int) -> None:
        """Check that damage does not hide `offset` after a lookup found it in no batch below position `end`.

        Raises MalformedMessageError: a wrong length hides all later batches, a wrong last offset hides its batch.
        """
        file = self._files.file
        indexed, start = self._files.offset_index.lookup(offset)
        reached = last = start if start and self.is_batch_of(indexed, start) else 0
        for last, header in scan_headers(file, reached, end):
            reached = last + header.size_in_bytes
        if reached != end:
            raise MalformedMessageError(f"the batches of {self._files.path} end at {reached}, not at {end}")
        if last < end:
            batch = file.pread(end - last, last)
            verify_crc(batch, 0, read_stored_header(batch))

    def header_at(self, position: int, end: int) -> BatchHeader | None:
        """Read the header of the batch at `position`; None if there is no whole header below `end`."""
        for _, header in scan_headers(self._files.file, position, end):
            return header
        return None

    def fetch_upper_bound(self, position: int, size: int) -> int:
        """Return an offset above all records in the `size` bytes at `position`; -1 if unknown."""
        entry = self._files.offset_index.upper_bound(position, size)
        return entry[0] if entry is not None and self.is_batch_of(*entry) else NO_OFFSET

    def read_next_offset(self) -> int:
        """Return the offset after the segment's last one: from the offset index and the batches past its last entry.

        Raises MalformedMessageError if these batches do not end where the segment ends.
        """
        files = self._files
        next_offset = files.base_offset
        indexed, position = files.offset_index.last_entry
        if position and not self.is_batch_of(indexed, position):
            self.distrust(f"no batch of offset {indexed} begins at {position}")
            position = 0
        end = position
        for at, header in scan_headers(files.file, position, files.size):
            next_offset, end = header.next_offset, at + header.size_in_bytes
            # Why: a flipped bit makes format v0 of a batch, and records past its first would be overwritten.
            if header.magic < MAGIC_V2 and end == files.size and not self._has_right_crc(header, at):
                raise CorruptBatchError(f"the last message of {files.path} is corrupt")
        if end != files.size:
            raise MalformedMessageError(f"the batches of {files.path} end at {end}, not at {files.size}")
        return next_offset

    # By timestamp

    def is_confirmed(self, entry: TimestampOffset) -> bool:
        """Return whether an entry of the time index is right: the batch at its offset has its timestamp."""
        found = self.translate(entry.offset, self._files.size)
        if found is not None and found[1].max_timestamp == entry.timestamp:
            return True
        self.distrust(f"no batch at offset {entry.offset} has the greatest timestamp {entry.timestamp}")
        return False

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or after `start_offset` whose timestamp is at least `timestamp`."""
        files = self._files
        indexed = TimestampOffset(*files.time_index.lookup(timestamp))
        offset = indexed.offset if indexed.timestamp >= 0 and self.is_confirmed(indexed) else files.base_offset
        start = self.translate(max(offset, start_offset), files.size)
        if start is None:
            return None
        for _, header, batch in scan_batches(files.file, start[0], files.size):
            _check_message(header, batch)
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            record = first_record(batch, header, lambda r: r.timestamp >= timestamp and r.offset >= start_offset)
            if record is not None:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def find_record_of(self, newest: TimestampOffset) -> TimestampOffset | None:
        """Return the first record with the segment's greatest timestamp, given that and an offset of its batch.

        It may be -1: no record has a timestamp then.
        """
        files = self._files
        start = self.translate(newest.offset, files.size)
        for _, header, batch in scan_batches(files.file, 0 if start is None else start[0], files.size):
            if header.max_timestamp != newest.timestamp:
                continue
            record = first_record(batch, header, lambda r: r.timestamp == newest.timestamp)
            if record is not None:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None


def _check_message(header: BatchHeader, batch: memoryview) -> None:
    """Check the CRC of an entry of format v0 or v1 before a search by time may pass it over.

    Why: a batch whose magic is damaged looks like a message without a timestamp.
    """
    if header.magic < MAGIC_V2:
        verify_crc(batch, 0, header)
