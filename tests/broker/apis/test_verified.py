"""Requests that start a transaction in a partition wait for its coordinator, then continue (`apis/verified.py`).

Also covers `apis/k61_describe_producers.py`.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from barnabas.broker.apis.verified import produce_error, producer_of
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.coordinators.transactions.verification import Operation, VerificationQuery
from barnabas.broker.requests.answers import Reply
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state
from tests.support.broker.parked import Waiting

T0 = TopicPartition("t", 0)
NONE = ErrorCode.NONE


class FakeVerification:
    """Replaces the channel to coordinators: the test answers."""

    def __init__(self) -> None:
        self.questions: list[VerificationQuery] = []

    def ask(self, question: VerificationQuery) -> None:
        self.questions.append(question)

    def answer(self, error: ErrorCode = NONE) -> VerificationQuery:
        question = self.questions.pop()
        question.reply(dict.fromkeys(question.partitions, error))
        return question


class VerifiedApiRig(BrokerRig):
    def __init__(self) -> None:
        super().__init__()
        self.asked = FakeVerification()
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
def rig() -> VerifiedApiRig:
    return VerifiedApiRig()


@pytest.mark.parametrize(
    ("version", "operation"),
    [(9, Operation.VERIFY_OLD), (10, Operation.VERIFY_OLD), (11, Operation.VERIFY), (12, Operation.ADD)],
)
def test_the_first_batch_waits_the_next_does_not(rig: VerifiedApiRig, version: int, operation: Operation) -> None:
    waiting = rig.produce(version)
    assert isinstance(waiting, Waiting)
    question = rig.asked.answer()
    assert (question.transactional_id, question.producer, question.operation) == ("x", Producer(7, 0), operation)
    assert row(waiting.response).error_code == NONE
    assert row(rig.produce(version, sequence=1)).base_offset == 1


@pytest.mark.parametrize("is_renewed", [True, False])
def test_the_marker_of_the_previous_transaction_arrives_meanwhile(rig: VerifiedApiRig, is_renewed: bool) -> None:
    """The coordinator adds the partition after the marker; the guard must be newer than the marker too."""
    rig.produce(12)
    rig.asked.answer()
    waiting = rig.produce(12, epoch=1)
    marker = end_txn_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=rig.clock.wall_ms()
    )
    partition = rig.manager.find(TopicPartition("u", 0))
    assert partition is not None
    partition.append_as_leader(memoryview(bytearray(marker)), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    if is_renewed:
        rig.asked.questions[-1].renew()  # the coordinator asked for a retry meanwhile
    rig.asked.answer()
    if not is_renewed:
        assert waiting.response is None  # the guard is older than the marker: the coordinator is asked again
        rig.asked.answer()
    assert rig.asked.questions == []
    assert row(waiting.response).error_code == NONE


@pytest.mark.parametrize("version", [11, 12])
def test_of_an_old_epoch_nobody_is_asked(rig: VerifiedApiRig, version: int) -> None:
    rig.produce(version, epoch=1)
    rig.asked.answer()
    assert row(rig.produce(version, epoch=0, sequence=5)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.asked.questions == []


def test_a_verification_leaves_no_reference_cycle(rig: VerifiedApiRig) -> None:
    """A cycle would keep the request of every transaction's first batch until the garbage collector runs."""
    gc.disable()
    try:
        rig.produce(12)
        reply = weakref.ref(rig.asked.answer().reply)
        assert reply() is None
    finally:
        gc.enable()


def test_a_second_batch_does_not_overtake_a_refused_first_one(rig: VerifiedApiRig) -> None:
    """With several requests in flight: OUT_OF_ORDER_SEQUENCE_NUMBER, as in Kafka, until the first is retried.

    See KIP-890, ProducerAppendInfo.checkSequence. Clients retry both, in order.
    """

    def send(sequence: int, error: ErrorCode) -> int:
        waiting = rig.produce(12, sequence=sequence)
        rig.asked.answer(error)
        code: int = row(waiting.response).error_code
        return code

    assert send(0, ErrorCode.CONCURRENT_TRANSACTIONS) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert send(1, NONE) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, NONE) == NONE
    assert row(rig.produce(12, sequence=1)).error_code == NONE


def test_with_acks_all_it_waits_twice(rig: VerifiedApiRig) -> None:
    waiting = rig.produce(12, topic="t", acks=-1)
    rig.asked.answer()
    assert waiting.response is None
    partition = rig.manager.find(T0)
    assert partition is not None
    rig.manager.isr_updates.note_fetch(
        partition, 2, fetch_offset=1, log_start_offset=0, now_ms=rig.clock.monotonic_ms(), broker_epoch=-1
    )
    rig.manager.complete_delayed(T0)
    assert row(waiting.response).error_code == NONE


@pytest.mark.parametrize(
    ("version", "error", "expected"),
    [
        (9, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (9, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_errors_that_producers_know(rig: VerifiedApiRig, version: int, error: ErrorCode, expected: ErrorCode) -> None:
    waiting = rig.produce(version)
    rig.asked.answer(error)
    answer = row(waiting.response)
    assert (answer.error_code, answer.base_offset) == (expected, -1)
    assert produce_error(error, Operation.ADD if version >= 12 else Operation.VERIFY).code == expected
    partition = rig.manager.find(TopicPartition("u", 0))
    assert partition is not None
    assert partition.leader_log().log_end_offset == 0


def test_a_partition_led_elsewhere_is_refused_without_a_query(rig: VerifiedApiRig) -> None:
    assert row(rig.produce(12, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.asked.questions == []


def test_producers_of_batches() -> None:
    transactional = batch(b"v", producer_id=7, producer_epoch=3, base_sequence=4, is_transactional=True)
    assert producer_of(memoryview(transactional)) == (Producer(7, 3), 4)
    for other in (batch(b"v", producer_id=7, producer_epoch=3, base_sequence=4), transactional[:60], b""):
        assert producer_of(memoryview(other)) is None
    assert producer_of(None) is None


def test_a_follower_describes_producers_too(rig: VerifiedApiRig) -> None:
    rig.push({"f": [state(2, [1, 2])]})
    asked = DescribeProducersRequest(topics=[TopicRequest(name="f", partition_indexes=[0])])
    (described,) = rig.answer(asked, 0).topics[0].partitions
    assert (described.error_code, described.active_producers) == (NONE, [])


def test_described_producers(rig: VerifiedApiRig) -> None:
    waiting = rig.produce(9)
    rig.asked.answer()
    assert waiting.response is not None
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("u", "not a name", "nowhere")]
    described = [t.partitions[0] for t in rig.answer(DescribeProducersRequest(topics=topics), 0).topics]
    assert [p.error_code for p in described] == [
        NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    (producer,) = described[0].active_producers
    assert (producer.producer_id, producer.last_sequence, producer.current_txn_start_offset) == (7, 0, 0)
