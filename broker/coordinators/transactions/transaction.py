"""The state machine of one transactional id. Pure.

Theory
A transaction's state is a value, `TxnData`. A change is another value, the *target*, which is written to
__transaction_state. So every request ends in one of three ways: it is refused (ApiError), there is nothing to do, or it
returns a target to write. Until the target is committed the change is pending, and all requests except reads are
refused with CONCURRENT_TRANSACTIONS. Then `complete` makes the target the state. There is one exception: partitions may
be added on top of an addition, or of an end, that is in the log but not committed yet. Records take effect in log
order, so the second one never takes effect without the first.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing, Empty (the producer starts again), Dead
                     └──► PrepareAbort  ──► CompleteAbort  ──► the same
    Prepare… is the point of no return: once it is committed, the transaction ends this way, whatever fails. Complete…
    follows when every partition has its marker.

Two protocols end a transaction (KIP-890). With version 1 the producer keeps its epoch, and the state identifies a
repeated request. With version 2 each end raises the epoch, so that no record of the old transaction can enter the next
one. The previous epoch identifies a repeated request, and a producer may also abort a transaction that has not begun.

Rules
1. Producer epochs of an id only rise; before they are exhausted (32766), the id gets a new producer id.
2. Fencing aborts with an epoch that no producer ever had.
3. The tables below list the answer of each state; the tests visit every cell.
4. While a change is pending, adding partitions and ending with version 2 are refused before anything else is checked:
   the request's producer id and epoch may be those of the pending change.

Invariant (asserted by `invariants()`): a target in the log (`written`) is also pending.

Source: Kafka's TransactionMetadata, TransactionState, TransactionCoordinator (4.3); KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, NamedTuple

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1  # a two-phase transaction never times out
EPOCH_MAX: Final = 2**15 - 1
LAST_EPOCH: Final = EPOCH_MAX - 1  # the last one of a producer; one more is reserved for fencing it


class TxnState(Enum):
    """The states, with the names that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"  # never stored, never seen: fencing goes straight to PREPARE_ABORT

    @property
    def code(self) -> int:
        """The state's code in the log."""
        return _CODES[self]


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = (
    TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT,
)  # fmt: skip
COMPLETE_COMMIT, COMPLETE_ABORT, DEAD = TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT, TxnState.DEAD
PREPARE_EPOCH_FENCE = TxnState.PREPARE_EPOCH_FENCE

_CODES: Final = {state: code for code, state in enumerate(TxnState)}
STATES_BY_CODE: Final = dict(enumerate(TxnState))
PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
IDLE: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})

#: Target -> the states that it may follow.
MAY_FOLLOW: Final[dict[TxnState, frozenset[TxnState]]] = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: IDLE,
    PREPARE_EPOCH_FENCE: frozenset(),
}
ADDITION_MAY_FOLLOW: Final = frozenset({ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT})  # before it is committed


class End(Enum):
    """The outcome of a request to end a transaction."""

    PREPARE = "write Prepare…"
    PREPARE_EMPTY = "abort a transaction that has not begun, to raise the epoch"
    DONE = "it has already ended this way"
    BUSY = "it is ending this way"
    INVALID = "it cannot end this way"


P, E, D, B, X = End.PREPARE, End.PREPARE_EMPTY, End.DONE, End.BUSY, End.INVALID

#: State -> (abort, commit), for version 1.
END_V1: Final[dict[TxnState, tuple[End, End]]] = {
    #                 abort commit
    EMPTY:           (X, X),
    ONGOING:         (P, P),
    PREPARE_COMMIT:  (X, B),
    PREPARE_ABORT:   (B, X),
    COMPLETE_COMMIT: (X, D),
    COMPLETE_ABORT:  (D, X),
}  # fmt: skip

#: State -> (abort, abort again, commit, commit again), for version 2; "again" means with the previous epoch.
END_V2: Final[dict[TxnState, tuple[End, End, End, End]]] = {
    #                 abort       commit
    #                 new  again  new  again
    EMPTY:           (E,   X,     X,   X),
    ONGOING:         (P,   X,     P,   X),
    PREPARE_COMMIT:  (X,   X,     X,   B),
    PREPARE_ABORT:   (X,   B,     X,   X),
    COMPLETE_COMMIT: (E,   X,     X,   D),
    COMPLETE_ABORT:  (E,   D,     X,   X),
}  # fmt: skip

_END_ERRORS: Final = {End.BUSY: ErrorCode.CONCURRENT_TRANSACTIONS, End.INVALID: ErrorCode.INVALID_TXN_STATE}


class TxnData(NamedTuple):
    """The state of a transactional id in the log. Times are wall clock, in ms."""

    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TxnState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()  # once prepared: those that still need a marker
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    client_version: int = 0  # transaction.version of the client that made the last change
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # replaces the producer id when the transaction is complete
    last_producer_epoch: int = NO_EPOCH  # the epoch before the last raise, if a producer requested it; not in the log

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return self.producer_epoch >= LAST_EPOCH


class Producer(NamedTuple):
    """A producer's identity, as its request states it."""

    producer_id: int
    epoch: int


NewProducerId = Callable[[], int]
"""Gives an unused producer id; raises ApiError while there is none."""


class Transaction:
    """A transactional id.

    `pending` is the state of the pending change, if there is one; `written` is the last target in the log that is not
    committed.
    """

    __slots__ = ("data", "pending", "transactional_id", "written")

    def __init__(self, transactional_id: str, data: TxnData) -> None:
        self.transactional_id = transactional_id
        self.data = data
        self.pending: TxnState | None = None
        self.written: TxnData | None = None  # None while a change is pending that is not in the log yet

    # Requests: each returns the target to write, or None when there is nothing to do, or raises ApiError

    def init_producer_id(
        self,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: NewProducerId,
        server_version: int,
        now_ms: int,
    ) -> TxnData:
        """Give the producer its (next) epoch. An open transaction is fenced first: the target is its abort."""
        data = self.data
        self._refuse_pending()
        if expected is not None and not self._may_continue(expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if data.state in PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if data.state is ONGOING:
            return self.fence(new_producer_id, server_version, now_ms)
        if data.is_epoch_exhausted and (expected is None or expected.epoch == data.producer_epoch):
            producer_id, epoch = new_producer_id(), 0
            last_epoch = NO_EPOCH if expected is None else data.producer_epoch
        else:
            producer_id = data.producer_id
            epoch, last_epoch = self._next_epoch(expected)
        return self._target(
            EMPTY, producer_id=producer_id, producer_epoch=epoch, last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms, partitions=frozenset(), start_ms=NO_TIMESTAMP, update_ms=now_ms,
        )  # fmt: skip

    def _may_continue(self, expected: Producer) -> bool:
        """Return whether the named producer is the current one, or one that missed the answer to its last request."""
        data = self.data
        return (
            data.producer_epoch == NO_EPOCH
            or expected.producer_id == data.producer_id
            or (expected.producer_id == data.previous_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def _next_epoch(self, expected: Producer | None) -> tuple[int, int]:
        """Return (epoch, previous epoch if a repeated request may name it) for a producer (KIP-360)."""
        data = self.data
        if expected is None:
            return data.producer_epoch + 1, NO_EPOCH
        if data.producer_epoch in (NO_EPOCH, expected.epoch):
            return data.producer_epoch + 1, data.producer_epoch
        if expected.epoch == data.last_producer_epoch:
            return data.producer_epoch, data.last_producer_epoch  # a repeated request
        raise ApiError(ErrorCode.PRODUCER_FENCED)

    def add_partitions(
        self, producer: Producer, partitions: Collection[TopicPartition], client_version: int, now_ms: int
    ) -> TxnData | None:
        """Add partitions to the transaction; the first ones begin it."""
        data = self._base_of_addition()
        _check_producer(data, producer)
        if data.state in PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_ongoing = data.state is ONGOING
        added = data.partitions.union(partitions)
        if is_ongoing and added == data.partitions and self.pending is None:
            return None
        return self._target(
            ONGOING, data, partitions=added, start_ms=data.start_ms if is_ongoing else now_ms, update_ms=now_ms,
            client_version=client_version,
        )  # fmt: skip

    def _base_of_addition(self) -> TxnData:
        """Return the base of an addition: the state, or the target in the log that will become the state."""
        if self.written is not None and self.written.state in ADDITION_MAY_FOLLOW:
            return self.written
        self._refuse_pending()
        return self.data

    def verify(self, producer: Producer, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Check for each partition whether it is part of the transaction; a pending addition does not count."""
        data = self.data
        _check_producer(data, producer)
        if data.state in PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {tp: ErrorCode.NONE if tp in data.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    def end(
        self, producer: Producer, is_commit: bool, client_version: int, new_producer_id: NewProducerId, now_ms: int
    ) -> TxnData | None:
        """End the transaction at the producer's request."""
        outcome = self._end_v2(producer, is_commit) if client_version >= 2 else self._end_v1(producer, is_commit)
        if outcome in _END_ERRORS:
            raise ApiError(_END_ERRORS[outcome])
        if outcome is End.DONE:
            return None
        return self._prepare(is_commit, client_version, new_producer_id, now_ms, has_begun=outcome is End.PREPARE)

    def _end_v1(self, producer: Producer, is_commit: bool) -> End:
        _check_producer(self.data, producer)
        self._refuse_pending()
        return END_V1[self.data.state][is_commit]

    def _end_v2(self, producer: Producer, is_commit: bool) -> End:
        self._refuse_pending()
        data = self.data
        has_overflowed = (
            producer == (data.previous_producer_id, LAST_EPOCH) and data.producer_epoch == 0
            and data.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        )  # fmt: skip
        is_again = has_overflowed or (data.producer_epoch == producer.epoch + 1 and data.state not in (EMPTY, ONGOING))
        if data.producer_id != producer.producer_id and not has_overflowed:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_new = data.producer_epoch == producer.epoch and data.state not in PREPARED
        if not is_again and not is_new:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return END_V2[data.state][2 * is_commit + is_again]

    # Changes without a request

    def fence(self, new_producer_id: NewProducerId, server_version: int, now_ms: int) -> TxnData:
        """Abort an open transaction with an epoch that its producer does not have."""
        self._refuse_pending()
        data = self.data
        if data.state is not ONGOING:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return self._prepare(False, server_version, new_producer_id, now_ms, has_begun=True, is_fence=True)

    def is_timed_out(self, now_ms: int) -> bool:
        """Return whether a transaction is open for longer than its timeout."""
        data = self.data
        if self.pending is not None or data.state is not ONGOING or data.timeout_ms == TWO_PHASE_TIMEOUT_MS:
            return False
        return data.start_ms + data.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the id was idle for `expiration_ms`, so that it may be removed."""
        data = self.data
        return self.pending is None and data.state in IDLE and data.update_ms <= now_ms - expiration_ms

    def finish(self, now_ms: int) -> TxnData:
        """Complete a prepared transaction; the target is written when all markers are."""
        data = self.data
        producer_id, epoch = data.producer_id, data.producer_epoch
        if data.client_version >= 2 and data.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = data.next_producer_id, 0
        return self._target(
            COMPLETE_COMMIT if data.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id, producer_epoch=epoch, next_producer_id=NO_PRODUCER_ID, partitions=frozenset(),
            update_ms=now_ms,
        )  # fmt: skip

    def expire(self) -> TxnData:
        """Remove the id; a tombstone is written."""
        return self._target(DEAD, partitions=frozenset())

    # Transitions

    def marked(self, tp: TopicPartition) -> None:
        """Note that a partition has its marker, or was deleted."""
        assert self.data.state in PREPARED, f"{self.transactional_id}: a marker in {self.data.state}"
        self.data = self.data._replace(partitions=self.data.partitions - {tp})

    def complete(self, target: TxnData) -> None:
        """Make a committed target the state; later targets may already be in the log."""
        assert self.pending is not None, f"{self.transactional_id}: {target.state} was not pending"
        self.data = target
        if self.written is None or self.written is target:
            self.pending = self.written = None

    def give_up(self) -> None:
        """Drop a pending change that will never be in the log."""
        self.pending = self.written = None

    def invariants(self) -> None:
        """Assert the invariant of the module; for tests, debugging and simulation."""
        assert self.written is None or self.pending is not None, f"{self.transactional_id}: {self.written} is lost"

    def _prepare(
        self,
        is_commit: bool,
        version: int,
        new_producer_id: NewProducerId,
        now_ms: int,
        *,
        has_begun: bool,
        is_fence: bool = False,
    ) -> TxnData:
        data = self.data
        epoch, last_epoch, next_id = data.producer_epoch, data.last_producer_epoch, NO_PRODUCER_ID
        if version >= 2:
            next_id = new_producer_id() if data.is_epoch_exhausted else NO_PRODUCER_ID
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
        elif is_fence:
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), NO_EPOCH
        return self._target(
            PREPARE_COMMIT if is_commit else PREPARE_ABORT, producer_epoch=epoch, last_producer_epoch=last_epoch,
            next_producer_id=next_id, start_ms=data.start_ms if has_begun else now_ms, update_ms=now_ms,
            client_version=version if version >= 2 else 0,
        )  # fmt: skip

    def _target(self, state: TxnState, data: TxnData | None = None, **changes: object) -> TxnData:
        data = data or self.data
        assert data.state in MAY_FOLLOW[state], f"{self.transactional_id}: {state} cannot follow {data.state}"
        return data._replace(state=state, previous_producer_id=data.producer_id, **changes)  # type: ignore[arg-type]

    def _refuse_pending(self) -> None:
        if self.pending is not None:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_producer(data: TxnData, producer: Producer) -> None:
    if data.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if data.producer_epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
