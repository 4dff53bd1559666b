"""Questions about offsets that one partition answers from its log: divergence (Fetch) and timestamps (ListOffsets).

Threads: any; no lock is held. Each function reads the role and the log once.
Source: Kafka's Partition.readRecords and fetchOffsetForTimestamp (4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    TimestampOffset,
)
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.storage.log.log import Log


def diverging_epoch(log: Log, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """The point where the reader's log and this one diverge; None if this log continues it (KIP-595, KIP-320).

    Raises OFFSET_OUT_OF_RANGE when this log does not know the epoch, or the offset is below its start.
    """
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset == NO_OFFSET or fetch_offset < log.log_start_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEnd(epoch, end_offset)
    return None


def offset_for_timestamp(
    partition: Partition,
    timestamp: int,
    limit: Callable[[Log], int],
    *,
    current_leader_epoch: int,
    leader_only: bool,
    is_client: bool,
) -> TimestampOffset | None:
    """The offset for one ListOffsets item, `timestamp` being in ms or one of the special values; None if there is none.

    `limit` gives the offset (exclusive) that the caller may see. Raises the errors of `Partition.log_for`. A client
    gets OFFSET_NOT_AVAILABLE from a new leader until its high watermark reaches the start of its epoch. Why: an earlier
    answer could be below an offset that the client was already given.
    """
    log = partition.log_for(current_leader_epoch, leader_only=leader_only)
    role = partition.role
    start = role.leader_epoch_start_offset
    is_lagging = is_client and start is not None and start > log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        if is_lagging:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampOffset(NO_TIMESTAMP, limit(log), role.leader_epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)
    found = log.fetch_offset_by_timestamp(timestamp)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return found
    if found is not None and found.offset < limit(log):
        return found
    if is_lagging:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None
