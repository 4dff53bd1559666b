"""Deletes segments that are too old, exceed the log's size limit, or lie below its start; rebuilds damaged indexes.

Policy `delete`: a segment is deleted when its greatest timestamp is more than `retention.ms` ago, while the log is
larger than `retention.bytes`, or when the log's start has passed it. Without `delete` (compacted only) just the last
rule holds. The cleaner compacts.

Source: Kafka's UnifiedLog.deleteOldSegments, 4.3.
"""

from __future__ import annotations

import logging

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segments.segment import LogSegment

log = logging.getLogger("barnabas.storage.retention")


def delete_old_segments(target: Log, now_ms: int) -> int:
    """Apply one log's retention; returns how many segments were deleted. Raises ApiError(KAFKA_STORAGE_ERROR)."""
    target.rebuild_damaged_indexes()
    deleted = _delete_below_log_start(target)
    # Why: a broker may start long before the controller sends it that a topic is compacted, or kept forever.
    if target.config.delete and target.is_configured:
        deleted += _delete_by_size(target)
        deleted += _delete_by_time(target, now_ms)
    return deleted


def _delete_below_log_start(target: Log) -> int:
    def is_below(_segment: LogSegment, next_base: int | None) -> bool:
        return next_base is not None and next_base <= target.log_start_offset

    return target.delete_segments(target.deletable_segments(is_below), "log start offset")


def _delete_by_size(target: Log) -> int:
    retention_bytes = target.config.retention_bytes
    excess = target.size_in_bytes - retention_bytes
    if retention_bytes < 0 or excess <= 0:
        return 0

    def is_in_excess(segment: LogSegment, _next_base: int | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return target.delete_segments(target.deletable_segments(is_in_excess), "retention size")


def _delete_by_time(target: Log, now_ms: int) -> int:
    retention_ms = target.config.retention_ms
    if retention_ms < 0:
        return 0

    def is_expired(segment: LogSegment, _next_base: int | None) -> bool:
        newest = segment.largest_timestamp
        if newest > now_ms:
            log.debug("%s is kept: it has timestamps in the future", segment)
        return now_ms - newest > retention_ms

    return target.delete_segments(target.deletable_segments(is_expired), "retention time")
