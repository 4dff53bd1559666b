"""The timestamps of a segment: the greatest so far, that of the first batch, and the segment's age.

The greatest timestamp is read from the time index when it is first needed. It is compared with the batches, since an
index has no checksum.

Threads: changed by the log under its lock; read by any thread.
"""

from __future__ import annotations

import contextlib

from barnabas.broker.storage.log.log_types import NO_TIMESTAMP, TimestampOffset
from barnabas.broker.storage.segments.scan import scan_headers
from barnabas.broker.storage.segments.segment_files import SegmentFiles
from barnabas.broker.storage.segments.segment_lookup import SegmentLookup
from barnabas.protocol.errors import MalformedMessageError


class SegmentTimestamps:
    """The timestamps of one segment, in milliseconds since the epoch."""

    __slots__ = ("_created_ms", "_files", "_first_batch", "_greatest", "_lookup")

    def __init__(self, files: SegmentFiles, lookup: SegmentLookup, created_ms: int) -> None:
        self._files = files
        self._lookup = lookup
        self._greatest: TimestampOffset | None = None  # None until read from the time index
        self._first_batch: int | None = None  # greatest timestamp of the first batch; None until read
        self._created_ms = created_ms

    @property
    def greatest(self) -> TimestampOffset:
        """The greatest timestamp and the last offset of its batch; (-1, base offset) if the segment is empty."""
        known = self._greatest
        if known is None:
            known = self._greatest = self._stored()
        return known

    def add(self, max_timestamp: int, last_offset: int, *, is_first: bool = False) -> None:
        """Take in an appended batch; `is_first`: it begins the segment."""
        if is_first:
            self._first_batch = max_timestamp
        known = self._greatest
        if known is None:
            known = self.greatest
        if max_timestamp > known.timestamp:
            self._greatest = TimestampOffset(max_timestamp, last_offset)

    def reset(self) -> None:
        """Start again with an empty segment, before its indexes are rebuilt."""
        self._greatest = TimestampOffset(NO_TIMESTAMP, self._files.base_offset)
        self._first_batch = None

    def restart(self, now_ms: int) -> None:
        """Begin to age again: a truncation emptied the segment."""
        self._created_ms = now_ms
        self._first_batch = None

    def rescan(self) -> None:
        """Find the greatest timestamp again: the time index's last entry and the batches after it."""
        newest = self._indexed()
        start = self._lookup.translate(newest.offset, self._files.size)
        for _, header in scan_headers(self._files.file, 0 if start is None else start[0], self._files.size):
            if header.max_timestamp > newest.timestamp:
                newest = TimestampOffset(header.max_timestamp, header.last_offset)
        self._greatest = newest

    def of_first_batch(self) -> int | None:
        """Return the greatest timestamp of the first batch; None if there is no batch."""
        if self._first_batch is None and self._files.size:
            for _, header in scan_headers(self._files.file, 0, self._files.size):
                self._first_batch = header.max_timestamp
                break
        return self._first_batch

    def greatest_or_file_age(self) -> int:
        """Return the greatest timestamp; the file's modification time if no record has one."""
        timestamp = self.greatest.timestamp
        if timestamp >= 0:
            return timestamp
        try:
            return self._files.mtime_ms()
        except FileNotFoundError:
            return self._created_ms

    def waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return for how many ms the segment has been filling; see `LogSegment.time_waited_for_roll`."""
        began_ms = self._first_batch
        if began_ms is None:
            began_ms = self.of_first_batch()
        if began_ms is not None and began_ms >= 0:
            return message_timestamp - began_ms
        return now_ms - self._created_ms

    # Reading indexes and headers

    def _stored(self) -> TimestampOffset:
        """Return the last entry of the time index, which a completed or closed segment has.

        If there is none, or later batches are newer, the batch headers are read.
        """
        newest = self._indexed()
        if not self._files.size or (newest.timestamp >= 0 and not self._ends_newer_than(newest.timestamp)):
            return newest
        found = self._of_headers()
        if found.timestamp > newest.timestamp:
            self._lookup.distrust(f"the greatest timestamp is not {newest.timestamp} but {found.timestamp}")
        return found

    def _ends_newer_than(self, timestamp: int) -> bool:
        """Return whether a batch after the last entry of the offset index has a greater timestamp."""
        indexed, position = self._files.offset_index.last_entry
        start = position if position and self._lookup.is_batch_of(indexed, position) else 0
        with contextlib.suppress(MalformedMessageError):
            for _, header in scan_headers(self._files.file, start, self._files.size):
                if header.max_timestamp > timestamp:
                    return True
        return False

    def _indexed(self) -> TimestampOffset:
        """Return the time index's last entry; if its batch does not confirm it, what the headers hold."""
        newest = TimestampOffset(*self._files.time_index.last_entry)
        return newest if newest.timestamp < 0 or self._lookup.is_confirmed(newest) else self._of_headers()

    def _of_headers(self) -> TimestampOffset:
        newest = TimestampOffset(NO_TIMESTAMP, self._files.base_offset)
        with contextlib.suppress(MalformedMessageError):
            for _, header in scan_headers(self._files.file, 0, self._files.size):
                if header.max_timestamp > newest.timestamp:
                    newest = TimestampOffset(header.max_timestamp, header.last_offset)
        return newest
