"""Requests that may start a transaction in a partition: the coordinator verifies the partition first (KIP-890).

`Produce` and `TxnOffsetCommit` call `verify` with their partitions, and continue with its `Verdict`: on the thread that
brings the coordinator's answer.

Threads: handlers ask; the answer may come on any thread.
Source: Kafka's ReplicaManager.handleProduceAppend, maybeSendPartitionsToTransactionCoordinator (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.coordinators.transactions.verification import Operation, VerificationQuery
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.requests.parking import Answer, Continuation, Park
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    peek_attributes,
    peek_magic,
    peek_producer,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.pages.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

# Errors of the coordinator that a client of transaction.version 1 must not see, since it would not retry.
# Why NOT_ENOUGH_REPLICAS instead: clients retry it without a metadata refresh.
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
    """The outcome for the partitions in which a request's transaction would start; others need no verification."""

    guards: Mapping[TopicPartition, VerificationGuard] = field(default_factory=dict)
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


NOTHING_TO_VERIFY: Final = Verdict()


def producer_of(records: memoryview | None) -> tuple[Producer, int] | None:
    """Return the producer and first sequence of a transactional batch; None for anything else."""
    if records is None or len(records) < HEADER_SIZE or peek_magic(records) != MAGIC_V2:
        return None
    if not peek_attributes(records) & TRANSACTIONAL_BIT:
        return None
    producer_id, epoch, sequence = peek_producer(records)
    return Producer(producer_id, epoch), sequence


def draw_guards(
    services: Services,
    batches: Mapping[TopicPartition, tuple[Producer, int]],
    operation: Operation,
) -> dict[TopicPartition, VerificationGuard]:
    """Create a guard for each partition in which a batch would start a transaction.

    A partition that is not led here, or knows a later epoch of the producer, is skipped: the append refuses the batch.
    """
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
    transactional_id: str,
    producer: Producer,
    guards: Mapping[TopicPartition, VerificationGuard],
    draw: Callable[[], Mapping[TopicPartition, VerificationGuard]],
    operation: Operation,
    carry_out: Callable[[Verdict], Answer],
) -> Park:
    """Ask the coordinator, then carry the request out with these guards; `draw` creates new ones for a second query.

    A partition is added only when the previous transaction has ended. The marker of that end may have arrived after the
    guard was created, and dropped it. Then the coordinator is asked again, with a new guard: it answers at once.
    """
    waiting = DelayedVerification()
    held = dict(guards)
    partitions = list(guards)

    def renew() -> bool:
        """Replace the guards by new ones; true if some were dropped."""
        drawn = draw()
        is_dropped = any(held.get(tp) is not guard for tp, guard in drawn.items())
        held.clear()
        held.update(drawn)
        return is_dropped

    def ask(reply: Completion[Mapping[TopicPartition, ErrorCode]]) -> None:
        query = VerificationQuery(transactional_id, producer, partitions, operation, reply, renew)
        services.transaction_verification.ask(query)

    def conclude(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        waiting.complete_with(Verdict(held, {tp: error for tp, error in errors.items() if error}))

    def verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        if operation.adds and not any(errors.values()) and renew():
            ask(conclude)  # Why not `verified`: the coordinator is asked twice at most.
        else:
            conclude(errors)

    ask(verified)
    return Continuation(waiting, lambda: carry_out(waiting.verdict))


class DelayedVerification(DelayedOperation):
    """Waits for the coordinator's verdict on a request's partitions."""

    __slots__ = ("verdict",)

    def __init__(self) -> None:
        super().__init__(None)
        self.verdict = NOTHING_TO_VERIFY  # set once, by the thread that completes

    def complete_with(self, verdict: Verdict) -> None:
        """Take the verdict."""
        self.verdict = verdict
        self.force_complete()

    def try_complete(self) -> bool:
        """Return false: only the coordinator's answer completes it."""
        return False

    def waits_for(self) -> list[Reason]:
        """Return the coordinator as what is missing."""
        return [{"kind": "verification", "text": "for the coordinator to verify its transaction"}]


def produce_error(error: ErrorCode, operation: Operation) -> ApiError:
    """Return the error that a producer gets for a coordinator's error."""
    if error == ErrorCode.INVALID_TXN_STATE:
        return ApiError(error, "Partition was not added to the transaction")
    if error in HIDDEN or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds):
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    return ApiError(error)
