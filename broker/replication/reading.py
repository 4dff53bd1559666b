"""Reading many partitions for one fetch: the limits, the errors, and each partition's result.

Rules (Kafka's ReplicaManager.readFromLog)
1. Partitions are read in the order of the request. Each takes at most its own `max_bytes` and what is left of the
   request's. The first batch found is returned even if it is larger than both, so that a consumer always advances.
2. An error of one partition is that partition's result; it never affects the others.
3. A follower's fetch is noted before its partition is read: every record below its fetch offset is on its disk. The
   high watermark that it gets is therefore the one that its own fetch made possible. A fetch that is refused, or
   diverges, is not noted.

Threads: any handler; a completed DelayedFetch reads again on the thread that completed it.
Source: Kafka's ReplicaManager.readFromLog, Partition.fetchRecords (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.monitoring.topic_stats import FAILED_FETCH
from barnabas.broker.replication.offset_queries import diverging_epoch
from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log.log_types import NO_EPOCH, FetchIsolation
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.monitoring.topic_stats import BrokerTopicStats
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.replication.in_sync.isr_updates import IsrUpdates
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_selector import ReplicaSelector
    from barnabas.broker.replication.replication_quota import ReplicationQuota
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.log.log_types import FetchData
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.replication")

CONSUMER_ID = -1
NO_PREFERRED_REPLICA: Final = -1
_NONE: Final = ErrorCode.NONE  # Why: saves a lookup for every partition of every fetch

# Errors of normal operation: not counted as failed fetches.
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
    """The parameters of a whole fetch. Sizes in bytes. A value: never changed."""

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
        self.listener_name = listener_name  # the client's


class FetchItem:
    """The request for one partition; an epoch is -1 where the client names none. A value: never changed."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = -1,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset

    def named(self, topic: str) -> FetchItem:
        """The same request, once the name of its topic is known."""
        return FetchItem(
            TopicPartition(topic, self.tp.partition),
            self.topic_id,
            self.fetch_offset,
            self.max_bytes,
            self.current_leader_epoch,
            self.last_fetched_epoch,
            self.log_start_offset,
        )


class ReadResult:
    """One partition's result. A value: never changed. `data` is None with an error, divergence or preferred replica.

    It `was_read` unless the request was refused before that.
    """

    __slots__ = (
        "data",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "was_read",
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
        was_read: bool = True,
    ) -> None:
        self.error = error
        self.data = data
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging = diverging
        self.preferred_read_replica = preferred_read_replica
        self.was_read = was_read

    @property
    def size(self) -> int:
        """Bytes of records."""
        return 0 if self.data is None else self.data.size

    @property
    def is_unused(self) -> bool:
        """Whether the reader takes over nothing of it, its watermarks included."""
        return self.error is not _NONE or self.diverging is not None

    @property
    def is_final(self) -> bool:
        """Whether waiting for more bytes makes no sense."""
        return self.is_unused or self.preferred_read_replica != NO_PREFERRED_REPLICA


Read = tuple[FetchItem, ReadResult]


def refused(error: ErrorCode) -> ReadResult:
    """The result of a partition that was not read."""
    return ReadResult(error, was_read=False)


def visible_end(log: Log, isolation: FetchIsolation) -> int:
    """The offset (exclusive) up to which a reader of this isolation sees the log."""
    if isolation == FetchIsolation.LOG_END:
        return log.log_end_offset
    if isolation == FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset


def is_in_older_segment(log: Log, offset: int, end: int) -> bool:
    """Whether `offset` is in an older segment than `end`: a read ends with its segment, so waiting brings no more."""
    segments = log.segments
    return segments.floor_index(offset) < segments.floor_index(end)


def has_no_news(
    partition: Partition,
    item: FetchItem,
    high_watermark: int,
    log_start_offset: int,
    *,
    replica_id: int,
    isolation: FetchIsolation,
    leader_only: bool,
) -> bool:
    """Whether a fetch of `item` would tell nothing new to a client that knows these watermarks. Takes no lock."""
    log, role = partition.log, partition.role
    if log is None or log.is_offline or item.current_leader_epoch not in (NO_EPOCH, role.leader_epoch):
        return False
    if log.high_watermark != high_watermark or log.log_start_offset != log_start_offset:
        return False
    if visible_end(log, isolation) != item.fetch_offset:
        return False
    if replica_id > CONSUMER_ID:
        return role.is_leader and not role.is_isr_change_in_flight and replica_id in role.isr
    return role.is_leader or not leader_only


class FetchReader:
    """Reads hosted partitions for fetches of consumers and followers."""

    def __init__(
        self,
        hosted: HostedPartitions,
        stats: BrokerTopicStats,
        isr_updates: IsrUpdates,
        leader_quota: ReplicationQuota,
        replica_selector: ReplicaSelector | None,
        clock: Clock,
    ) -> None:
        self.hosted = hosted  # fixed before start
        self._stats = stats  # fixed before start
        self._isr_updates = isr_updates  # fixed before start
        self._quota = leader_quota  # fixed before start
        self._replica_selector = replica_selector  # fixed before start; None: consumers always read from the leader
        self._clock = clock  # fixed before start; the one by which followers lag

    def read_all(
        self, params: FetchParams, items: Sequence[FetchItem], moved: list[Hashable] | None = None
    ) -> list[Read]:
        """Read every partition within the request's limits.

        The first read of a fetch passes `moved`. A follower's fetch is then noted (rule 3), and each partition whose
        watermark moved is added to the list. A fetch that waited reads again without it.
        """
        if moved is not None:  # Why not again: Kafka counts requests (TotalFetchRequestsPerSec), not their second reads
            self._count(items)
        return self._read_in_order(params, [(item, None) for item in items], moved)

    def read_again(
        self, params: FetchParams, before: Sequence[tuple[FetchItem, ReadResult | None]], woken: Sequence[FetchItem]
    ) -> list[Read]:
        """Read for a fetch that has waited: what it read `before`, unless that is still true, and what was `woken`."""
        return self._read_in_order(params, [*before, *((item, None) for item in woken)] if woken else before, None)

    def _read_in_order(
        self, params: FetchParams, due: Sequence[tuple[FetchItem, ReadResult | None]], moved: list[Hashable] | None
    ) -> list[Read]:
        """Read each partition within the request's limits; a result that is given and still true is not read again."""
        left = params.max_bytes
        wants_one = True
        results: list[Read] = []
        is_outdated = params.is_from_follower and self.hosted.metadata_cache.snapshot.is_outdated(
            params.replica_id, params.replica_epoch
        )
        now_ms = self._clock.monotonic_ms() if moved is not None and params.is_from_follower else 0
        for item, known in due:
            if known is not None and not is_outdated and self._is_still_true(params, item, known):
                results.append((item, known))
                continue
            result = self._read(params, item, left, wants_one, moved, now_ms, is_outdated)
            size = result.size
            if size:
                wants_one = False
                left = max(0, left - size)
            results.append((item, result))
        return results

    def _is_still_true(self, params: FetchParams, item: FetchItem, result: ReadResult) -> bool:
        """Whether a partition of which only watermarks could be told would be read with the same result again."""
        if result.is_final or result.size or params.rack_id:  # Why the rack: a preferred replica may be found by now
            return False
        partition = self.hosted.find(item.tp)
        held = None if partition is None else partition.log
        return (
            partition is not None
            and held is not None
            and partition.topic_id == item.topic_id
            and held.last_stable_offset == result.last_stable_offset
            and has_no_news(
                partition,
                item,
                result.high_watermark,
                result.log_start_offset,
                replica_id=params.replica_id,
                isolation=params.isolation,
                leader_only=params.leader_only,
            )
        )

    def holds_back(self, partition: Partition, follower_id: int) -> bool:
        """Whether a throttle forbids sending records to this follower now; one in the ISR is never held back."""
        return follower_id not in partition.isr and self._quota.holds_back(partition.tp)

    def _count(self, items: Sequence[FetchItem]) -> None:
        """Count partitions (TotalFetchRequestsPerSec), those of neighbours of the same topic at once."""
        topic = ""
        count = 0
        for item in items:
            if count and item.tp.topic != topic:
                self._stats.topic(topic).fetched(count)
                count = 0
            topic = item.tp.topic
            count += 1
        if count:
            self._stats.topic(topic).fetched(count)

    def _read(
        self,
        params: FetchParams,
        item: FetchItem,
        limit: int,
        wants_one: bool,
        moved: list[Hashable] | None,
        now_ms: int,
        is_outdated: bool,
    ) -> ReadResult:
        """Read one partition; an error becomes its result. The last two are a follower's (see `_read_for_follower`)."""
        try:
            partition = self.hosted.get(item.tp)
            partition.require_topic_id(item.topic_id)
            if params.is_from_follower:
                return self._read_for_follower(partition, params, item, limit, wants_one, moved, now_ms, is_outdated)
            return self._read_for_consumer(partition, params, item, limit, wants_one)
        except ApiError as error:
            if error.code not in EXPECTED_ERRORS:
                log.warning("fetch of %s from offset %d failed: %s", item.tp, item.fetch_offset, error.code.name)
                self._stats.topic(item.tp.topic).count(FAILED_FETCH)
            return ReadResult(error.code)

    def _read_for_consumer(
        self, partition: Partition, params: FetchParams, item: FetchItem, limit: int, wants_one: bool
    ) -> ReadResult:
        if params.rack_id and self._replica_selector is not None and partition.is_leader:
            preferred = self._replica_selector(partition, params.rack_id, params.listener_name, item.fetch_offset)
            if preferred is not None:
                led = partition.log_for(item.current_leader_epoch, leader_only=False)
                return _without_data(led, preferred_read_replica=preferred)
        held = partition.log_for(item.current_leader_epoch, leader_only=params.leader_only)
        if item.last_fetched_epoch != NO_EPOCH:
            diverging = diverging_epoch(held, item.fetch_offset, item.last_fetched_epoch)
            if diverging is not None:
                return _without_data(held, diverging)
        return _data_of(held, params, item, min(item.max_bytes, limit), wants_one)

    def _read_for_follower(
        self,
        partition: Partition,
        params: FetchParams,
        item: FetchItem,
        limit: int,
        wants_one: bool,
        moved: list[Hashable] | None,
        now_ms: int,
        is_outdated: bool,
    ) -> ReadResult:
        """Read for a follower that fetches at `now_ms`; it `is_outdated` if that is its earlier incarnation."""
        partition.require_follower(params.replica_id, item.current_leader_epoch)
        if is_outdated:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        held = partition.log_for(item.current_leader_epoch, leader_only=params.leader_only)
        if item.last_fetched_epoch != NO_EPOCH:
            diverging = diverging_epoch(held, item.fetch_offset, item.last_fetched_epoch)
            if diverging is not None:
                return _without_data(held, diverging)
        if moved is not None and self._note(held, partition, params, item, now_ms):
            moved.append(item.tp)
        if self.holds_back(partition, params.replica_id):
            return _data_of(held, params, item, 0, False)
        return _data_of(held, params, item, min(item.max_bytes, limit), wants_one)

    def _note(self, held: Log, partition: Partition, params: FetchParams, item: FetchItem, now_ms: int) -> bool:
        """Note how far the follower's log reaches; returns whether a watermark moved."""
        if held.is_offline or not held.log_start_offset <= item.fetch_offset <= held.log_end_offset:
            return False  # the read refuses it
        return self._isr_updates.note_fetch(
            partition,
            params.replica_id,
            fetch_offset=item.fetch_offset,
            log_start_offset=item.log_start_offset,
            now_ms=now_ms,
            broker_epoch=params.replica_epoch,
        )


def _data_of(held: Log, params: FetchParams, item: FetchItem, max_bytes: int, wants_one: bool) -> ReadResult:
    data = held.read(item.fetch_offset, max_bytes, isolation=params.isolation, min_one_message=wants_one)
    return ReadResult(_NONE, data, data.high_watermark, data.last_stable_offset, data.log_start_offset)


def _without_data(
    held: Log, diverging: EpochEnd | None = None, preferred_read_replica: int = NO_PREFERRED_REPLICA
) -> ReadResult:
    return ReadResult(
        _NONE,
        None,
        held.high_watermark,
        held.last_stable_offset,
        held.log_start_offset,
        diverging,
        preferred_read_replica,
    )
