"""Verification queries: to this broker or another one, with answers that the client knows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.coordinators.transactions.verification import (
    Operation,
    TransactionVerification,
    VerificationQuery,
)
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.broker.coordinators.transactions.test_markers import snapshot

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = TopicPartition("__transaction_state", 0)
PRODUCER = Producer(7, 3)
NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
Errors = dict[TopicPartition, ErrorCode]


class Config:
    add_partitions_to_txn_retry_backoff_ms = 20
    add_partitions_to_txn_retry_backoff_max_ms = 100


class FakeCoordinator:
    """This broker's own."""

    def __init__(self) -> None:
        self.errors = [NONE]
        self.added: list[tuple[str, Producer, Collection[TopicPartition], int]] = []

    def partition_for(self, _transactional_id: str) -> int:
        return 0

    def add_partitions(self, *what: Any) -> None:
        *given, reply = what
        self.added.append(tuple(given))  # type: ignore[arg-type]
        reply(self.errors.pop(0) if len(self.errors) > 1 else self.errors[0])

    def verify(self, _id: str, _producer: Producer, partitions: Collection[TopicPartition]) -> Errors:
        return dict.fromkeys(partitions, self.errors[0])


class FakeConnection:
    def __init__(self) -> None:
        self.sent: list[AddPartitionsToTxnRequest] = []
        self.error = self.partition_error = NONE
        self.fails = self.forgets = False

    def send(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        assert version == 5
        self.sent.append(request)
        if self.fails:
            raise NodeConnectionError("hung up")
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=i, partition_error_code=self.partition_error
                            )
                            for i in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
        return AddPartitionsToTxnResponse(
            error_code=self.error, results_by_transaction=[] if self.forgets or self.error else results
        )


class VerificationRig:
    """Broker 0; the coordinator is there or on broker 1."""

    def __init__(self, leader: int) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.cache = MetadataCache()
        self.cache.snapshot = snapshot({LOG: leader}, alive=[0, 1])
        self.coordinator = FakeCoordinator()
        self.connection = FakeConnection()
        coordinator: Any = self.coordinator
        self.verification = TransactionVerification(
            broker_id=0, clock=self.clock, metadata_cache=self.cache, coordinator=coordinator,
            scheduler=self.scheduler, config=Config(), listener_name="PLAINTEXT", request_timeout_ms=1000,
        )  # fmt: skip
        self.queued: list[VerificationQuery] = []
        senders: Any = self
        self.verification._senders = senders
        self.results: list[Errors] = []

    def send(self, destination: int, item: VerificationQuery) -> None:
        assert destination == 1
        self.queued.append(item)

    def ask(self, operation: Operation, id_: str = "x", partitions: Collection[TopicPartition] = (T0, T1)) -> Errors:
        """Return the result, once the requests are sent."""
        self.verification.ask(VerificationQuery(id_, PRODUCER, partitions, operation, self.results.append))
        self.carry()
        return self.results[-1] if self.results else {}

    def carry(self) -> None:
        items, self.queued = self.queued, []
        connection: Any = self.connection
        if items:
            self.verification._carry(1, connection, items)


def both(error: ErrorCode) -> Errors:
    return {T0: error, T1: error}


WORDS = [
    (Operation.VERIFY_OLD, NONE, NONE),
    (Operation.VERIFY_OLD, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    (Operation.VERIFY, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    (Operation.VERIFY, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (Operation.ADD, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (Operation.ADD, NONE, NONE),
]


@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize(("operation", "error", "expected"), WORDS)
def test_the_same_words_from_here_and_from_there(
    leader: int, operation: Operation, error: ErrorCode, expected: ErrorCode
) -> None:
    rig = VerificationRig(leader)
    rig.coordinator.errors = [error]
    rig.connection.partition_error = error
    assert rig.ask(operation) == both(expected)
    assert len(rig.connection.sent) == leader


def test_what_is_sent() -> None:
    rig = VerificationRig(1)
    rig.ask(Operation.VERIFY)
    rig.ask(Operation.ADD)
    (first,), (second,) = (request.transactions for request in rig.connection.sent)
    assert (first.transactional_id, first.producer_id, first.producer_epoch, first.verify_only) == ("x", 7, 3, True)
    assert [(topic.name, topic.partitions) for topic in first.topics] == [("t", [0, 1])]
    assert not second.verify_only


def test_an_add_here_is_one_of_version_2() -> None:
    rig = VerificationRig(0)
    rig.ask(Operation.ADD)
    assert rig.coordinator.added == [("x", PRODUCER, (T0, T1), 2)]


def test_transactions_share_a_request_but_no_transaction_is_in_it_twice() -> None:
    rig = VerificationRig(1)
    results: list[str] = []
    for name, id_ in (("x1", "x"), ("y1", "y"), ("x2", "x")):
        question = VerificationQuery(id_, PRODUCER, [T0], Operation.VERIFY, lambda _, name=name: results.append(name))
        rig.verification.ask(question)
    rig.carry()
    assert [{t.transactional_id for t in request.transactions} for request in rig.connection.sent] == [
        {"x", "y"}, {"x"},
    ]  # fmt: skip
    assert results[-1] == "x2"
    assert sorted(results) == ["x1", "x2", "y1"]


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        ({"fails": True}, ErrorCode.NETWORK_EXCEPTION),
        ({"forgets": True}, ErrorCode.NETWORK_EXCEPTION),
        ({"error": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_every_question_is_answered(trouble: dict[str, Any], expected: ErrorCode) -> None:
    rig = VerificationRig(1)
    for name, value in trouble.items():
        setattr(rig.connection, name, value)
    assert rig.ask(Operation.VERIFY) == both(expected)


@pytest.mark.parametrize("leader", [-1, 2])
def test_nobody_coordinates(leader: int) -> None:
    assert VerificationRig(leader).ask(Operation.VERIFY) == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class TestAddWhileTheLastOneEnds:
    """The client need not be bothered with a transaction that is concluded within a few milliseconds."""

    def step(self, rig: VerificationRig) -> None:
        rig.clock.advance_ms(20)
        rig.scheduler.run_due()

    def test_it_is_tried_again(self) -> None:
        rig = VerificationRig(0)
        rig.coordinator.errors = [BUSY, BUSY, NONE]
        assert rig.ask(Operation.ADD) == {}
        self.step(rig)
        assert rig.results == []
        self.step(rig)
        assert rig.results == [both(NONE)]

    def test_guards_are_renewed_before_each_further_question(self) -> None:
        rig = VerificationRig(0)
        rig.coordinator.errors = [BUSY, BUSY, NONE]
        renewals: list[int] = []
        renew = lambda: renewals.append(len(rig.coordinator.added))  # noqa: E731
        rig.verification.ask(VerificationQuery("x", PRODUCER, [T0, T1], Operation.ADD, rig.results.append, renew))
        assert renewals == []
        self.step(rig)
        self.step(rig)
        assert (renewals, rig.results) == ([1, 2], [both(NONE)])

    def test_but_not_for_ever(self) -> None:
        rig = VerificationRig(0)
        rig.coordinator.errors = [BUSY]
        rig.ask(Operation.ADD)
        for _ in range(10):
            self.step(rig)
        assert rig.results == [both(BUSY)]
        assert len(rig.coordinator.added) == 6  # at once, and five times within 100 ms

    def test_a_verification_is_not(self) -> None:
        rig = VerificationRig(0)
        rig.coordinator.errors = [BUSY]
        assert rig.ask(Operation.VERIFY) == both(BUSY)
