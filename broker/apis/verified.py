"""Requests that may begin a transaction in a partition: its coordinator is asked before they are carried out (KIP-890).

`Produce` and `TxnOffsetCommit` come here with their partitions; they go on with a `Verdict`: at once where this broker
knows the answer, else when it arrives, on the thread that brings it.

Source: Kafka's ReplicaManager.handleProduceAppend, maybeSendPartitionsToTransactionCoordinator (4.3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.answers import Answer, Park
from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.coordinators.transaction_verification import Operation, Question
from barnabas.broker.purgatory import DelayedOperation, Outcome
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request
    from barnabas.broker.storage.verification import VerificationGuard
    from barnabas.common.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

# Where a batch says whose it is (the batch format is in protocol/records/batch.py).
_HEADER_SIZE, _MAGIC_AT, _MAGIC, _ATTRIBUTES_LOW_AT, _PRODUCER_AT = 61, 16, 2, 22, 43
_TRANSACTIONAL: Final = 0x10
_PRODUCER = struct.Struct(">qhi")

# Of the coordinator's errors, those that a client of transaction.version 1 must not see: it would not try again.
# Why NOT_ENOUGH_REPLICAS instead: clients retry it without asking for metadata.
HIDDEN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of the partitions that a request's transaction would begin in; of all others nothing is needed."""

    guards: Mapping[TopicPartition, VerificationGuard] = field(default_factory=dict)
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


NOTHING_TO_VERIFY: Final = Verdict()


def producer_of(records: memoryview | None) -> tuple[Producer, int] | None:
    """The producer and first sequence of a transactional batch; None for any other, or what is no batch."""
    if records is None or len(records) < _HEADER_SIZE or records[_MAGIC_AT] != _MAGIC:
        return None
    if not records[_ATTRIBUTES_LOW_AT] & _TRANSACTIONAL:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return Producer(producer_id, epoch), sequence


def draw_guards(
    services: Services,
    batches: Mapping[TopicPartition, tuple[Producer, int]],
    operation: Operation,
) -> dict[TopicPartition, VerificationGuard]:
    """Draw a guard wherever a batch would begin a transaction. Partitions that cannot be written to are left out."""
    guards: dict[TopicPartition, VerificationGuard] = {}
    if not operation.adds and not services.config.transaction_partition_verification_enable:
        return guards
    for tp, (producer, sequence) in batches.items():
        partition = services.replica_manager.find(tp)
        if partition is None:
            continue
        try:
            guard = partition.leader_log().start_verification(
                producer.producer_id, producer.epoch, sequence, supports_epoch_bump=operation.adds
            )
        except ApiError:
            continue
        if guard is not None:
            guards[tp] = guard
    return guards


def verify(
    services: Services,
    request: Request,
    transactional_id: str,
    producer: Producer,
    guards: Mapping[TopicPartition, VerificationGuard],
    draw: Callable[[], Mapping[TopicPartition, VerificationGuard]],
    operation: Operation,
    carry_out: Callable[[Verdict], Answer],
) -> Park:
    """Ask the coordinator, then carry the request out with these guards; `draw` gives others if it is asked again.

    A partition is added only when the transaction before has ended. The marker of that end may have come after the
    guard was drawn, and dropped it. Then the coordinator is asked again, with a new guard: it answers at once.
    """
    waiting = Continuation(request)
    held = dict(guards)
    has_asked_again = False

    def renew() -> bool:
        """Whether guards were dropped; those in force are held now."""
        drawn = draw()
        is_dropped = any(held.get(tp) is not guard for tp, guard in drawn.items())
        held.clear()
        held.update(drawn)
        return is_dropped

    def told(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        nonlocal has_asked_again
        failed = {tp: error for tp, error in errors.items() if error}
        if operation.adds and not failed and not has_asked_again and renew():
            has_asked_again = True
            services.transaction_verification.ask(question)
            return
        waiting.go_on(partial(carry_out, Verdict(held, failed)))
        moved, request.moved = request.moved, []
        for key in moved:
            services.complete_delayed(key)  # type: ignore[arg-type]

    question = Question(transactional_id, producer, list(guards), operation, told, renew)
    services.transaction_verification.ask(question)
    return Park(waiting)


class Continuation(DelayedOperation):
    """A request that goes on later, on another thread, and may then wait once more."""

    __slots__ = ("_error", "_for", "_inner", "_outcome")

    def __init__(self, request: Request) -> None:
        super().__init__(None)
        self._for = request  # fixed before start
        self._inner: DelayedOperation | None = None  # what it waits for once it has gone on
        self._outcome: Outcome | None = None  # set by the one who completes
        self._error: Exception | None = None  # likewise

    def go_on(self, carry_out: Callable[[], Answer]) -> None:
        """Carry the request out; it is answered now, or when what it then waits for is complete."""
        try:
            answer = carry_out()
        except Exception as error:
            self._fail(error)
            return
        if isinstance(answer, Park):
            self._inner = answer.operation
            answer.operation.bind(self._take, self._for)
            if answer.purgatory is not None:
                answer.purgatory.try_complete_else_watch(answer.operation, answer.keys)
        else:
            self._outcome = answer
            self.force_complete()

    def _take(self, operation: DelayedOperation) -> None:
        try:
            self._outcome = operation.response()
        except Exception as error:
            self._fail(error)
            return
        self.force_complete()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.force_complete()

    @property
    def is_in_purgatory(self) -> bool:
        return self._inner is not None and self._inner.is_in_purgatory

    def waits_for(self) -> list[Reason]:
        """Tell what it waits for at this stage."""
        if self._inner is not None:
            return self._inner.waits_for()
        return [{"kind": "verification", "text": "for the coordinator to tell that its transaction is under way"}]

    def try_complete(self) -> bool:
        return False

    def response(self) -> Outcome:
        """The answer, or the exception that took its place."""
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome


def produce_error(error: ErrorCode, operation: Operation) -> ApiError:
    """Say a coordinator's error in words that producers know."""
    if error == ErrorCode.INVALID_TXN_STATE:
        return ApiError(error, "Partition was not added to the transaction")
    if error in HIDDEN or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds):
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    return ApiError(error)
