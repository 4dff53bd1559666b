"""TransactionCoordinator: finds the shard that a transactional id belongs to, if this broker leads its partition.

Rules
1. An id lives in partition abs(hashCode(id)) % partitions of __transaction_state. The leader of that partition
   coordinates it; any other broker answers NOT_COORDINATOR.
2. A shard serves once its partition has been read, and everything read is committed; until then it answers
   COORDINATOR_LOAD_IN_PROGRESS.
3. Nothing here decides about transactions; `shard.py` and the pure `transaction.py` do.
4. A method with a `Completion` answers through it, once, on any thread (`runtime/completion.py`).

Threads: requests on handlers; loading on `transaction-log-manager-0`; periodic tasks (aborts, expiry) on the scheduler.
Source: Kafka's TransactionCoordinator, TransactionStateManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.runtime.job_thread import JobThread
from barnabas.broker.coordinators.runtime.led_shards import LedShards
from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.transactions.loader import load
from barnabas.broker.coordinators.transactions.shard import (
    Markers,
    ProducerResult,
    TransactionContext,
    TransactionShard,
)
from barnabas.broker.coordinators.transactions.transaction import (
    DEAD,
    TWO_PHASE_TIMEOUT_MS,
    Producer,
    TxnData,
    TxnState,
)
from barnabas.broker.metadata.metadata_cache import TRANSACTION_STATE_TOPIC
from barnabas.common.regex.pattern import PatternError, matching_names
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.scheduler import Task, TaskScheduler
    from barnabas.common.clock import Clock
    from barnabas.config import Config
    from barnabas.metrics.meters import AvgMax

log = logging.getLogger("barnabas.transaction")

FEATURE: Final = "transaction.version"
RETRY_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of ListTransactions; an empty one lets everything pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1  # running for longer than this; negative: any
    pattern: str | None = None  # of the whole transactional id, in RE2's syntax


class TransactionCoordinator:
    """The shards of the partitions of __transaction_state that this broker leads."""

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        scheduler: TaskScheduler,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        new_producer_id: Callable[[], int],
        markers: Markers,
    ) -> None:
        self._config = config  # fixed before start
        self._clock = clock  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._new_producer_id = new_producer_id  # fixed before start
        self._context = TransactionContext(
            replica_manager, clock, new_producer_id, self.transaction_version, markers,
            call_later=lambda wait_ms, job: scheduler.schedule_once("transaction-wait", job, wait_ms),
            retry_soon=self._retry_soon,
            busy_wait_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
            write_timeout_ms=config.request_timeout_ms, id_expiration_ms=config.transactional_id_expiration_ms,
        )  # fmt: skip
        self._shards = LedShards(
            TRANSACTION_STATE_TOPIC,
            JobThread("transaction-log-manager-0", "txn-log-0", log),
            log,
            replica_manager,
            make=lambda tp, leader_epoch: TransactionShard(tp, leader_epoch, self._context),
            load=self._load,
        )
        self._retries_lock = threading.Lock()  # comes after a shard's lock and before the scheduler's
        self._retries: Task | None = None  # guarded by: _retries_lock; None while no shard needs a retry
        self.load_time: AvgMax | None = None  # fixed before start; records the ms of each load

    # Life

    def start(self) -> None:
        """Start the thread and the periodic tasks."""
        self._shards.start()
        config, every = self._config, self._scheduler.schedule
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        every("transaction-abort", self.abort_timed_out, abort_ms, abort_ms)
        expire_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        every("transactionalId-expiration", self.remove_expired, expire_ms, expire_ms)

    def shutdown(self) -> None:
        """Close all shards and stop the thread."""
        self._shards.shutdown()

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their timeout; a periodic task."""
        self._shards.each(TransactionShard.abort_timed_out)

    def _retry_soon(self) -> None:
        """Retry from now on, until nothing is left to retry; called after each change that may need it."""
        if self._retries is not None:
            return
        with self._retries_lock:
            if self._retries is None:
                self._retries = self._scheduler.schedule("transaction-retry", self._retry, RETRY_MS, RETRY_MS)

    def _retry(self) -> None:
        """Retry writes that the log refused; a periodic task while there are any.

        Why it forgets itself first: a shard that needs it meanwhile is seen below, or finds no task and starts one.
        """
        with self._retries_lock:
            task, self._retries = self._retries, None
        assert task is not None
        self._shards.each(TransactionShard.retry)
        with self._retries_lock:
            if self._retries is None and any(shard.needs_retry for shard in self._shards.all()):
                self._retries = task
            else:
                task.cancel()

    def remove_expired(self) -> None:
        """Remove ids that were idle for too long; a periodic task."""
        self._shards.each(TransactionShard.remove_expired)

    # Leadership

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Load the transactions of a partition that this broker leads, now or in a new epoch."""
        self._shards.on_leadership(tp, leader_epoch)

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """Drop the transactions of a partition that this broker leads no more."""
        self._shards.on_resignation(tp, leader_epoch)

    def run_pending_jobs(self) -> None:
        """Run the loader thread's jobs on this thread, for tests without threads."""
        self._shards.jobs.run_pending()

    def _load(self, shard: TransactionShard, partition_log: Log) -> int:
        started_ms = self._clock.monotonic_ms()
        end_offset = load(shard, partition_log, self._config.transaction_state_log_load_buffer_size)
        took_ms = self._clock.monotonic_ms() - started_ms
        if self.load_time is not None:
            self.load_time.record(took_ms)
        log.info(
            "Loaded %d transactions of %s up to offset %d in %d ms",
            len(shard.transactions), shard.tp, end_offset, took_ms,
        )  # fmt: skip
        return end_offset

    # Where an id is

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of __transaction_state that coordinates the id."""
        count = self._metadata_cache.snapshot.partition_count(TRANSACTION_STATE_TOPIC)
        return partition_for(transactional_id, count or self._config.transaction_state_log_num_partitions)

    def _shard(self, transactional_id: str) -> TransactionShard | None:
        return self._shards.get(self.partition_for(transactional_id))

    def transaction_version(self) -> int:
        """Return the finalized level of transaction.version."""
        return self._metadata_cache.finalized_features.levels.get(FEATURE, 0)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: Producer | None,
        reply: Completion[ProducerResult],
        *,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> None:
        """Handle an InitProducerId; without a transactional id the producer is idempotent only."""
        if transactional_id is None:
            reply(self._idempotent_producer())
            return
        error = self._init_error(transactional_id, timeout_ms, is_two_phase, keeps_prepared)
        shard = self._shard(transactional_id)
        if error or shard is None:
            reply(ProducerResult(error or ErrorCode.NOT_COORDINATOR))
        else:
            timeout_ms = TWO_PHASE_TIMEOUT_MS if is_two_phase else timeout_ms
            shard.init_producer_id(transactional_id, timeout_ms, expected, reply)

    def _idempotent_producer(self) -> ProducerResult:
        try:
            return ProducerResult(ErrorCode.NONE, self._new_producer_id(), 0)
        except ApiError as error:
            return ProducerResult(error.code)

    def _init_error(
        self, transactional_id: str, timeout_ms: int, is_two_phase: bool, keeps_prepared: bool
    ) -> ErrorCode:
        config = self._config
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if is_two_phase and not config.transaction_two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if keeps_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
        if not is_two_phase and not 0 < timeout_ms <= config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        reply: Completion[ErrorCode],
    ) -> None:
        """Add partitions to a transaction."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            reply(_no_shard(transactional_id))
        else:
            shard.add_partitions(transactional_id, producer, partitions, client_version, reply)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check for each partition whether it is part of the transaction (KIP-890)."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            return dict.fromkeys(partitions, _no_shard(transactional_id))
        return shard.verify(transactional_id, producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        reply: Completion[ProducerResult],
    ) -> None:
        """Commit or abort a transaction; answered when the decision is committed."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            reply(ProducerResult(_no_shard(transactional_id)))
        else:
            shard.end(transactional_id, producer, is_commit, client_version, reply)

    # Reads

    def describe(self, transactional_id: str) -> TxnData:
        """Return the state of an id. Raises ApiError."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            raise ApiError(_no_shard(transactional_id))
        return shard.describe(transactional_id)

    def list(self, filters: Filters) -> list[tuple[str, TxnData]]:
        """Return the ids here that pass the filters.

        Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION.
        """
        now_ms = self._clock.wall_ms()
        found: list[tuple[str, TxnData]] = []
        for shard in self._shards.all():
            try:
                listed = shard.listed()
            except ApiError as error:
                if error.code == ErrorCode.NOT_COORDINATOR:
                    continue  # it moved just now
                raise
            found += [(transactional_id, data) for transactional_id, data in listed if _passes(filters, data, now_ms)]
        return _matching(filters.pattern, found) if filters.pattern else found

    def invariants(self) -> None:
        """Assert the invariants of every shard's transactions; for tests, debugging and simulation."""
        for shard in self._shards.all():
            shard.invariants()

    def look(self) -> Sequence[tuple[str, TxnData]]:
        """Return the ids here, for the live page, without a lock; a loading shard has what it has read so far."""
        shards = self._shards.all()
        return [(t.transactional_id, t.data) for shard in shards for t in list(shard.transactions.values())]

    def unwritten_ends(self) -> int:
        """Return the number of completed transactions whose end the log refused, for metrics."""
        return sum(shard.unwritten_ends for shard in self._shards.all())

    @property
    def has_jobs(self) -> bool:
        """Whether jobs wait for the loader's thread."""
        return not self._shards.jobs.empty()

    def writes(self) -> Sequence[CommittedWrites]:
        """Return the writes of each shard, to be read without a lock."""
        return [shard.writes for shard in self._shards.all()]

    def changing(self) -> set[str]:
        """Return the ids whose next state is being written, or whose markers are being sent; without a lock."""
        return {id_ for shard in self._shards.all() for id_ in shard.changing()}

    def count(self, states: Iterable[TxnState]) -> int:
        """Return the number of transactions in these states, for metrics."""
        return sum(shard.count(state) for shard in self._shards.all() for state in states)


def _passes(filters: Filters, data: TxnData, now_ms: int) -> bool:
    return (
        data.state is not DEAD
        and (not filters.states or data.state.value in filters.states)
        and (not filters.producer_ids or data.producer_id in filters.producer_ids)
        and (filters.duration_ms < 0 or now_ms - data.start_ms > filters.duration_ms)
    )


def _matching(pattern: str, found: list[tuple[str, TxnData]]) -> list[tuple[str, TxnData]]:
    """Return the ids that match as a whole, without a lock. Raises ApiError(INVALID_REGULAR_EXPRESSION)."""
    try:
        ids = set(matching_names(pattern, [transactional_id for transactional_id, _ in found]))
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return [(transactional_id, data) for transactional_id, data in found if transactional_id in ids]


def _no_shard(transactional_id: str) -> ErrorCode:
    return ErrorCode.NOT_COORDINATOR if transactional_id else ErrorCode.INVALID_REQUEST
