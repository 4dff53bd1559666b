"""Where a share partition begins that has no start offset yet: `share.auto.offset.reset`.

Source: Kafka's ShareGroupAutoOffsetResetStrategy, SharePartition.startOffsetDuringInitialization (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.replication.offset_queries import offset_for_timestamp
from barnabas.broker.replication.reading import visible_end
from barnabas.broker.storage.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchIsolation
from barnabas.config.durations import parse_duration_ms
from barnabas.config.validators import BY_DURATION
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


def timestamp_of(strategy: str, now_ms: int) -> int:
    """Return the timestamp for which ListOffsets answers what a strategy means; `now_ms` is the time of day."""
    if strategy == EARLIEST:
        return EARLIEST_TIMESTAMP
    duration_ms = parse_duration_ms(strategy.removeprefix(BY_DURATION))
    return LATEST_TIMESTAMP if duration_ms is None else max(0, now_ms - duration_ms)


def start_offset(partition: Partition, leader_epoch: int, strategy: str, now_ms: int) -> int:
    """Return where to begin; raises ApiError if this broker does not lead in this epoch, or cannot say yet."""
    found = offset_for_timestamp(
        partition,
        timestamp_of(strategy, now_ms),
        lambda log: visible_end(log, FetchIsolation.HIGH_WATERMARK),
        current_leader_epoch=leader_epoch,
        leader_only=True,
        is_client=True,
    )
    if found is not None:
        return found.offset
    if strategy in (EARLIEST, LATEST):
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return partition.leader_log().high_watermark  # no record is that young
