"""TransactionCoordinator: which shard a transactional id belongs to, and whether this broker has it.

Rules
1. An id lives in partition abs(hashCode(id)) % partitions of __transaction_state; the leader of that partition
   coordinates it. Nobody else answers for it (NOT_COORDINATOR).
2. A shard serves once its partition has been read, and what was read is committed (COORDINATOR_LOAD_IN_PROGRESS until
   then).
3. Nothing here decides about transactions: `transaction_shard.py` and the pure part below it do.

Threads: requests on handlers; loading, unloading and what time brings (abortion, expiry) on
`transaction-log-manager-0` and the scheduler.
Source: Kafka's TransactionCoordinator, TransactionStateManager (4.3).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.group_coordinator import partition_for
from barnabas.broker.coordinators.log_replay import describe
from barnabas.broker.coordinators.re2 import Alphabet, RegexError, compile_regex
from barnabas.broker.coordinators.shard_core import ShardState
from barnabas.broker.coordinators.transaction import DEAD, Producer, TxnData, TxnState
from barnabas.broker.coordinators.transaction_loader import load
from barnabas.broker.coordinators.transaction_shard import (
    Given,
    Markers,
    ReplyError,
    ReplyGiven,
    TransactionContext,
    TransactionShard,
)
from barnabas.broker.metadata_cache import TRANSACTION_STATE_TOPIC
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.common.clock import Clock
    from barnabas.metrics.meters import AvgMax

log = logging.getLogger("barnabas.transaction")

FEATURE: Final = "transaction.version"
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1  # a two-phase transaction never times out
COMMIT_WAIT_MS: Final = 30_000
RETRY_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Filters:
    """What ListTransactions looks for; empty ones let everything pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1  # older than this; negative: any
    pattern: str | None = None  # of the whole transactional id, in RE2's syntax


class TransactionCoordinator:
    """See the module."""

    def __init__(
        self,
        *,
        config: Any,
        clock: Clock,
        scheduler: TaskScheduler,
        replica_manager: Any,
        metadata_cache: MetadataCache,
        new_producer_id: Callable[[], int],
        markers: Markers,
    ) -> None:
        self._config = config  # fixed before start
        self._clock = clock  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._new_producer_id = new_producer_id  # fixed before start
        self._context = TransactionContext(
            replica_manager, clock, new_producer_id, self.transaction_version, markers,
            call_later=lambda wait_ms, job: scheduler.schedule_once("transaction-wait", job, wait_ms),
            busy_wait_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
            write_timeout_ms=config.request_timeout_ms, id_expiration_ms=config.transactional_id_expiration_ms,
        )  # fmt: skip
        self._lock = threading.Lock()  # serialises changes of _shards
        self._shards: dict[int, TransactionShard] = {}  # guarded by: _lock (lookups need none); by partition
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.load_time: AvgMax | None = None  # fixed before start; takes the ms of each load
        self._thread = ServiceThread("transaction-log-manager-0", "txn-log-0", self._work)

    # Life

    def start(self) -> None:
        """Start the thread and the periodic tasks."""
        self._thread.start()
        config, every = self._config, self._scheduler.schedule
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        every("transaction-abort", self.abort_timed_out, abort_ms, abort_ms)
        expire_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        every("transactionalId-expiration", self.remove_expired, expire_ms, expire_ms)
        every("transaction-retry", self.retry, RETRY_MS, RETRY_MS)

    def shutdown(self) -> None:
        """Close all shards and stop the thread."""
        with self._lock:
            shards, self._shards = list(self._shards.values()), {}
        for shard in shards:
            shard.close()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def abort_timed_out(self) -> None:
        """Abort what has been open for longer than its producer allowed itself; a periodic task."""
        self._each(TransactionShard.abort_timed_out)

    def retry(self) -> None:
        """Write again what the log refused; a periodic task."""
        self._each(TransactionShard.retry)

    def remove_expired(self) -> None:
        """Forget ids that nobody uses any more; a periodic task."""
        self._each(TransactionShard.remove_expired)

    def _each(self, do: Callable[[TransactionShard], None]) -> None:
        """Have every shard do something that no request waits for; one that cannot is offline, alone."""
        for shard in list(self._shards.values()):
            try:
                do(shard)
            except Exception as error:
                shard.fail(describe(error))

    # Leadership

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads the partition (in a new epoch): load its transactions."""
        if tp.topic != TRANSACTION_STATE_TOPIC:
            return
        with self._lock:
            before = self._shards.get(tp.partition)
            if before is not None and before.leader_epoch >= leader_epoch:
                return
            shard = self._shards[tp.partition] = TransactionShard(tp, leader_epoch, self._context)
        if before is not None:
            before.close()
        self._jobs.put(partial(self._load, shard))

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """This broker does not lead the partition any more: forget its transactions."""
        if tp.topic != TRANSACTION_STATE_TOPIC:
            return
        with self._lock:
            shard = self._shards.get(tp.partition)
            if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
                return
            del self._shards[tp.partition]
        log.info("Unloading the transactions of %s", tp)
        shard.close()

    def run_pending_jobs(self) -> None:
        """Do on this thread what waits for the loader thread, for tests without threads."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job()

    def _load(self, shard: TransactionShard) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            partition_log = self._replica_manager.partition(shard.tp).log
            end_offset = load(shard, partition_log, self._config.transaction_state_log_load_buffer_size)
        except Exception as error:  # Why every kind: nothing in the log may end the process, or keep other shards away.
            shard.fail(describe(error))
            return
        if self.load_time is not None:
            self.load_time.record(self._clock.monotonic_ms() - started_ms)
        log.info(
            "Loaded %d transactions of %s up to offset %d in %d ms", len(shard.transactions), shard.tp, end_offset,
            self._clock.monotonic_ms() - started_ms,
        )  # fmt: skip
        self._activate_when_committed(shard, end_offset, ErrorCode.NONE)

    def _activate_when_committed(self, shard: TransactionShard, end_offset: int, _error: ErrorCode) -> None:
        """Let a loaded shard serve once nothing that it knows can be lost any more."""
        if shard.state is not ShardState.LOADING:
            return
        partition = self._replica_manager.find(shard.tp)
        if partition is None or not partition.is_leader:
            shard.close()
        elif partition.high_watermark >= end_offset:
            try:
                shard.activate()
            except Exception as error:
                shard.fail(describe(error))
        else:
            again = partial(self._activate_when_committed, shard, end_offset)
            self._replica_manager.when_committed(
                shard.tp, end_offset, COMMIT_WAIT_MS, lambda error: self._jobs.put(partial(again, error))
            )

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a job of the transaction coordinator failed")

    # Where an id is

    def partition_for(self, transactional_id: str) -> int:
        """The partition of __transaction_state that coordinates the id."""
        count = self._metadata_cache.snapshot.partition_count(TRANSACTION_STATE_TOPIC)
        return partition_for(transactional_id, count or self._config.transaction_state_log_num_partitions)

    def _shard(self, transactional_id: str) -> TransactionShard | None:
        return self._shards.get(self.partition_for(transactional_id))

    def transaction_version(self) -> int:
        """The level of transaction.version that the cluster has agreed on."""
        return self._metadata_cache.finalized_features.levels.get(FEATURE, 0)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: Producer | None,
        reply: ReplyGiven,
        *,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> None:
        """Handle an InitProducerId; `reply(Given)` is called once, on any thread."""
        if transactional_id is None:
            reply(self._idempotent_producer())
            return
        error = self._init_error(transactional_id, timeout_ms, is_two_phase, keeps_prepared)
        shard = self._shard(transactional_id)
        if error or shard is None:
            reply(Given(error or ErrorCode.NOT_COORDINATOR))
        else:
            timeout_ms = TWO_PHASE_TIMEOUT_MS if is_two_phase else timeout_ms
            shard.init_producer_id(transactional_id, timeout_ms, expected, reply)

    def _idempotent_producer(self) -> Given:
        try:
            return Given(ErrorCode.NONE, self._new_producer_id(), 0)
        except ApiError as error:
            return Given(error.code)

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
        reply: ReplyError,
    ) -> None:
        """Add partitions to a transaction; `reply(error)` is called once, on any thread."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            reply(_no_shard(transactional_id))
        else:
            shard.add_partitions(transactional_id, producer, partitions, client_version, reply)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Say of each partition whether it is part of the transaction (KIP-890)."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            return dict.fromkeys(partitions, _no_shard(transactional_id))
        return shard.verify(transactional_id, producer, partitions)

    def end(
        self, transactional_id: str, producer: Producer, is_commit: bool, client_version: int, reply: ReplyGiven
    ) -> None:
        """Commit or abort; `reply(Given)` is called once, on any thread, when it is sure how it will end."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            reply(Given(_no_shard(transactional_id)))
        else:
            shard.end(transactional_id, producer, is_commit, client_version, reply)

    # Looking

    def describe(self, transactional_id: str) -> TxnData:
        """The state of an id; raises ApiError."""
        shard = self._shard(transactional_id)
        if not transactional_id or shard is None:
            raise ApiError(_no_shard(transactional_id))
        return shard.look(transactional_id)

    def list(self, filters: Filters) -> list[tuple[str, TxnData]]:
        """The ids here that pass the filters; raises COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION."""
        now_ms = self._clock.wall_ms()
        found: list[tuple[str, TxnData]] = []
        for shard in list(self._shards.values()):
            try:
                listed = shard.listed()
            except ApiError as error:
                if error.code == ErrorCode.NOT_COORDINATOR:
                    continue  # it moved just now
                raise
            found += [(transactional_id, data) for transactional_id, data in listed if _passes(filters, data, now_ms)]
        return _matching(filters.pattern, found) if filters.pattern else found

    def look(self) -> Sequence[tuple[str, TxnData]]:
        """The ids that are known here now, for the live page: no shard is held, one that loads tells what it has."""
        shards = list(self._shards.values())
        return [(t.transactional_id, t.data) for shard in shards for t in list(shard.transactions.values())]

    def unwritten_ends(self) -> int:
        """How many transactions have all their markers, but the log refused their end, for metrics."""
        return sum(shard.unwritten_ends for shard in list(self._shards.values()))

    def count(self, states: Iterable[TxnState]) -> int:
        """How many transactions here are in these states, for metrics."""
        return sum(shard.count(state) for shard in list(self._shards.values()) for state in states)


def _passes(filters: Filters, data: TxnData, now_ms: int) -> bool:
    return (
        data.state is not DEAD
        and (not filters.states or data.state.value in filters.states)
        and (not filters.producer_ids or data.producer_id in filters.producer_ids)
        and (filters.duration_ms < 0 or now_ms - data.start_ms > filters.duration_ms)
    )


def _matching(pattern: str, found: list[tuple[str, TxnData]]) -> list[tuple[str, TxnData]]:
    """Those whose whole id matches; raises INVALID_REGULAR_EXPRESSION. No lock is held."""
    alphabet = Alphabet({char for transactional_id, _ in found for char in transactional_id})
    try:
        regex = compile_regex(pattern, alphabet)
        return [(transactional_id, data) for transactional_id, data in found if regex.matches(transactional_id)]
    except RegexError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def _no_shard(transactional_id: str) -> ErrorCode:
    return ErrorCode.NOT_COORDINATOR if transactional_id else ErrorCode.INVALID_REQUEST
