"""A shard: the transactions of one partition of __transaction_state.

Rules
1. Everything is guarded by the shard's lock; the pure part decides (`transaction.py`).
2. Lock order: a shard's, then a partition's, then a log's. No answer is delivered and no request is woken while the
   shard's lock is held.
3. A change takes effect when its record is committed, in log order. A change whose write timed out stays pending: it is
   in the log, so it takes effect when the high watermark passes it, or the next leader decides.
4. A shard serves once everything that it loaded is committed: a marker must never follow from a record that the next
   leader might not have. Each leader epoch loads again, since the epoch fences the shard's markers.
5. A prepared transaction is always completed: its markers are sent until every partition has one. Then its end is
   written, and retried until the log takes it.
6. A request that meets a pending change waits for it, for `busy_wait_ms` at most (`waiters.py`).

`runtime/shard_life.py` has the states of a shard.

Threads: any; loading on `transaction-log-manager-0`.
Source: Kafka's TransactionStateManager, TransactionCoordinator (4.3).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites, LogWriter
from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.broker.coordinators.runtime.shard_life import ShardLife, ShardState
from barnabas.broker.coordinators.transactions import records
from barnabas.broker.coordinators.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARE_COMMIT,
    PREPARED,
    Producer,
    Transaction,
    TxnData,
    TxnState,
)
from barnabas.broker.coordinators.transactions.waiters import Waiter, Waiters
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.transaction")

T = TypeVar("T")

EXPIRED_PER_BATCH: Final = 200  # so that a batch of tombstones stays far below any max.message.bytes


class ProducerResult(NamedTuple):
    """The producer id and epoch with which a request ends; -1 with an error."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, eq=False)
class PendingCompletion:
    """A prepared transaction whose markers are being written, with the content of the markers. Known by identity."""

    shard: TransactionShard
    transactional_id: str
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


class Markers(Protocol):
    """Sends markers to the leaders of their partitions."""

    def send(self, completion: PendingCompletion, partitions: Collection[TopicPartition]) -> None:
        """Have markers written; calls `completion.shard.marked` with the partitions that have one."""


@dataclass(slots=True)
class TransactionContext:
    """What all shards of a broker share."""

    writer: LogWriter
    clock: Clock
    new_producer_id: Callable[[], int]  # raises ApiError while there is no unused id
    server_version: Callable[[], int]  # the finalized level of transaction.version
    markers: Markers
    call_later: Callable[[int, Callable[[], None]], object]  # runs a job after so many ms, on any thread
    retry_soon: Callable[[], None]  # has `retry` called from now on, until no shard needs it
    busy_wait_ms: int  # add.partitions.to.txn.retry.backoff.max.ms
    write_timeout_ms: int = 30_000  # request.timeout.ms
    id_expiration_ms: int = 7 * 24 * 3600 * 1000  # transactional.id.expiration.ms
    checks_invariants: bool = sys.flags.dev_mode  # of each transaction after each change (`python -X dev`)


class TransactionShard:
    """One partition's transactions. Public methods take the lock; a `_locked` method needs it held."""

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: TransactionContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # fixed before start
        self.transactions: dict[str, Transaction] = {}  # guarded by: _lock; the loader's while loading
        self._context = context
        self._life = ShardLife(tp, "transactions", log, self._release_locked)
        self._lock = self._life.lock
        self._writes = CommittedWrites(tp, context.writer, self._lock)  # guarded by: _lock
        self._completions: dict[str, PendingCompletion] = {}  # guarded by: _lock; markers are missing
        self._unwritten_ends: set[str] = set()  # guarded by: _lock; all markers are written, the log refused the end
        self._waiters = Waiters()  # guarded by: _lock
        self._is_timed = False  # guarded by: _lock; a job will run when the first waiter's time is up

    # Life

    @property
    def state(self) -> ShardState:
        """Whether the shard serves."""
        return self._life.state

    def replay(self, transactional_id: str, data: TxnData | None) -> None:
        """Apply a record while loading. Only the loader calls."""
        if data is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = Transaction(transactional_id, data)

    def activate(self) -> None:
        """Start to serve what was loaded; prepared transactions continue to their end."""
        with self._lock:
            if not self._life.activate_locked():
                return
            if self.needs_retry:
                self._context.retry_soon()
            for transaction in self.transactions.values():
                if transaction.data.state in PREPARED:
                    self._complete_locked(transaction)

    def close(self) -> None:
        """Stop serving; waiting clients are sent to the new coordinator."""
        self._life.close()

    def isolate_failures(self) -> AbstractContextManager[None]:
        """Take the shard offline if the block raises, until the next leader loads it; see `ShardLife`."""
        return self._life.isolate_failures()

    def _release_locked(self) -> None:
        self.transactions = {}
        self._completions = {}
        self._unwritten_ends = set()
        for waiter in self._waiters.take_all():
            self._answer_locked(waiter.refuse, ErrorCode.NOT_COORDINATOR)
        self._writes.abandon()

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, reply: Completion[ProducerResult]
    ) -> None:
        """Handle an InitProducerId; `expected` is the producer that the client believes to be, if it names one."""
        with self._lock:
            try:
                transaction = self._find_locked(transactional_id) or self._new_locked(transactional_id, timeout_ms)
                target = transaction.init_producer_id(
                    timeout_ms, expected, self._context.new_producer_id, self._context.server_version(), self._now_ms()
                )
            except ApiError as error:
                self._answer_locked(reply, ProducerResult(error.code))
                return
            if target.state in PREPARED:  # the client retries, and gets its epoch once the abort is complete
                self._prepare_locked(transaction, target, lambda result: reply(_busy(result)))
            else:
                self._write_locked(transaction, target, partial(self._answer_producer_locked, reply, target))

    def _new_locked(self, transactional_id: str, timeout_ms: int) -> Transaction:
        data = TxnData(self._context.new_producer_id(), timeout_ms=timeout_ms, update_ms=self._now_ms())
        transaction = self.transactions[transactional_id] = Transaction(transactional_id, data)
        return transaction

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        reply: Completion[ErrorCode],
    ) -> None:
        """Handle an AddPartitionsToTxn or AddOffsetsToTxn."""

        def attempt() -> None:
            transaction = self._known_locked(transactional_id)
            target = transaction.add_partitions(producer, partitions, client_version, self._now_ms())
            if target is None:
                self._answer_locked(reply, ErrorCode.NONE)
            else:
                self._write_locked(transaction, target, lambda error: self._answer_locked(reply, error))

        with self._lock:
            self._attempt_locked(self._waiter(transactional_id, attempt, reply))

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check for each partition whether it is part of the transaction (KIP-890)."""
        with self._lock:
            try:
                return self._known_locked(transactional_id).verify(producer, partitions)
            except ApiError as error:
                return dict.fromkeys(partitions, error.code)

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        reply: Completion[ProducerResult],
    ) -> None:
        """Handle an EndTxn; answered when the decision is committed."""

        def attempt() -> None:
            transaction = self._known_locked(transactional_id)
            target = transaction.end(producer, is_commit, client_version, self._context.new_producer_id, self._now_ms())
            if target is None:
                self._answer_producer_locked(reply, transaction.data, ErrorCode.NONE)
            else:
                self._prepare_locked(transaction, target, reply)

        with self._lock:
            self._attempt_locked(self._waiter(transactional_id, attempt, lambda error: reply(ProducerResult(error))))

    def _prepare_locked(self, transaction: Transaction, target: TxnData, reply: Completion[ProducerResult]) -> None:
        def settled(error: ErrorCode) -> None:
            if error:
                self._answer_locked(reply, ProducerResult(error))
            else:
                self._answer_producer_locked(reply, transaction.finish(self._now_ms()), ErrorCode.NONE)

        self._write_locked(transaction, target, settled)

    def _answer_producer_locked(self, reply: Completion[ProducerResult], data: TxnData, error: ErrorCode) -> None:
        result = ProducerResult(error) if error else ProducerResult(error, data.producer_id, data.producer_epoch)
        self._answer_locked(reply, result)

    def _answer_locked(self, reply: Completion[T], result: T) -> None:
        self._lock.after_release(partial(reply, result))

    def describe(self, transactional_id: str) -> TxnData:
        """Return the state of an id. Raises ApiError: TRANSACTIONAL_ID_NOT_FOUND, and the errors of the shard."""
        with self._lock:
            transaction = self._find_locked(transactional_id)
            if transaction is None:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return transaction.data

    def listed(self) -> list[tuple[str, TxnData]]:
        """Return every id here with its state. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        with self._lock:
            self._require_active_locked()
            return [(transaction.transactional_id, transaction.data) for transaction in self.transactions.values()]

    # Waiting for a pending change

    def _waiter(self, transactional_id: str, attempt: Callable[[], None], refuse: Completion[ErrorCode]) -> Waiter:
        deadline_ms = self._context.clock.monotonic_ms() + self._context.busy_wait_ms
        return Waiter(transactional_id, attempt, refuse, deadline_ms)

    def _attempt_locked(self, waiter: Waiter) -> None:
        """Carry a request out, refuse it, or let it wait."""
        try:
            waiter.attempt()
        except ApiError as error:
            is_busy = error.code == ErrorCode.CONCURRENT_TRANSACTIONS
            if is_busy and waiter.deadline_ms > self._context.clock.monotonic_ms():
                self._waiters.add(waiter)
                self._time_waiters_locked()
            else:
                self._answer_locked(waiter.refuse, error.code)

    def _changed_locked(self, transactional_id: str) -> None:
        """Have the requests that wait for the id retried soon."""
        if self._waiters:
            self._lock.post(partial(self._retry_waiters_locked, transactional_id))

    def _retry_waiters_locked(self, transactional_id: str) -> None:
        taken = self._waiters.take(transactional_id)
        for done, waiter in enumerate(taken):
            try:
                self._attempt_locked(waiter)
            except Exception:  # a bug: the shard fails (`ShardLife`), and every request still gets its answer
                self._answer_locked(waiter.refuse, ErrorCode.UNKNOWN_SERVER_ERROR)
                for other in taken[done + 1 :]:
                    self._waiters.add(other)
                raise

    def _time_waiters_locked(self) -> None:
        deadline_ms = None if self._is_timed else self._waiters.next_deadline_ms()
        if deadline_ms is None:
            return
        self._is_timed = True
        wait_ms = max(1, deadline_ms - self._context.clock.monotonic_ms())
        self._lock.after_release(partial(self._context.call_later, wait_ms, self._refuse_late))

    def _refuse_late(self) -> None:
        with self._lock:
            self._is_timed = False
            for waiter in self._waiters.take_late(self._context.clock.monotonic_ms()):
                self._answer_locked(waiter.refuse, ErrorCode.CONCURRENT_TRANSACTIONS)
            self._time_waiters_locked()

    # Periodic tasks

    def abort_timed_out(self) -> None:
        """Fence and abort the transactions that have been open for too long."""
        with self._lock:
            if not self._life.is_active:
                return
            self._writes.catch_up()
            now_ms = self._now_ms()
            for transaction in list(self.transactions.values()):
                if transaction.is_timed_out(now_ms):
                    self._time_out_locked(transaction, now_ms)

    def _time_out_locked(self, transaction: Transaction, now_ms: int) -> None:
        transactional_id, context = transaction.transactional_id, self._context
        try:
            target = transaction.fence(context.new_producer_id, context.server_version(), now_ms)
        except ApiError as error:  # there is no producer id to go on with; the next round tries again
            log.warning("The transaction of %s, which timed out, is not aborted yet: %s", transactional_id, error)
            return
        log.info("Aborting the transaction of %s, which timed out", transactional_id)
        self._write_locked(transaction, target, partial(_log_failure, transactional_id))

    @property
    def needs_retry(self) -> bool:
        """Whether `retry` may have something to do; needs no lock."""
        return bool(self._unwritten_ends) or not self._writes.is_empty

    def retry(self) -> None:
        """Retry ends that the log refused; apply writes that were committed after they had timed out."""
        if not self.needs_retry:
            return
        with self._lock:
            if not self._life.is_active:
                return
            self._writes.catch_up()
            for transactional_id in list(self._unwritten_ends):
                self._write_end_locked(self.transactions[transactional_id])

    def remove_expired(self) -> None:
        """Remove the ids that were idle for transactional.id.expiration.ms."""
        with self._lock:
            if not self._life.is_active:
                return
            self._writes.catch_up()
            now_ms, expiration_ms = self._now_ms(), self._context.id_expiration_ms
            expired = [t for t in self.transactions.values() if t.is_expired(now_ms, expiration_ms)]
            for start in range(0, len(expired), EXPIRED_PER_BATCH):
                self._expire_locked(expired[start : start + EXPIRED_PER_BATCH])

    def _expire_locked(self, expired: Sequence[Transaction]) -> None:
        def apply() -> None:
            for transaction in expired:
                del self.transactions[transaction.transactional_id]

        log.info("Removing %d expired transactional ids of %s", len(expired), self.tp)
        for transaction in expired:
            transaction.pending = transaction.expire().state
        tombstones = [(records.key(transaction.transactional_id), None) for transaction in expired]
        if not self._append_locked(tombstones, apply, partial(_log_failure, "expiry")):
            for transaction in expired:
                transaction.give_up()

    # Completion of prepared transactions

    def _complete_locked(self, transaction: Transaction) -> None:
        """Start to complete a transaction whose preparation is committed."""
        data = transaction.data
        is_commit = data.state is PREPARE_COMMIT
        transaction.pending = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
        transactional_id = transaction.transactional_id
        completion = self._completions[transactional_id] = PendingCompletion(
            self, transactional_id, self.leader_epoch, data.producer_id, data.producer_epoch, is_commit,
            data.client_version,
        )  # fmt: skip
        if data.partitions:
            self._lock.after_release(partial(self._context.markers.send, completion, data.partitions))
        else:
            self._write_end_locked(transaction)

    def is_wanted(self, completion: PendingCompletion) -> bool:
        """Return whether its markers must still be sent; needs no lock."""
        return self._completions.get(completion.transactional_id) is completion

    def marked(self, completion: PendingCompletion, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that have their marker, or were deleted. Never blocks."""
        self._lock.post(partial(self._marked_locked, completion, partitions))

    def _marked_locked(self, completion: PendingCompletion, partitions: Iterable[TopicPartition]) -> None:
        if not self.is_wanted(completion):
            return
        transaction = self.transactions[completion.transactional_id]
        for tp in partitions:
            transaction.marked(tp)
        if not transaction.data.partitions:
            self._write_end_locked(transaction)

    def abandoned(self, completion: PendingCompletion) -> None:
        """Stop: a partition knows a newer coordinator or producer, which ends this transaction. Never blocks."""
        self._lock.post(partial(self._abandoned_locked, completion))

    def _abandoned_locked(self, completion: PendingCompletion) -> None:
        if self.is_wanted(completion):
            del self._completions[completion.transactional_id]

    def _write_end_locked(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        target = transaction.finish(self._now_ms())
        self._unwritten_ends.discard(transactional_id)
        self._completions.pop(transactional_id, None)
        if self._write_locked(transaction, target, partial(_log_failure, transactional_id)):
            self._changed_locked(transactional_id)
        else:  # the decision stands: the end stays pending, and is retried
            self._unwritten_ends.add(transactional_id)
            self._context.retry_soon()

    # Writing

    def _write_locked(self, transaction: Transaction, target: TxnData, settled: Completion[ErrorCode]) -> bool:
        """Write a transaction's next state; False, with `settled` posted, when the log refuses it."""

        def apply() -> None:
            transaction.complete(target)
            if self._context.checks_invariants:
                transaction.invariants()
            if target.state in PREPARED:
                self._complete_locked(transaction)
            self._changed_locked(transaction.transactional_id)

        before = transaction.pending, transaction.written
        transaction.pending, transaction.written = target.state, target
        record = records.value(target, self._context.server_version())
        is_written = self._append_locked([(records.key(transaction.transactional_id), record)], apply, settled)
        if not is_written:
            transaction.pending, transaction.written = before
            self._changed_locked(transaction.transactional_id)
        return is_written

    def _append_locked(
        self,
        key_values: Sequence[tuple[bytes, bytes | None]],
        apply: Callable[[], None],
        settled: Completion[ErrorCode],
    ) -> bool:
        now_ms = self._now_ms()
        batch = build_batch([SimpleRecord(now_ms, key, value) for key, value in key_values])
        is_written = self._writes.append(
            batch, len(key_values), self._context.write_timeout_ms, lambda _first_offset: apply(), settled
        )
        if is_written:
            self._context.retry_soon()
        return is_written

    # Lookups

    def _require_active_locked(self) -> None:
        if error := self._life.gate_locked():
            raise ApiError(error)

    def _find_locked(self, transactional_id: str) -> Transaction | None:
        self._require_active_locked()
        self._writes.catch_up()
        return self.transactions.get(transactional_id)

    def _known_locked(self, transactional_id: str) -> Transaction:
        transaction = self._find_locked(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _now_ms(self) -> int:
        return self._context.clock.wall_ms()

    def invariants(self) -> None:
        """Assert the invariants of every transaction; for tests, debugging and simulation."""
        with self._lock:
            for transaction in self.transactions.values():
                transaction.invariants()
            assert self._completions.keys() <= self.transactions.keys(), "a completion without its transaction"
            assert self._unwritten_ends <= self.transactions.keys(), "an end without its transaction"

    # What metrics read, without the lock

    @property
    def unwritten_ends(self) -> int:
        """The number of completed transactions whose end the log refused."""
        return len(self._unwritten_ends)

    @property
    def writes(self) -> CommittedWrites:
        """The writes that wait for the high watermark."""
        return self._writes

    def changing(self) -> list[str]:
        """Return the ids whose next state is being written, or whose markers are being sent."""
        return [t.transactional_id for t in list(self.transactions.values()) if t.pending is not None]

    def count(self, state: TxnState) -> int:
        """Return the number of transactions in this state."""
        return sum(transaction.data.state is state for transaction in list(self.transactions.values()))


def _busy(result: ProducerResult) -> ProducerResult:
    return result if result.error else ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)


def _log_failure(what: str, error: ErrorCode) -> None:
    if error:
        log.warning("Writing to the transaction log failed for %s: %s", what, error.name)
