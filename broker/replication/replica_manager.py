"""ReplicaManager: appends to hosted partitions, and the parts that serve them.

Each part has one task: `hosted` finds partitions, `reader` reads them for fetches, `isr_updates` changes their ISRs,
`quotas` throttles their replication, `expirations` counts waits that ran out of time.

Rules
1. Hosted partitions change only by the controller's push (`leadership.py`).
2. An append reports what moved. The caller wakes the purgatories, holding no lock (`complete_delayed`): a handler
   through `request.moved`, other callers directly.
3. An error of one partition concerns that partition alone: methods take one partition and raise ApiError.

Threads: any.
Source: Kafka's ReplicaManager (4.3), without its callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.monitoring.topic_stats import BrokerTopicStats
from barnabas.broker.replication.delayed.delayed_produce import DelayedAppend
from barnabas.broker.replication.delayed.expirations import Expirations
from barnabas.broker.replication.hosted_partitions import HostedPartitions
from barnabas.broker.replication.idle_partitions import IdlePartitions
from barnabas.broker.replication.in_sync.isr_updates import IsrUpdates
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reading import FetchReader
from barnabas.broker.replication.replica_selector import make_selector
from barnabas.broker.replication.replication_quota import ReplicationQuotas
from barnabas.broker.storage.log.log_types import (
    AppendOrigin,
    InvalidOffsetOrSequenceError,
    RecordValidationError,
)
from barnabas.common.logs import LogLimit
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.purgatory import Purgatories
    from barnabas.broker.storage.log.log_types import LogAppendInfo, RecordError
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.config import Config
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.replication")

ACKS_ALL: Final = -1

# Errors of normal operation: not counted as failed produces.
EXPECTED_APPEND_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# A response with one of these does not name the log start offset (ReplicaManager.appendRecordsToLeader, Kafka 4.3).
WITHOUT_START: Final = TOO_LARGE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@dataclass(slots=True)
class FailedAppend:
    """The error of one partition's append, as a response names it; the log start offset is -1 where it does not."""

    error: ErrorCode
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Iterable[RecordError] = ()


class ReplicaManager:
    """The partitions of a broker and the parts that serve them; see the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: Config,
        clock: Clock,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        purgatories: Purgatories,
        registry: Registry,
    ) -> None:
        # Fixed before start.
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.log_manager = log_manager
        self.metadata_cache = metadata_cache
        self.purgatories = purgatories
        self.registry = registry
        self.stats = BrokerTopicStats(registry)
        self.quotas = ReplicationQuotas(config, clock)
        self._lines = LogLimit(log, clock.monotonic_ns)
        self.hosted = HostedPartitions(metadata_cache)
        self.idle_partitions = IdlePartitions(self.hosted, self.stats)
        self.isr_updates = IsrUpdates(registry, self.complete_delayed)
        self.expirations = Expirations(registry)
        self.reader = FetchReader(
            self.hosted,
            self.stats,
            self.isr_updates,
            self.quotas.leader,
            make_selector(config.replica_selector_class, metadata_cache, clock),
            clock,
        )
        self._register_gauges()

    # Finding partitions: the names under which most callers know them

    def partition(self, tp: TopicPartition) -> Partition:
        """The partition; raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION."""
        return self.hosted.get(tp)

    def find(self, tp: TopicPartition) -> Partition | None:
        """The partition, or None if this broker does not hold it, or its disk failed."""
        return self.hosted.find(tp)

    def is_in_sync(self, tp: TopicPartition) -> bool:
        """Whether every replica of a partition is in its ISR, as far as this broker knows.

        Why the leader's role too: a LeaderAndIsr push, which lets a new replica fetch, comes before UpdateMetadata.
        """
        partition = self.hosted.find(tp)
        role = None if partition is None else partition.role
        if role is not None and role.is_leader and not role.isr.issuperset(role.replicas):
            return False
        return self.metadata_cache.snapshot.is_in_sync(tp)

    def partitions(self) -> list[Partition]:
        """Every partition whose disk works."""
        return self.hosted.online()

    # Appending

    def append_one(
        self,
        tp: TopicPartition,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> tuple[LogAppendInfo, Partition]:
        """Append whole batches to a partition this broker leads; raises ApiError. The caller wakes `tp`'s waiters."""
        try:
            partition = self.hosted.get(tp)
            info, _moved = partition.append_as_leader(
                records,
                required_acks=required_acks,
                origin=origin,
                transaction_version=transaction_version,
                guard=guard,
            )
        except ApiError as error:
            self._count_failed_append(tp, error, len(records))
            if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._lines.admits(
                logging.INFO, "batches out of order"
            ):
                log.info("%s", error.message)
            raise
        self.stats.topic(tp.topic).appended(info.size_in_bytes, info.record_count)
        return info, partition

    def failed_append(self, tp: TopicPartition, error: ApiError) -> FailedAppend:
        """The result for a partition whose append raised `error`."""
        partition = self.hosted.find(tp)
        start = -1
        if error.code not in WITHOUT_START and partition is not None and partition.log is not None:
            start = partition.log.log_start_offset
        return FailedAppend(error.code, start, error.message, getattr(error, "record_errors", ()))

    def append_internal(
        self,
        tp: TopicPartition,
        batch: bytes | bytearray | memoryview,
        timeout_ms: int,
        on_done: Callable[[ErrorCode, int], None],
        *,
        moved: set[TopicPartition] | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> int:
        """Append a coordinator's batch with acks=all; returns its first offset, or raises ApiError at once.

        `on_done(error, first offset)` is called once, when the batch is on all in-sync replicas or has failed. That may
        be before this returns; no lock of a partition or log is held then. A caller that holds a lock of its own passes
        `moved`: `tp` is added to it, and the caller wakes its waiters after releasing the lock. Without `moved` they
        are woken here.
        """
        info, partition = self.append_one(
            tp,
            memoryview(bytearray(batch)),
            required_acks=ACKS_ALL,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
            guard=guard,
        )
        first = info.first_offset
        if moved is None:
            self.complete_delayed(tp)
        else:
            moved.add(tp)
        if partition.has_reached(info.last_offset + 1) == (True, ErrorCode.NONE):
            on_done(ErrorCode.NONE, first)
            return first
        self.when_committed(tp, info.last_offset + 1, timeout_ms, lambda error: on_done(error, first))
        return first

    def when_committed(
        self, tp: TopicPartition, offset: int, timeout_ms: int, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Call `on_done(error)` once: when every record below `offset` is on all in-sync replicas, or on timeout."""
        wait = DelayedAppend(self.hosted, self.expirations, tp, offset, timeout_ms, on_done)
        self.purgatories.produce.try_complete_else_watch(wait, [tp])

    def complete_delayed(self, tp: TopicPartition) -> None:
        """Wake the operations that wait for this partition; the caller holds no lock of a partition or log."""
        self.complete_all_delayed((tp,))

    def complete_all_delayed(self, tps: Collection[TopicPartition]) -> None:
        """The same for several: one response tells of all, and each operation is tried once."""
        try:
            self._wake_idle(tps)
        except Exception:  # Why: a bug in a session must not hold back what watches the partitions
            log.exception("waking what is idle failed")
        purgatories = self.purgatories
        purgatories.produce.check_all(tps)
        purgatories.fetch.check_all(tps)
        purgatories.delete_records.check_all(tps)
        purgatories.share_fetch.check_all(tps)

    def _wake_idle(self, tps: Iterable[TopicPartition]) -> None:
        """Read these partitions again in the sessions where they are idle; try their waiting requests once."""
        idle_partitions = self.idle_partitions
        if not idle_partitions.has_any():
            return
        idle = {tp: None for tp in tps if idle_partitions.has(tp)}  # Why no list: one may be named often
        if not idle:  # Why first: it is so after nearly every append
            return
        sessions: dict[Hashable, None] = {}  # Why no set: the order must not depend on addresses (`tests/simulation`)
        for tp in idle:
            sessions.update(dict.fromkeys(idle_partitions.wake(tp)))
        self.purgatories.fetch.check_all(sessions)

    def maybe_shrink_isrs(self) -> None:
        """Propose smaller ISRs where followers lag; a periodic task."""
        self.isr_updates.maybe_shrink(self.hosted.led(), self.idle_partitions.note_fetches)

    # Metrics

    def _count_failed_append(self, tp: TopicPartition, error: ApiError, size: int) -> None:
        code, stats = error.code, self.stats
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # Why, as in Kafka: clients can invent names for ever, and each would get series
        if code == ErrorCode.CORRUPT_MESSAGE:
            stats.invalid_crc()
        elif isinstance(error, InvalidOffsetOrSequenceError):
            stats.invalid_offset_or_sequence()
        elif isinstance(error, RecordValidationError):
            stats.records_without_key(error.keyless)
        is_failure = code not in EXPECTED_APPEND_ERRORS
        stats.topic(tp.topic).refused(size if code in TOO_LARGE else 0, is_failure=is_failure)

    def _register_gauges(self) -> None:
        gauges: list[tuple[catalogue.Metric, Callable[[Partition], bool]]] = [
            (catalogue.PARTITION_COUNT, lambda p: True),
            (catalogue.LEADER_COUNT, lambda p: p.is_leader),
            (catalogue.UNDER_REPLICATED_PARTITIONS, lambda p: p.role.is_under_replicated),
            (catalogue.UNDER_MIN_ISR_PARTITION_COUNT, Partition.is_under_min_isr),
            (catalogue.AT_MIN_ISR_PARTITION_COUNT, Partition.is_at_min_isr),
            (catalogue.REASSIGNING_PARTITIONS, lambda p: p.is_leader and p.role.is_reassigning),
        ]
        for row, test in gauges:
            self.registry.gauge(row, partial(self._count, test))
        self.registry.gauge(catalogue.OFFLINE_REPLICA_COUNT, self.hosted.offline_count)
        self.registry.gauge(catalogue.LEADER_REPLICATION_BYTE_RATE, self.quotas.leader.byte_rate)
        self.registry.gauge(catalogue.FOLLOWER_REPLICATION_BYTE_RATE, self.quotas.follower.byte_rate)

    def _count(self, test: Callable[[Partition], bool]) -> int:
        return sum(map(test, self.hosted.online()))
