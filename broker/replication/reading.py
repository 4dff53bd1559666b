"""Reading many partitions for one fetch: the limits, the errors, and what each partition gave.

Rules (Kafka's ReplicaManager.readFromLog)
1. Partitions are read in the order of the request; each takes at most its own `max_bytes` and what is left of the
   request's. The first batch found is returned even if it is larger than both, so that a consumer always gets on.
2. One partition's error is that partition's result; it never spoils the others.

Threads: any handler; a completed DelayedFetch reads again on the thread that completed it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log_types import NO_EPOCH, FetchIsolation
from barnabas.broker.topic_stats import FAILED_FETCH
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log import Log
    from barnabas.broker.storage.log_types import FetchData
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")

CONSUMER_ID = -1
NO_PREFERRED_REPLICA = -1

# Errors that are part of normal life: not counted as failed fetches.
EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class FetchParams:
    """What holds for the whole fetch. Sizes in bytes. A value: nobody changes one."""

    __slots__ = (
        "is_from_follower",
        "isolation",
        "leader_only",
        "listener_name",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation: FetchIsolation,
        leader_only: bool,
        rack_id: str = "",
        listener_name: str = "",
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.is_from_follower = replica_id >= 0
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.leader_only = leader_only  # may only a leader answer? (followers, clients that cannot be redirected)
        self.rack_id = rack_id
        self.listener_name = listener_name  # on which the client came in


class FetchItem(NamedTuple):
    """What is asked of one partition; epochs are -1 where the client does not say."""

    tp: TopicPartition
    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1


class ReadResult:
    """What a partition gave; `data` is None with an error, a diverging epoch or a preferred replica."""

    __slots__ = (
        "data",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
    )

    def __init__(
        self,
        error: ErrorCode,
        data: FetchData | None = None,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging: EpochEnd | None = None,
        preferred_read_replica: int = NO_PREFERRED_REPLICA,
    ) -> None:
        self.error = error
        self.data = data
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging = diverging
        self.preferred_read_replica = preferred_read_replica

    @property
    def size(self) -> int:
        """Bytes of records."""
        return 0 if self.data is None else self.data.size

    @property
    def is_final(self) -> bool:
        """Whether waiting for more bytes makes no sense."""
        return (
            self.error != ErrorCode.NONE
            or self.diverging is not None
            or self.preferred_read_replica != NO_PREFERRED_REPLICA
        )


Read = tuple[FetchItem, ReadResult]


def visible_end(log: Log, isolation: FetchIsolation) -> int:
    """The offset (exclusive) up to which a reader of this isolation sees the log."""
    if isolation == FetchIsolation.LOG_END:
        return log.log_end_offset
    if isolation == FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset


def read_all(manager: ReplicaManager, params: FetchParams, items: Sequence[FetchItem]) -> list[Read]:
    """Read every partition within the request's limits."""
    left = params.max_bytes
    wants_one = True
    results: list[Read] = []
    for item in items:
        result = read_one(manager, params, item, left, min_one_message=wants_one)
        size = result.size
        if size:
            wants_one = False
            left = max(0, left - size)
        results.append((item, result))
    return results


def read_one(
    manager: ReplicaManager, params: FetchParams, item: FetchItem, limit: int, *, min_one_message: bool
) -> ReadResult:
    """Read one partition; errors become its result."""
    stats = manager.stats.topic(item.tp.topic)
    stats.fetched()
    try:
        partition = manager.partition(item.tp)
        manager.check_topic_id(partition, item.topic_id)
        return _read_partition(manager, partition, params, item, limit, min_one_message)
    except ApiError as error:
        if error.code not in EXPECTED_ERRORS:
            log.warning("fetch of %s from offset %d failed: %s", item.tp, item.fetch_offset, error.code.name)
            stats.count(FAILED_FETCH)
        return ReadResult(error.code)


def _read_partition(
    manager: ReplicaManager,
    partition: Partition,
    params: FetchParams,
    item: FetchItem,
    limit: int,
    min_one_message: bool,
) -> ReadResult:
    if params.is_from_follower:
        partition.require_follower(params.replica_id)
        manager.require_current_epoch(params.replica_id, params.replica_epoch)
    elif params.rack_id and manager.replica_selector is not None and partition.is_leader:
        preferred = manager.replica_selector(partition, params.rack_id, params.listener_name, item.fetch_offset)
        if preferred is not None:
            log_ = partition.log_for(item.current_leader_epoch, leader_only=False)
            return ReadResult(
                ErrorCode.NONE, None, log_.high_watermark, log_.last_stable_offset, log_.log_start_offset,
                preferred_read_replica=preferred,
            )  # fmt: skip
    if item.last_fetched_epoch != NO_EPOCH:
        diverging = partition.diverging_epoch(
            item.fetch_offset, item.last_fetched_epoch, item.current_leader_epoch, leader_only=params.leader_only
        )
        if diverging is not None:
            log_ = partition.log_for(item.current_leader_epoch, leader_only=params.leader_only)
            return ReadResult(
                ErrorCode.NONE, None, log_.high_watermark, log_.last_stable_offset, log_.log_start_offset, diverging
            )
    is_held_back = params.is_from_follower and manager.holds_back(partition, params.replica_id)
    data = partition.read(
        item.fetch_offset,
        0 if is_held_back else min(item.max_bytes, limit),
        params.isolation,
        min_one_message=min_one_message and not is_held_back,
        current_leader_epoch=item.current_leader_epoch,
        leader_only=params.leader_only,
    )
    return ReadResult(ErrorCode.NONE, data, data.high_watermark, data.last_stable_offset, data.log_start_offset)
