"""Requests that begin a transaction in a partition: they wait for its coordinator, then go on; and what is told of
producers.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.answers import NoReply, Park, Reply
from barnabas.broker.apis.verified import Continuation, produce_error, producer_of
from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.coordinators.transaction_verification import Operation, Question
from barnabas.broker.purgatory import Deferred
from barnabas.broker.storage.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from tests.support.broker_room import BrokerRoom, Waiting, batch, produce, state

T0 = TopicPartition("t", 0)
NONE = ErrorCode.NONE


class Asked:
    """Takes the place of the way to coordinators: the test answers."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def ask(self, question: Question) -> None:
        self.questions.append(question)

    def answer(self, error: ErrorCode = NONE) -> Question:
        question = self.questions.pop()
        question.reply(dict.fromkeys(question.partitions, error))
        return question


class Room(BrokerRoom):
    def __init__(self) -> None:
        super().__init__()
        self.asked = Asked()
        asked: Any = self.asked
        self.services.transaction_verification = asked
        self.push({"t": [state(1, [1, 2])], "u": [state(1)]})

    def produce(self, version: int, *, topic: str = "u", acks: int = 1, epoch: int = 0, sequence: int = 0) -> Any:
        records = batch(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
        request = produce(records, topic=topic, acks=acks)
        request.transactional_id = "x"
        return self.answer(request, version)


def row(answer: Any) -> Any:
    message = answer.message if isinstance(answer, Reply) else answer
    return message.responses[0].partition_responses[0]


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.mark.parametrize(
    ("version", "operation"),
    [(9, Operation.VERIFY_OLD), (10, Operation.VERIFY_OLD), (11, Operation.VERIFY), (12, Operation.ADD)],
)
def test_the_first_batch_waits_and_the_next_does_not(room: Room, version: int, operation: Operation) -> None:
    waiting = room.produce(version)
    assert isinstance(waiting, Waiting)
    question = room.asked.answer()
    assert (question.transactional_id, question.producer, question.operation) == ("x", Producer(7, 0), operation)
    assert row(waiting.response).error_code == NONE
    assert row(room.produce(version, sequence=1)).base_offset == 1


@pytest.mark.parametrize("is_renewed", [True, False])
def test_the_marker_of_the_transaction_before_comes_meanwhile(room: Room, is_renewed: bool) -> None:
    """The coordinator adds the partition when that is there; the guard must be of this time too."""
    room.produce(12)
    room.asked.answer()
    waiting = room.produce(12, epoch=1)
    marker = end_txn_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=room.clock.wall_ms()
    )
    partition = room.manager.find(TopicPartition("u", 0))
    assert partition is not None
    partition.append_as_leader(memoryview(bytearray(marker)), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    if is_renewed:
        room.asked.questions[-1].renew()  # it was told to come again, meanwhile
    room.asked.answer()
    if not is_renewed:
        assert waiting.response is None  # the coordinator let it wait: the guard is of the time before
        room.asked.answer()
    assert room.asked.questions == []
    assert row(waiting.response).error_code == NONE


def test_a_second_batch_does_not_overtake_the_first_that_was_sent_away(room: Room) -> None:
    """A producer with several requests in flight: OUT_OF_ORDER_SEQUENCE_NUMBER as in Kafka, until the first is repeated
    (KIP-890, ProducerAppendInfo.checkSequence). Clients repeat both, in order.
    """

    def send(sequence: int, error: ErrorCode) -> int:
        waiting = room.produce(12, sequence=sequence)
        room.asked.answer(error)
        code: int = row(waiting.response).error_code
        return code

    assert send(0, ErrorCode.CONCURRENT_TRANSACTIONS) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert send(1, NONE) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, NONE) == NONE
    assert row(room.produce(12, sequence=1)).error_code == NONE


def test_with_acks_all_it_waits_twice(room: Room) -> None:
    waiting = room.produce(12, topic="t", acks=-1)
    room.asked.answer()
    assert waiting.response is None
    partition = room.manager.find(T0)
    assert partition is not None
    room.manager.update_follower(
        partition, 2, fetch_offset=1, log_start_offset=0, leader_log_end_offset=1, broker_epoch=-1
    )
    room.services.complete_delayed(T0)
    assert row(waiting.response).error_code == NONE


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (9, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (9, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_refusals_in_words_that_producers_know(room: Room, version: int, error: ErrorCode, told: ErrorCode) -> None:
    waiting = room.produce(version)
    room.asked.answer(error)
    answer = row(waiting.response)
    assert (answer.error_code, answer.base_offset) == (told, -1)
    assert produce_error(error, Operation.ADD if version >= 12 else Operation.VERIFY).code == told
    partition = room.manager.find(TopicPartition("u", 0))
    assert partition is not None
    assert partition.leader_log().log_end_offset == 0


def test_a_partition_led_elsewhere_is_refused_without_a_question(room: Room) -> None:
    assert row(room.produce(12, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert room.asked.questions == []


def test_producers_of_batches() -> None:
    transactional = batch(b"v", producer_id=7, producer_epoch=3, base_sequence=4, is_transactional=True)
    assert producer_of(memoryview(transactional)) == (Producer(7, 3), 4)
    for other in (batch(b"v", producer_id=7, producer_epoch=3, base_sequence=4), transactional[:60], b""):
        assert producer_of(memoryview(other)) is None
    assert producer_of(None) is None


NOBODY: Any = None  # the request that waits


class TestContinuation:
    @pytest.fixture
    def waiting(self) -> Waiting:
        return Waiting()

    @pytest.fixture
    def continuation(self, waiting: Waiting) -> Continuation:
        continuation = Continuation(NOBODY)
        continuation.bind(waiting.take)
        return continuation

    def test_an_answer(self, continuation: Continuation, waiting: Waiting) -> None:
        reply = NoReply()
        continuation.go_on(lambda: reply)
        assert waiting.response is reply

    def test_another_wait(self, continuation: Continuation, waiting: Waiting) -> None:
        deferred = Deferred()
        continuation.go_on(lambda: Park(deferred))
        assert not continuation.is_completed
        reply: Any = Reply("done")  # type: ignore[arg-type]
        deferred.complete(reply)
        assert waiting.response is reply

    @pytest.mark.parametrize("waits", [False, True])
    def test_an_exception_is_the_requests(self, waits: bool) -> None:
        def carry_out() -> Any:
            raise ApiError(ErrorCode.INVALID_REQUEST)

        class Failing(Deferred):
            def response(self) -> Any:
                return carry_out()

        continuation = Continuation(NOBODY)
        failing = Failing()
        continuation.go_on((lambda: Park(failing)) if waits else carry_out)
        failing.force_complete()
        with pytest.raises(ApiError):
            continuation.response()


def test_a_follower_tells_of_producers_too(room: Room) -> None:
    room.push({"f": [state(2, [1, 2])]})
    asked = DescribeProducersRequest(topics=[TopicRequest(name="f", partition_indexes=[0])])
    (told,) = room.answer(asked, 0).topics[0].partitions
    assert (told.error_code, told.active_producers) == (NONE, [])


def test_what_is_told_of_producers(room: Room) -> None:
    waiting = room.produce(9)
    room.asked.answer()
    assert waiting.response is not None
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("u", "not a name", "nowhere")]
    told = [t.partitions[0] for t in room.answer(DescribeProducersRequest(topics=topics), 0).topics]
    assert [p.error_code for p in told] == [
        NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    (producer,) = told[0].active_producers
    assert (producer.producer_id, producer.last_sequence, producer.current_txn_start_offset) == (7, 0, 0)
