"""Reads a log without a lock: from an offset and a limit to bytes on disk.

A read takes one snapshot of the log's segments and of its limit (an offset with, normally, the position where its
batch begins); both are immutable values. For batches appended lately the start of a read is known without a system
call (`recent`). Older ones cost one index lookup and a short scan.

Threads: any. Source: Kafka's UnifiedLog.read, LocalLog.read and LogSegment.read, 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.storage.log.log_state import LogState
from barnabas.broker.storage.log.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    UNKNOWN_POSITION,
    AbortedTransaction,
    FetchData,
    FetchIsolation,
    LogOffsetMetadata,
    TimestampOffset,
)
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.segments import SegmentList
from barnabas.broker.storage.segments.txn_index import AbortedTxn
from barnabas.common.disk.files import FileSlice
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

RecentBatches = Mapping[int, tuple[int, int]]
"""Base offset of a batch -> (base offset of its segment, position)."""


class LogReader:
    """Reads one log."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def read(self, fetch_offset: int, max_bytes: int, isolation: FetchIsolation, min_one_message: bool) -> FetchData:
        """Find batches from `fetch_offset` on; see `Log.read`."""
        state = self._state
        failure = state.failure
        if failure is not None:
            raise state.storage_error(failure)
        if fetch_offset > state.end.offset or fetch_offset < state.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {fetch_offset} for partition {state.topic_partition}, but we only have "
                f"log segments from offset {state.log_start_offset} up to {state.end.offset}",
            )
        segments = state.segments
        aborted: list[AbortedTransaction] | None = None
        try:
            limit = self._limit(isolation)
            segments = state.segments  # Why after it: the limit lies in them
            found = find(segments, state.recent, fetch_offset, limit, max_bytes, min_one_message=min_one_message)
            if isolation is FetchIsolation.TXN_COMMITTED:
                aborted = [] if found is None else aborted_transactions(segments, found, fetch_offset, limit.offset)
        except (MalformedMessageError, OSError) as error:
            if state.segments is not segments:  # compacted or deleted during this read
                return self.read(fetch_offset, max_bytes, isolation, min_one_message)
            raise self._read_error(error) from error
        last_stable_offset = state.last_stable_offset  # Why first: the others only grow, so they are not below it
        return FetchData(
            fetch_offset,
            None if found is None else found.slice,
            0 if found is None else found.slice.size,
            state.log_start_offset,
            state.high_watermark.offset,
            last_stable_offset,
            state.end.offset,
            aborted,
        )

    def _read_error(self, error: MalformedMessageError | OSError) -> ApiError:
        state = self._state
        if isinstance(error, FileNotFoundError) and state.is_closed:
            # Why not a failure of the disk: the directory was renamed during the read.
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {state.topic_partition} is being deleted")
        if isinstance(error, OSError):
            return state.fail(error)
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in {state.topic_partition}")

    # Positions

    def locate(self, offset: int) -> LogOffsetMetadata:
        """Return `offset` with its position; raises MalformedMessageError or OSError."""
        end = self._state.end
        return end if offset == end.offset else resolve(self._state.segments, self._state.recent, offset)

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """Return the high watermark with its position, looked up now if it was not known."""
        state = self._state
        known = state.high_watermark
        if known.position != UNKNOWN_POSITION:
            return known
        try:
            located = self.locate(known.offset)
        except (MalformedMessageError, OSError):
            return known  # the read that follows meets the same error and reports it
        with state.lock:
            if state.high_watermark is known:
                state.high_watermark = located
        return located

    def _limit(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        if isolation is FetchIsolation.LOG_END:
            return self._state.end
        high_watermark = self.high_watermark_metadata()
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return high_watermark
        unstable = self._state.first_unstable
        if unstable is None or unstable.offset >= high_watermark.offset:
            return high_watermark
        return unstable if unstable.position != UNKNOWN_POSITION else self.locate(unstable.offset)

    # By timestamp

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at least `timestamp`; see `Log.fetch_offset_by_timestamp`."""
        state = self._state
        epochs = state.leader_epochs
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = state.log_start_offset
            return TimestampOffset(NO_TIMESTAMP, start, epochs.epoch_for_offset(start))
        if timestamp == LATEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, state.end.offset, epochs.latest_epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)  # nothing is tiered
        segments = state.segments
        try:
            if timestamp == MAX_TIMESTAMP:
                newest = max(segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
                return newest.find_max_timestamp()
            return self._first_at(segments, timestamp)
        except (MalformedMessageError, OSError) as error:
            if state.segments is not segments:
                return self.fetch_offset_by_timestamp(timestamp)
            raise self._read_error(error) from error

    def _first_at(self, segments: SegmentList, timestamp: int) -> TimestampOffset | None:
        for segment in segments:
            if segment.largest_timestamp >= timestamp:
                # Why continue after None: all of the segment's records may lie below the log's start.
                found = segment.find_by_timestamp(timestamp, self._state.log_start_offset)
                if found is not None:
                    return found
        return None

    # Transactions

    def aborted_transactions_in(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch [start, end), ordered by their ends."""
        segments = self._state.segments
        found: list[AbortedTxn] = []
        for segment in segments.all[max(0, segments.floor_index(start_offset)) :]:
            transactions, is_complete = segment.txn_index.collect(start_offset, end_offset)
            found += transactions
            if is_complete:
                break
        return found


class Found:
    """The result of `find`: the bytes to send and where they begin."""

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
    """Find up to `max_bytes` from the batch that holds `offset` to the limit.

    With `min_one_message` the result has at least one whole batch. Without it, returns None if the first batch has more
    than `max_bytes` (KIP-74); in any case if no batch lies below the limit.
    """
    if offset >= limit.offset:
        return None
    index = segments.floor_index(offset)
    while 0 <= index < len(segments.all):
        segment = segments.all[index]
        end = _end_in(segments, index, limit)
        start = _start_of_read(segment, recent, offset, end)
        if start is not None:
            position, batch_size = start
            size = _size_of_read(segment, position, batch_size, end, max_bytes, min_one_message=min_one_message)
            return Found(index, segment, position, segment.read_slice(position, size)) if size > 0 else None
        # Why continue: compaction and truncation leave segments that end before the next one begins.
        index += 1
        next_base = segments.next_base(index - 1)
        if next_base is None or next_base >= limit.offset:
            return None
    return None


def resolve(segments: SegmentList, recent: RecentBatches, offset: int) -> LogOffsetMetadata:
    """Find the position of the first batch that reaches `offset`; the end of its segment if no batch does."""
    index = segments.floor_index(offset)
    if index < 0:
        return LogOffsetMetadata(offset, segments.first.base_offset, 0)
    segment = segments.all[index]
    size = segment.size
    start = _start_in(segment, recent, offset, size)
    return LogOffsetMetadata(offset, segment.base_offset, size if start is None else start)


def _end_in(segments: SegmentList, index: int, limit: LogOffsetMetadata) -> int:
    """Return the position in segment `index` where a read must stop because of the limit."""
    segment = segments.all[index]
    if limit.position != UNKNOWN_POSITION:
        if limit.segment_base_offset == segment.base_offset:
            # Why min: the limit may refer to the segment as it was before the cleaner made it smaller.
            return min(limit.position, segment.size)
        return segment.size if segment.base_offset < limit.segment_base_offset else 0
    next_base = segments.next_base(index)
    if next_base is not None and next_base <= limit.offset:
        return segment.size
    found = segment.translate(limit.offset, segment.size)
    return segment.size if found is None else found[0]


def _start_of_read(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> tuple[int, int] | None:
    """Return where the first batch that reaches `offset` begins, and its size; None if no batch below `end` does.

    The batch may begin above `offset`. Raises MalformedMessageError if damage may be the reason for that. The size is
    -1 if the batch was not looked at.
    """
    known = _recent_start(segment, recent, offset, end)
    if known is not None:
        return known, -1
    found = segment.translate(offset, end)
    if found is None:
        if end == segment.size:  # after compaction a limit's position may lie within a batch
            segment.check_gap(offset, end)
        return None
    if not segment.begins_by(offset, *found):
        segment.check_gap(offset, found[0])
    return found[0], found[1].size_in_bytes


def _start_in(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> int | None:
    known = _recent_start(segment, recent, offset, end)
    if known is not None:
        return known
    found = segment.translate(offset, end)
    return None if found is None else found[0]


def _recent_start(segment: LogSegment, recent: RecentBatches, offset: int, end: int) -> int | None:
    """Return where the batch with base offset `offset` begins, if it was appended lately."""
    known = recent.get(offset)
    return known[1] if known is not None and known[0] == segment.base_offset and known[1] < end else None


def _size_of_read(
    segment: LogSegment, start: int, batch_size: int, end: int, max_bytes: int, *, min_one_message: bool
) -> int:
    """Return how much to read from `start`, where a batch of `batch_size` begins (-1: it is looked up if it counts).

    Nothing, if not even this batch is whole then: a consumer that gets bytes without a whole batch gives up.
    """
    available = end - start
    if available <= max_bytes:
        return available
    if max_bytes <= 0 and not min_one_message:
        return 0
    if batch_size < 0:
        header = segment.header_at(start, end)
        if header is None:
            raise MalformedMessageError(f"no batch at {start} of {segment}")
        batch_size = header.size_in_bytes
    if batch_size <= max_bytes:
        return max_bytes
    return min(available, batch_size) if min_one_message else 0


def aborted_transactions(
    segments: SegmentList, found: Found, fetch_offset: int, limit_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that touch the records of a read."""
    upper_bound = found.segment.fetch_upper_bound(found.position, found.slice.size)
    if upper_bound < 0:
        next_base = segments.next_base(found.index)
        upper_bound = limit_offset if next_base is None else next_base
    collected: list[AbortedTransaction] = []
    for segment in segments.all[found.index :]:
        transactions, is_complete = segment.txn_index.collect(fetch_offset, upper_bound)
        collected += [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in transactions]
        if is_complete:
            break
    return collected
