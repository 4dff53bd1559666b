"""A shard: the transactions of one partition of __transaction_state, and what requests ask of them.

Rules
1. Everything is guarded by the mailbox's lock; decisions are made by the pure part (`transaction.py`).
2. Lock order: a shard's, then a partition's, then a log's. No answer is given and nobody is woken while it is held.
3. A change takes effect when its record is committed, in log order. One whose write timed out stays pending: it is in
   the log, and takes effect when the high watermark passes it, or is the next leader's.
4. A shard serves once all that it loaded is committed: a marker must never follow from a record that the next leader
   might not have. It loads anew for each leader epoch, the epoch being what fences its markers.
5. A prepared transaction is completed: its markers are sent until every partition has one, then its end is written, and
   tried again until it is.
6. A request that meets a change on its way waits for it, for `busy_wait_ms` at most (`transaction_waiters.py`).

States: loading (from the log) -> active -> closed (the leader moved). A shard whose load fails, or that meets something
after it that it cannot handle, is failed: offline until the partition has a new leader epoch. Other shards serve.

Threads: any; loading on `transaction-log-manager-0`.
Source: Kafka's TransactionStateManager, TransactionCoordinator (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.coordinators import transaction_records as records
from barnabas.broker.coordinators.committed_writes import CommittedWrites
from barnabas.broker.coordinators.log_replay import describe
from barnabas.broker.coordinators.mailbox import Mailbox
from barnabas.broker.coordinators.shard_core import LogWriter, ShardState
from barnabas.broker.coordinators.transaction import (
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
from barnabas.broker.coordinators.transaction_waiters import Waiter, Waiters
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.transaction")

EXPIRED_PER_BATCH: Final = 200  # so that a batch of tombstones stays far below any max.message.bytes

ReplyError = Callable[[ErrorCode], object]


class Given(NamedTuple):
    """The producer id and epoch that a request ends with; -1 with an error."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


ReplyGiven = Callable[[Given], object]


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """A prepared transaction on its way to its end: what its markers say. Known by identity."""

    shard: TransactionShard
    transactional_id: str
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


class Markers(Protocol):
    """The way of markers to the leaders of their partitions."""

    def send(self, completion: Completion, partitions: Collection[TopicPartition]) -> None:
        """Have markers written; `completion.shard.marked` is told of each partition that has one."""


@dataclass(slots=True)
class TransactionContext:
    """What all shards of a broker share; the settings are replaced when the configuration changes."""

    writer: LogWriter
    clock: Clock
    new_producer_id: Callable[[], int]
    server_version: Callable[[], int]  # the level of transaction.version that the cluster has agreed on
    markers: Markers
    call_later: Callable[[int, Callable[[], None]], object]  # after so many ms, on any thread
    busy_wait_ms: int
    write_timeout_ms: int = 30_000
    id_expiration_ms: int = 7 * 24 * 3600 * 1000


class TransactionShard:
    """See the module. Public methods take the lock; names ending in `_locked` want it held."""

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: TransactionContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # fixed before start
        self.state = ShardState.LOADING  # guarded by: _mailbox
        self.transactions: dict[str, Transaction] = {}  # guarded by: _mailbox; the loader's while loading
        self._context = context
        self._mailbox = Mailbox(self._failed_locked)
        self._writes = CommittedWrites(tp, context.writer, self._mailbox)  # guarded by: _mailbox
        self._completions: dict[str, Completion] = {}  # guarded by: _mailbox; whose markers are not all written
        self._unwritten_ends: set[str] = set()  # guarded by: _mailbox; marked, but the log refused their end
        self._waiters = Waiters()  # guarded by: _mailbox
        self._is_timed = False  # guarded by: _mailbox; somebody will come when the first waiter's time is up

    # Life

    def replay(self, transactional_id: str, data: TxnData | None) -> None:
        """Take over a record while loading. Only the loader calls."""
        if data is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = Transaction(transactional_id, data)

    def activate(self) -> None:
        """Begin to serve what was loaded; prepared transactions go on to their end."""
        with self._mailbox:
            if self.state is not ShardState.LOADING:
                return
            self.state = ShardState.ACTIVE
            for transaction in self.transactions.values():
                if transaction.data.state in PREPARED:
                    self._complete_locked(transaction)

    def close(self) -> None:
        """Stop serving: whoever waits is sent to look for the new coordinator."""
        with self._mailbox:
            self._close_locked(ShardState.CLOSED)

    def fail(self, why: str) -> None:
        """Take the shard offline until the next leader loads it, unless it is closed; `why` is for the log."""
        with self._mailbox:
            self._fail_locked(why, None)

    def _failed_locked(self, error: Exception) -> None:
        """Something that no request waits for went wrong half way: what the shard knows can no longer be trusted."""
        self._fail_locked(f"{self.tp}: {describe(error)}", error)

    def _fail_locked(self, why: str, error: Exception | None) -> None:
        if self.state not in (ShardState.LOADING, ShardState.ACTIVE):
            return
        log.error("The transactions of %s are offline until it has a new leader: %s", self.tp, why, exc_info=error)
        try:
            self._close_locked(ShardState.FAILED)
        except Exception:
            log.exception("%s did not close cleanly", self.tp)

    def _close_locked(self, state: ShardState) -> None:
        before, self.state = self.state, state
        if before is not ShardState.ACTIVE:
            return  # while it loads, transactions are the loader's
        self.transactions = {}
        self._completions = {}
        self._unwritten_ends = set()
        for waiter in self._waiters.take_all():
            self._mailbox.say(partial(waiter.refuse, ErrorCode.NOT_COORDINATOR))
        self._writes.abandon()

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, reply: ReplyGiven
    ) -> None:
        """Handle an InitProducerId."""
        with self._mailbox:
            try:
                transaction = self._find_locked(transactional_id) or self._new_locked(transactional_id, timeout_ms)
                target = transaction.init_producer_id(
                    timeout_ms, expected, self._context.new_producer_id, self._context.server_version(), self._now_ms()
                )
            except ApiError as error:
                self._mailbox.say(partial(reply, Given(error.code)))
                return
            if target.state in PREPARED:  # the producer comes again, and gets its epoch once the abort is complete
                self._prepare_locked(transaction, target, lambda given: reply(_busy(given)))
            else:
                self._write_locked(transaction, target, partial(self._say_given_locked, reply, target))

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
        reply: ReplyError,
    ) -> None:
        """Handle an AddPartitionsToTxn or AddOffsetsToTxn."""

        def attempt() -> None:
            transaction = self._known_locked(transactional_id)
            target = transaction.add_partitions(producer, partitions, client_version, self._now_ms())
            if target is None:
                self._mailbox.say(partial(reply, ErrorCode.NONE))
            else:
                self._write_locked(transaction, target, lambda error: self._mailbox.say(partial(reply, error)))

        with self._mailbox:
            self._attempt_locked(self._waiter(transactional_id, attempt, reply))

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Say of each partition whether the transaction has it."""
        with self._mailbox:
            try:
                return self._known_locked(transactional_id).verify(producer, partitions)
            except ApiError as error:
                return dict.fromkeys(partitions, error.code)

    def end(
        self, transactional_id: str, producer: Producer, is_commit: bool, client_version: int, reply: ReplyGiven
    ) -> None:
        """Handle an EndTxn: answered when it is sure how the transaction will end."""

        def attempt() -> None:
            transaction = self._known_locked(transactional_id)
            target = transaction.end(producer, is_commit, client_version, self._context.new_producer_id, self._now_ms())
            if target is None:
                self._say_given_locked(reply, transaction.data, ErrorCode.NONE)
            else:
                self._prepare_locked(transaction, target, reply)

        with self._mailbox:
            self._attempt_locked(self._waiter(transactional_id, attempt, lambda error: reply(Given(error))))

    def _prepare_locked(self, transaction: Transaction, target: TxnData, reply: ReplyGiven) -> None:
        def settled(error: ErrorCode) -> None:
            if error:
                self._mailbox.say(partial(reply, Given(error)))
            else:
                self._say_given_locked(reply, transaction.finish(self._now_ms()), ErrorCode.NONE)

        self._write_locked(transaction, target, settled)

    def _say_given_locked(self, reply: ReplyGiven, data: TxnData, error: ErrorCode) -> None:
        given = Given(error) if error else Given(error, data.producer_id, data.producer_epoch)
        self._mailbox.say(partial(reply, given))

    def look(self, transactional_id: str) -> TxnData:
        """The state of an id; raises TRANSACTIONAL_ID_NOT_FOUND and the errors of the shard."""
        with self._mailbox:
            transaction = self._find_locked(transactional_id)
            if transaction is None:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return transaction.data

    def listed(self) -> list[tuple[str, TxnData]]:
        """Every id here with its state; raises COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        with self._mailbox:
            self._gate_locked()
            return [(transaction.transactional_id, transaction.data) for transaction in self.transactions.values()]

    # Waiting for another change

    def _waiter(self, transactional_id: str, attempt: Callable[[], None], refuse: ReplyError) -> Waiter:
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
                self._mailbox.say(partial(waiter.refuse, error.code))

    def _changed_locked(self, transactional_id: str) -> None:
        """Have those tried again, soon, who wait for the id."""
        if self._waiters:
            self._mailbox.post(partial(self._try_waiters_locked, transactional_id))

    def _try_waiters_locked(self, transactional_id: str) -> None:
        taken = self._waiters.take(transactional_id)
        for done, waiter in enumerate(taken):
            try:
                self._attempt_locked(waiter)
            except Exception:  # a mistake of ours: the shard fails (`_failed_locked`), and nobody goes unanswered
                self._mailbox.say(partial(waiter.refuse, ErrorCode.UNKNOWN_SERVER_ERROR))
                for other in taken[done + 1 :]:
                    self._waiters.add(other)
                raise

    def _time_waiters_locked(self) -> None:
        deadline_ms = None if self._is_timed else self._waiters.next_deadline_ms()
        if deadline_ms is None:
            return
        self._is_timed = True
        wait_ms = max(1, deadline_ms - self._context.clock.monotonic_ms())
        self._mailbox.say(partial(self._context.call_later, wait_ms, self._refuse_late))

    def _refuse_late(self) -> None:
        with self._mailbox:
            self._is_timed = False
            for waiter in self._waiters.take_late(self._context.clock.monotonic_ms()):
                self._mailbox.say(partial(waiter.refuse, ErrorCode.CONCURRENT_TRANSACTIONS))
            self._time_waiters_locked()

    # Time

    def abort_timed_out(self) -> None:
        """Fence and abort what has been open for too long."""
        with self._mailbox:
            if self.state is not ShardState.ACTIVE:
                return
            self._writes.catch_up()
            now_ms = self._now_ms()
            for transaction in list(self.transactions.values()):
                if transaction.is_timed_out(now_ms):
                    log.info("Aborting the transaction of %s, which timed out", transaction.transactional_id)
                    target = transaction.fence(self._context.server_version(), now_ms)
                    self._write_locked(transaction, target, partial(_log_failure, transaction.transactional_id))

    def retry(self) -> None:
        """Write again the ends that the log refused; look after writes that nobody waits for any more."""
        if not self._unwritten_ends and self._writes.is_empty:
            return
        with self._mailbox:
            if self.state is not ShardState.ACTIVE:
                return
            self._writes.catch_up()
            for transactional_id in list(self._unwritten_ends):
                self._write_end_locked(self.transactions[transactional_id])

    def remove_expired(self) -> None:
        """Forget the ids that nobody has used for transactional.id.expiration.ms."""
        with self._mailbox:
            if self.state is not ShardState.ACTIVE:
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

    # Completion

    def _complete_locked(self, transaction: Transaction) -> None:
        """Set a transaction whose preparation is committed on its way to its end."""
        data = transaction.data
        is_commit = data.state is PREPARE_COMMIT
        transaction.pending = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
        transactional_id = transaction.transactional_id
        completion = self._completions[transactional_id] = Completion(
            self, transactional_id, self.leader_epoch, data.producer_id, data.producer_epoch, is_commit,
            data.client_version,
        )  # fmt: skip
        if data.partitions:
            self._mailbox.say(partial(self._context.markers.send, completion, data.partitions))
        else:
            self._write_end_locked(transaction)

    def is_wanted(self, completion: Completion) -> bool:
        """Whether its markers are still to be sent; looking takes no lock."""
        return self._completions.get(completion.transactional_id) is completion

    def marked(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or are gone. Never blocks."""
        self._mailbox.post(partial(self._marked_locked, completion, partitions))

    def _marked_locked(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        if not self.is_wanted(completion):
            return
        transaction = self.transactions[completion.transactional_id]
        for tp in partitions:
            transaction.marked(tp)
        if not transaction.data.partitions:
            self._write_end_locked(transaction)

    def abandoned(self, completion: Completion) -> None:
        """A partition knows of a newer coordinator or producer: somebody else ends this transaction. Never blocks."""
        self._mailbox.post(partial(self._abandoned_locked, completion))

    def _abandoned_locked(self, completion: Completion) -> None:
        if self.is_wanted(completion):
            del self._completions[completion.transactional_id]

    def _write_end_locked(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        target = transaction.finish(self._now_ms())
        self._unwritten_ends.discard(transactional_id)
        self._completions.pop(transactional_id, None)

        def settled(error: ErrorCode) -> None:
            _log_failure(transactional_id, error)

        if self._write_locked(transaction, target, settled):
            self._changed_locked(transactional_id)
        else:  # it has been decided, stays pending, and shall be written when the log allows
            self._unwritten_ends.add(transactional_id)

    # Writing

    def _write_locked(self, transaction: Transaction, target: TxnData, settled: ReplyError) -> bool:
        """Write a transaction's next state; false (and `settled` posted) when the log refuses it."""

        def apply() -> None:
            transaction.complete(target)
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
        self, key_values: Sequence[tuple[bytes, bytes | None]], apply: Callable[[], None], settled: ReplyError
    ) -> bool:
        now_ms = self._now_ms()
        batch = build_batch([SimpleRecord(now_ms, key, value) for key, value in key_values])
        return self._writes.append(batch, len(key_values), self._context.write_timeout_ms, apply, settled)

    # Looking up

    def _gate_locked(self) -> None:
        if self.state is ShardState.ACTIVE:
            return
        is_loading = self.state is ShardState.LOADING
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR)

    def _find_locked(self, transactional_id: str) -> Transaction | None:
        self._gate_locked()
        self._writes.catch_up()
        return self.transactions.get(transactional_id)

    def _known_locked(self, transactional_id: str) -> Transaction:
        transaction = self._find_locked(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _now_ms(self) -> int:
        return self._context.clock.wall_ms()

    @property
    def unwritten_ends(self) -> int:
        """How many completed transactions' ends the log refused, for metrics."""
        return len(self._unwritten_ends)

    def count(self, state: TxnState) -> int:
        """How many transactions are in this state, for metrics."""
        return sum(transaction.data.state is state for transaction in list(self.transactions.values()))


def _busy(given: Given) -> Given:
    return given if given.error else Given(ErrorCode.CONCURRENT_TRANSACTIONS)


def _log_failure(what: str, error: ErrorCode) -> None:
    if error:
        log.warning("Writing to the transaction log failed for %s: %s", what, error.name)
