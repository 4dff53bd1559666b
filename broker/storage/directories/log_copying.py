"""Copies a log into another one of the same partition on this machine; a move between log directories uses it.

The source is written to and truncated meanwhile. Like a follower on another broker, the copy finds out from the leader
epochs what it must drop (KIP-101). So the source needs no hook for the copy.

Source: Kafka's ReplicaAlterLogDirsThread, LocalLeaderEndPoint, 4.3.
"""

from __future__ import annotations

from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.broker.storage.log.log_types import NO_EPOCH


def catch_up(source: Log, target: Log, max_bytes: int) -> int:
    """Drop from `target` what `source` does not have, then copy up to `max_bytes` (or one batch); returns the bytes.

    The high watermark and the log start offset follow. A result below `max_bytes` means that the end was reached.
    Raises ApiError, and UnexpectedAppendOffsetError if `source` was truncated meanwhile.
    """
    align(source, target)
    data = source.read(target.log_end_offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
    copied = 0
    if data.slice is not None:
        try:
            records = memoryview(data.slice.read())
        except OSError as error:
            raise source.fail(error) from error
        copied = target.append_as_follower(records).size_in_bytes
    target.update_high_watermark(min(source.high_watermark, target.log_end_offset))
    start = min(source.log_start_offset, target.high_watermark)
    if start > target.log_start_offset:
        target.maybe_increment_log_start_offset(start, "the copied log begins there")
    return copied


def align(source: Log, target: Log) -> None:
    """Truncate `target` to the offset where its history and that of `source` diverge."""
    if target.log_end_offset < source.log_start_offset:
        target.truncate_fully_and_start_at(source.log_start_offset)
        return
    while target.log_end_offset > target.log_start_offset:
        common = _common_end(source, target)
        if common is None:
            target.truncate_fully_and_start_at(source.log_start_offset)
            return
        if common >= target.log_end_offset:
            return
        target.truncate_to(common)


def _common_end(source: Log, target: Log) -> int | None:
    """Return where the target's newest epoch, or the source's next older one, ends in both logs; None if unknown."""
    newest = target.latest_epoch
    if newest == NO_EPOCH:
        return source.log_end_offset
    epoch, end = source.end_offset_for_epoch(newest)
    if epoch == NO_EPOCH:
        return None
    _, own_end = target.end_offset_for_epoch(epoch)
    return min(end, own_end)
