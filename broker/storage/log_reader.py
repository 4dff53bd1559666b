"""Reading a log: from an offset and a limit to bytes on disk, without a lock.

A read takes one look at the log's segments and at its limit (an offset with, normally, the position where its batch
begins); both are immutable values. Where a read begins is known without any system call for the batches appended
lately (`recent`); older places cost one index lookup and a short scan.

Source: Kafka's LocalLog.read and LogSegment.read, 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.storage.log_types import (
    UNKNOWN_POSITION,
    AbortedTransaction,
    LogOffsetMetadata,
)
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import SegmentList
from barnabas.common.files import FileSlice
from barnabas.protocol.errors import MalformedMessageError

RecentBatches = Mapping[int, tuple[int, int]]
"""Base offset of a batch -> (base offset of its segment, position)."""


class Found:
    """Where a read landed."""

    __slots__ = ("index", "position", "segment", "slice")

    def __init__(self, index: int, segment: LogSegment, position: int, found: FileSlice) -> None:
        self.index = index  # of the segment
        self.segment = segment
        self.position = position
        self.slice = found


def find(
    segments: SegmentList,
    recent: RecentBatches,
    offset: int,
    limit: LogOffsetMetadata,
    max_bytes: int,
    *,
    min_one_message: bool,
) -> Found | None:
    """Find up to `max_bytes` from the batch that holds `offset` to the limit; with `min_one_message` at least one
    whole batch.

    Returns None where nothing is to be had: no batch below the limit, or `max_bytes` is 0 and a whole batch was not
    asked for.
    """
    if offset >= limit.offset:
        return None
    index = segments.floor_index(offset)
    while 0 <= index < len(segments.all):
        segment = segments.all[index]
        end = _end_in(segments, index, limit)
        start = _start_of_read(segment, recent, offset, end)
        if start is not None:
            size = _size_of_read(segment, start, end, max_bytes, min_one_message=min_one_message)
            return Found(index, segment, start, segment.read_slice(start, size)) if size > 0 else None
        # Why go on: compaction and truncation leave segments that end before the next one begins.
        index += 1
        next_base = segments.next_base(index - 1)
        if next_base is None or next_base >= limit.offset:
            return None
    return None


def resolve(segments: SegmentList, recent: RecentBatches, offset: int) -> LogOffsetMetadata:
    """Find the position of the first batch that reaches `offset`; the end of its segment if there is none."""
    index = segments.floor_index(offset)
    if index < 0:
        return LogOffsetMetadata(offset, segments.first.base_offset, 0)
    segment = segments.all[index]
    size = segment.size
    start = _start_in(segment, recent, offset, size)
    return LogOffsetMetadata(offset, segment.base_offset, size if start is None else start)


def _end_in(segments: SegmentList, index: int, limit: LogOffsetMetadata) -> int:
    """Return the position in segment `index` up to which the limit lets one read."""
    segment = segments.all[index]
    if limit.position != UNKNOWN_POSITION:
        if limit.segment_base_offset == segment.base_offset:
            # Why min: the limit may speak of the segment as it was before the cleaner made it smaller.
            return min(limit.position, segment.size)
        return segment.size if segment.base_offset < limit.segment_base_offset else 0
    next_base = segments.next_base(index)
    if next_base is not None and next_base <= limit.offset:
        return segment.size
    found = segment.translate(limit.offset, segment.size)
    return segment.size if found is None else found[0]


def _start_of_read(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> int | None:
    """Return where the first batch that reaches `offset` begins; it may begin later, but not for a batch's damage."""
    known = _recent_start(segment, recent, offset, end)
    if known is not None:
        return known
    found = segment.translate(offset, end)
    if found is None:
        if end == segment.size:  # a limit's position may lie within a batch, where the cleaner has been
            segment.check_gap(offset, end)
        return None
    if found[1].base_offset > offset:
        segment.check_gap(offset, found[0])
    return found[0]


def _start_in(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> int | None:
    known = _recent_start(segment, recent, offset, end)
    if known is not None:
        return known
    found = segment.translate(offset, end)
    return None if found is None else found[0]


def _recent_start(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> int | None:
    """Return where the batch begins whose base is `offset`, if it was appended lately."""
    known = recent.get(offset)
    return known[1] if known is not None and known[0] == segment.base_offset and known[1] < end else None


def _size_of_read(segment: LogSegment, start: int, end: int, max_bytes: int, *, min_one_message: bool) -> int:
    available = end - start
    if available <= max_bytes:
        return available
    if min_one_message:
        header = segment.header_at(start, end)
        if header is None:
            raise MalformedMessageError(f"no batch at {start} of {segment}")
        max_bytes = max(max_bytes, header.size_in_bytes)
    return min(available, max_bytes)


def aborted_transactions(
    segments: SegmentList, found: Found, fetch_offset: int, limit_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that touch what a read found."""
    upper_bound = found.segment.fetch_upper_bound(found.position, found.slice.size)
    if upper_bound < 0:
        next_base = segments.next_base(found.index)
        upper_bound = limit_offset if next_base is None else next_base
    collected: list[AbortedTransaction] = []
    for segment in segments.all[found.index :]:
        transactions, complete = segment.collect_aborted(fetch_offset, upper_bound)
        collected += [AbortedTransaction(*transaction) for transaction in transactions]
        if complete:
            break
    return collected
