"""ReplicaManager: every partition this broker holds, and what is done with them as a whole.

Rules
1. `_partitions` changes only by the controller's push (`leadership.py`), under `_lock`; looking up takes no lock.
2. Appends return what moved; whoever called wakes the purgatories, holding no lock (`complete_delayed`): a handler
   through `request.moved`, others directly.
3. Errors of one partition are that partition's: everything here raises ApiError per partition.

Threads: any.
Source: Kafka's ReplicaManager (4.3), without its callbacks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.broker.replication.delayed_produce import DelayedAppend
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_selector import make_selector
from barnabas.broker.replication.replication_quota import ReplicationQuotas
from barnabas.broker.storage.log_types import AppendOrigin
from barnabas.broker.topic_stats import BYTES_REJECTED, INVALID_CRC, INVALID_SEQUENCE, BrokerTopicStats
from barnabas.common.ids import ZERO_UUID
from barnabas.metrics import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Purgatories
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.replication.role import IsrOutcome, IsrProposal
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.storage.log_types import LogAppendInfo, RecordError
    from barnabas.broker.storage.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.replication")

ACKS_ALL: Final = -1
NO_OFFSET: Final = -1

# Errors of an append that are part of normal life: not counted as failed produces.
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
# With these an answer does not tell where the log starts (ReplicaManager.appendRecordsToLeader, Kafka 4.3).
START_UNTOLD: Final = TOO_LARGE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class LeadershipListener(Protocol):
    """Who wants to know which partitions this broker leads (the coordinators); called holding no lock."""

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads `tp` from `leader_epoch` on."""

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """This broker no longer leads `tp`; None: it no longer holds it at all."""


class IsrChanges(Protocol):
    """The way of a proposed ISR to the controller and back."""

    def submit(
        self, tp: TopicPartition, topic_id: bytes, proposal: IsrProposal, on_done: Callable[[IsrOutcome], None]
    ) -> None:
        """Send the proposal; `on_done` is called once, on another thread, holding no lock."""


@dataclass(slots=True)
class AppendResult:
    """What became of one partition's append; `info` is None with an error."""

    error: ErrorCode
    info: LogAppendInfo | None = None
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Iterable[RecordError] = ()


class ReplicaManager:
    """See the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: Any,
        clock: Clock,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        purgatories: Purgatories,
        registry: Registry,
    ) -> None:
        self.broker_id = broker_id  # fixed before start
        self.config = config  # fixed before start
        self.clock = clock  # fixed before start
        self.log_manager = log_manager  # fixed before start
        self.metadata_cache = metadata_cache  # fixed before start
        self.purgatories = purgatories  # fixed before start
        self.registry = registry  # fixed before start
        self.stats = BrokerTopicStats(registry)  # fixed before start
        self.listeners: list[LeadershipListener] = []  # fixed before start
        self.isr_changes: IsrChanges | None = None  # fixed before start; None only where nobody else replicates
        # Fixed before start; None: consumers always read from the leader.
        self.replica_selector = make_selector(config.replica_selector_class, metadata_cache, clock)
        self.quotas = ReplicationQuotas(config, clock)  # fixed before start
        self._lock = threading.Lock()  # serialises changes of _partitions and _offline
        self._partitions: dict[TopicPartition, Partition] = {}  # guarded by: _lock (lookups need none)
        self._offline: set[TopicPartition] = set()  # guarded by: _lock; replicas whose log directory failed
        self._isr_shrinks = registry.meter(catalogue.ISR_SHRINKS_PER_SEC)
        self._isr_expands = registry.meter(catalogue.ISR_EXPANDS_PER_SEC)
        self._isr_failures = registry.meter(catalogue.FAILED_ISR_UPDATES_PER_SEC)
        self._fetch_expirations = {
            kind: registry.meter(catalogue.DELAYED_FETCH_EXPIRES_PER_SEC, fetcherType=kind)
            for kind in ("follower", "consumer")
        }
        self._produce_expirations = registry.meter(catalogue.DELAYED_PRODUCE_EXPIRES_PER_SEC)
        self._register_gauges()

    # Looking up

    def partition(self, tp: TopicPartition) -> Partition:
        """The partition; raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self._partitions.get(tp)
        if partition is not None:
            return partition
        if tp in self._offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.metadata_cache.snapshot.partition(tp) is not None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find(self, tp: TopicPartition) -> Partition | None:
        """The partition, or None if this broker does not hold it (or its disk failed)."""
        return self._partitions.get(tp)

    def partitions(self) -> list[Partition]:
        """Every partition that is online here."""
        return list(self._partitions.values())

    def led_partitions(self) -> list[Partition]:
        """Every partition that this broker leads."""
        return [p for p in self.partitions() if p.is_leader]

    def check_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        """Raise INCONSISTENT_TOPIC_ID if a client means another topic of the same name."""
        if topic_id not in (ZERO_UUID, partition.topic_id) and partition.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)

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
            partition = self._partitions.get(tp) or self.partition(tp)
            info, _moved = partition.append_as_leader(
                records,
                required_acks=required_acks,
                origin=origin,
                transaction_version=transaction_version,
                guard=guard,
            )
        except ApiError as error:
            self._count_failed_append(tp, error.code, len(records))
            if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                log.info("%s", error.message)
            raise
        self.stats.topic(tp.topic).appended(info.size_in_bytes, info.record_count)
        return info, partition

    def append(
        self,
        entries: Mapping[TopicPartition, memoryview],
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> dict[TopicPartition, AppendResult]:
        """Append to several partitions; the caller wakes the waiters of those without an error."""
        results = {}
        for tp, records in entries.items():
            try:
                info, _ = self.append_one(tp, records, required_acks=required_acks, origin=origin)
                results[tp] = AppendResult(ErrorCode.NONE, info, info.log_start_offset)
            except ApiError as error:
                results[tp] = self.failed_append(tp, error)
        return results

    def failed_append(self, tp: TopicPartition, error: ApiError) -> AppendResult:
        """The result for a partition whose append raised `error`; most errors tell where the log starts."""
        partition = self._partitions.get(tp)
        start = -1
        if error.code not in START_UNTOLD and partition is not None and partition.log is not None:
            start = partition.log.log_start_offset
        return AppendResult(error.code, None, start, error.message, getattr(error, "record_errors", ()))

    def append_internal(
        self,
        tp: TopicPartition,
        batch: bytes | bytearray | memoryview,
        timeout_ms: int,
        on_done: Callable[[ErrorCode, int], None],
        *,
        moved: set[Any] | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> int:
        """Append a coordinator's batch with acks=all; returns its first offset, or raises ApiError at once.

        `on_done(error, first offset)` is called once when the batch is on all in-sync replicas, or has failed: possibly
        before this returns, always holding no lock of a partition or log. A caller that holds a lock of its own passes
        `moved`, and wakes the waiters of what was added to it once it has let go; without it they are woken here.
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
        wait = DelayedAppend(self, tp, info.last_offset + 1, timeout_ms, lambda error: on_done(error, first))
        self.purgatories.produce.try_complete_else_watch(wait, [tp])
        return first

    def when_committed(
        self, tp: TopicPartition, offset: int, timeout_ms: int, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Call `on_done(error)` once, when everything below `offset` is on all in-sync replicas, or the time is up."""
        wait = DelayedAppend(self, tp, offset, timeout_ms, on_done)
        self.purgatories.produce.try_complete_else_watch(wait, [tp])

    def complete_delayed(self, tp: TopicPartition) -> None:
        """Wake whoever waits for this partition; hold no lock of a partition or a log."""
        purgatories = self.purgatories
        purgatories.produce.check_and_complete(tp)
        purgatories.fetch.check_and_complete(tp)
        purgatories.delete_records.check_and_complete(tp)

    # Followers and the ISR

    def update_follower(
        self, partition: Partition, follower_id: int, *, fetch_offset: int, log_start_offset: int,
        leader_log_end_offset: int, broker_epoch: int,
    ) -> bool:  # fmt: skip
        """Take note of a follower's fetch, propose a larger ISR if it may join; returns whether a watermark moved."""
        moved, proposal = partition.update_follower(
            follower_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_log_end_offset=leader_log_end_offset,
            broker_epoch=broker_epoch,
        )
        if proposal is not None:
            self._submit(partition, proposal)
        return moved

    def require_current_epoch(self, follower_id: int, broker_epoch: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER for a fetch of a follower's earlier incarnation."""
        if self.metadata_cache.snapshot.is_outdated(follower_id, broker_epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def holds_back(self, partition: Partition, follower_id: int) -> bool:
        """Whether a throttle lets us give this follower nothing now; one in the ISR is never held back."""
        return follower_id not in partition.isr and self.quotas.leader.holds_back(partition.tp)

    def maybe_shrink_isrs(self) -> None:
        """Propose smaller ISRs where followers lag; a periodic task."""
        for partition in self.led_partitions():
            proposal = partition.maybe_shrink_isr()
            if proposal is not None:
                log.info("shrinking ISR of %s to %s", partition.tp, [broker for broker, _ in proposal.isr])
                self._submit(partition, proposal)

    def _submit(self, partition: Partition, proposal: IsrProposal) -> None:
        assert self.isr_changes is not None, "a partition with followers has a way to change its ISR"
        on_done = partial(self._on_isr_outcome, partition, proposal)
        self.isr_changes.submit(partition.tp, partition.topic_id, proposal, on_done)

    def _on_isr_outcome(self, partition: Partition, proposal: IsrProposal, outcome: IsrOutcome) -> None:
        moved, again = partition.finish_isr_change(proposal, outcome)
        if outcome.error != ErrorCode.NONE:
            self._isr_failures.mark()
            log.info("ISR change of %s refused: %s", partition.tp, outcome.error.name)
        else:
            (self._isr_expands if proposal.is_expansion else self._isr_shrinks).mark()
        if again is not None:
            self._submit(partition, again)
        if moved:
            self.complete_delayed(partition.tp)

    # Changes of what this broker holds (leadership.py only)

    def add(self, partition: Partition) -> None:
        """Hold a partition, or hold it again after its disk came back."""
        with self._lock:
            self._partitions[partition.tp] = partition
            self._offline.discard(partition.tp)

    def remove(self, tp: TopicPartition) -> Partition | None:
        """Hold it no more."""
        with self._lock:
            self._offline.discard(tp)
            return self._partitions.pop(tp, None)

    def mark_offline(self, tp: TopicPartition) -> None:
        """Its log directory failed: every use is KAFKA_STORAGE_ERROR from now on."""
        with self._lock:
            self._partitions.pop(tp, None)
            self._offline.add(tp)

    # Metrics

    def count_produce_expiration(self, tp: TopicPartition) -> None:
        """An acks=all wait for this partition has run out of time."""
        self._produce_expirations.mark()
        self.registry.meter(catalogue.DELAYED_PRODUCE_EXPIRES_PER_SEC, topic=tp.topic, partition=tp.partition).mark()

    def count_fetch_expiration(self, *, is_follower: bool) -> None:
        """A fetch has waited for its full time."""
        self._fetch_expirations["follower" if is_follower else "consumer"].mark()

    def _count_failed_append(self, tp: TopicPartition, error: ErrorCode, size: int) -> None:
        kind: int | None = None
        n = 1
        if error in TOO_LARGE:
            kind, n = BYTES_REJECTED, size
        elif error == ErrorCode.CORRUPT_MESSAGE:
            kind = INVALID_CRC
        elif error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            kind = INVALID_SEQUENCE
        self.stats.topic(tp.topic).refused(kind, n, is_failure=error not in EXPECTED_APPEND_ERRORS)

    def _register_gauges(self) -> None:
        gauges: list[tuple[Any, Callable[[Partition], bool]]] = [
            (catalogue.PARTITION_COUNT, lambda p: True),
            (catalogue.LEADER_COUNT, lambda p: p.is_leader),
            (catalogue.UNDER_REPLICATED_PARTITIONS, Partition.is_under_replicated),
            (catalogue.UNDER_MIN_ISR_PARTITION_COUNT, Partition.is_under_min_isr),
            (catalogue.AT_MIN_ISR_PARTITION_COUNT, Partition.is_at_min_isr),
            (catalogue.REASSIGNING_PARTITIONS, lambda p: p.is_leader and p.is_reassigning()),
        ]
        for row, test in gauges:
            self.registry.gauge(row, partial(self._count, test))
        self.registry.gauge(catalogue.OFFLINE_REPLICA_COUNT, lambda: len(self._offline))
        self.registry.gauge(catalogue.LEADER_REPLICATION_BYTE_RATE, self.quotas.leader.byte_rate)
        self.registry.gauge(catalogue.FOLLOWER_REPLICATION_BYTE_RATE, self.quotas.follower.byte_rate)

    def _count(self, test: Callable[[Partition], bool]) -> int:
        return sum(map(test, self.partitions()))
