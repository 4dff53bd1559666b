"""Questions to coordinators: asked here or there, told in words that the client knows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.coordinators.transaction_verification import Operation, Question, TransactionVerification
from barnabas.broker.metadata_cache import MetadataCache
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
from tests.broker.coordinators.test_transaction_markers import snapshot

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


class Room:
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
        self.queued: list[Question] = []
        senders: Any = self
        self.verification._senders = senders
        self.told: list[Errors] = []

    def send(self, destination: int, item: Question) -> None:
        assert destination == 1
        self.queued.append(item)

    def ask(self, operation: Operation, id_: str = "x", partitions: Collection[TopicPartition] = (T0, T1)) -> Errors:
        """What the asker is told, once what has to be sent is sent."""
        self.verification.ask(Question(id_, PRODUCER, partitions, operation, self.told.append))
        self.carry()
        return self.told[-1] if self.told else {}

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
@pytest.mark.parametrize(("operation", "error", "told"), WORDS)
def test_the_same_words_from_here_and_from_there(
    leader: int, operation: Operation, error: ErrorCode, told: ErrorCode
) -> None:
    room = Room(leader)
    room.coordinator.errors = [error]
    room.connection.partition_error = error
    assert room.ask(operation) == both(told)
    assert len(room.connection.sent) == leader


def test_what_is_sent() -> None:
    room = Room(1)
    room.ask(Operation.VERIFY)
    room.ask(Operation.ADD)
    (first,), (second,) = (request.transactions for request in room.connection.sent)
    assert (first.transactional_id, first.producer_id, first.producer_epoch, first.verify_only) == ("x", 7, 3, True)
    assert [(topic.name, topic.partitions) for topic in first.topics] == [("t", [0, 1])]
    assert not second.verify_only


def test_an_add_here_is_one_of_version_2() -> None:
    room = Room(0)
    room.ask(Operation.ADD)
    assert room.coordinator.added == [("x", PRODUCER, (T0, T1), 2)]


def test_transactions_share_a_request_but_no_transaction_is_in_it_twice() -> None:
    room = Room(1)
    told: list[str] = []
    for name, id_ in (("x1", "x"), ("y1", "y"), ("x2", "x")):
        question = Question(id_, PRODUCER, [T0], Operation.VERIFY, lambda _errors, name=name: told.append(name))
        room.verification.ask(question)
    room.carry()
    assert [{t.transactional_id for t in request.transactions} for request in room.connection.sent] == [
        {"x", "y"}, {"x"},
    ]  # fmt: skip
    assert told[-1] == "x2"
    assert sorted(told) == ["x1", "x2", "y1"]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ({"fails": True}, ErrorCode.NETWORK_EXCEPTION),
        ({"forgets": True}, ErrorCode.NETWORK_EXCEPTION),
        ({"error": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_every_question_is_answered(trouble: dict[str, Any], told: ErrorCode) -> None:
    room = Room(1)
    for name, value in trouble.items():
        setattr(room.connection, name, value)
    assert room.ask(Operation.VERIFY) == both(told)


@pytest.mark.parametrize("leader", [-1, 2])
def test_nobody_coordinates(leader: int) -> None:
    assert Room(leader).ask(Operation.VERIFY) == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class TestAddWhileTheLastOneEnds:
    """The client need not be bothered with a transaction that is concluded within a few milliseconds."""

    def step(self, room: Room) -> None:
        room.clock.advance_ms(20)
        room.scheduler.run_due()

    def test_it_is_tried_again(self) -> None:
        room = Room(0)
        room.coordinator.errors = [BUSY, BUSY, NONE]
        assert room.ask(Operation.ADD) == {}
        self.step(room)
        assert room.told == []
        self.step(room)
        assert room.told == [both(NONE)]

    def test_guards_are_renewed_before_each_further_question(self) -> None:
        room = Room(0)
        room.coordinator.errors = [BUSY, BUSY, NONE]
        asked: list[int] = []
        renew = lambda: asked.append(len(room.coordinator.added))  # noqa: E731
        room.verification.ask(Question("x", PRODUCER, [T0, T1], Operation.ADD, room.told.append, renew))
        assert asked == []
        self.step(room)
        self.step(room)
        assert (asked, room.told) == ([1, 2], [both(NONE)])

    def test_but_not_for_ever(self) -> None:
        room = Room(0)
        room.coordinator.errors = [BUSY]
        room.ask(Operation.ADD)
        for _ in range(10):
            self.step(room)
        assert room.told == [both(BUSY)]
        assert len(room.coordinator.added) == 6  # at once, and five times within 100 ms

    def test_a_verification_is_not(self) -> None:
        room = Room(0)
        room.coordinator.errors = [BUSY]
        assert room.ask(Operation.VERIFY) == both(BUSY)
