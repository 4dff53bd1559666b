"""`replication/in_sync/alter_partition.py`: proposals are gathered, sent one request at a time, and sent again."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.replication.in_sync.alter_partition import PAUSE_MS, VERSION, AlterPartitions
from barnabas.broker.replication.role import IsrOutcome, IsrProposal
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k56_alter_partition as wire

A, B, C = (TopicPartition("t", index) for index in range(3))
TOPIC_ID = b"t" * 16
PROPOSAL = IsrProposal(4, 7, ((1, -1), (2, 5)), 0, is_expansion=True)


class Bench:
    """AlterPartitions with a channel that keeps requests; the test answers them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.sent: list[tuple[wire.AlterPartitionRequest, Any]] = []
        self.outcomes: list[tuple[TopicPartition, IsrOutcome]] = []
        channel: Any = self
        self.alter = AlterPartitions(1, lambda: 33, channel, self.scheduler)

    def send(self, message: wire.AlterPartitionRequest, on_done: Any, *, version: int) -> None:
        assert version == VERSION
        self.sent.append((message, on_done))

    def submit(self, tp: TopicPartition) -> None:
        self.alter.submit(tp, TOPIC_ID, PROPOSAL, lambda outcome: self.outcomes.append((tp, outcome)))

    def partitions(self) -> list[int]:
        """The partitions of the last request."""
        return [p.partition_index for topic in self.sent[-1][0].topics for p in topic.partitions]

    def answer(self, *partitions: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the last request with an accepted ISR for these partitions."""
        data = [
            wire.ResponsePartitionData(
                partition_index=index, leader_id=1, leader_epoch=4, isr=[1, 2], partition_epoch=8
            )
            for index in partitions
        ]
        topics = [wire.ResponseTopicData(topic_id=TOPIC_ID, partitions=data)]
        self.sent[-1][1](wire.AlterPartitionResponse(error_code=error, topics=topics))

    def wait(self) -> None:
        self.clock.advance_ms(PAUSE_MS)
        self.scheduler.run_due()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_proposal_is_sent_at_once_and_its_outcome_returned(bench: Bench) -> None:
    bench.submit(A)
    request = bench.sent[0][0]
    assert (request.broker_id, request.broker_epoch) == (1, 33)
    (data,) = request.topics[0].partitions
    assert (data.leader_epoch, data.partition_epoch) == (4, 7)
    assert [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs] == [(1, -1), (2, 5)]
    bench.answer(0)
    assert bench.outcomes == [(A, IsrOutcome(ErrorCode.NONE, 1, 4, (1, 2), 8, 0))]


def test_proposals_are_gathered_while_a_request_is_in_flight(bench: Bench) -> None:
    for tp in (A, B, C):
        bench.submit(tp)
    assert (len(bench.sent), bench.partitions()) == (1, [0])
    bench.answer(0)
    assert (len(bench.sent), bench.partitions()) == (2, [1, 2])


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_failed_request_is_sent_again_after_a_pause(bench: Bench, is_lost: bool) -> None:
    bench.submit(A)
    if is_lost:
        bench.sent[-1][1](None)
    else:
        bench.answer(error=ErrorCode.NOT_CONTROLLER)
    bench.submit(B)
    assert len(bench.sent) == 1, "nothing is sent during the pause"
    bench.wait()
    assert (bench.partitions(), bench.outcomes) == ([0, 1], [])


def test_a_partition_missing_from_the_response_is_an_unknown_error(bench: Bench) -> None:
    bench.submit(A)
    bench.answer()
    assert bench.outcomes == [(A, IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR))]


def test_an_error_code_of_a_newer_controller_is_an_unknown_error(bench: Bench) -> None:
    bench.submit(A)
    data = wire.ResponsePartitionData(partition_index=0, error_code=9999)
    bench.sent[-1][1](
        wire.AlterPartitionResponse(topics=[wire.ResponseTopicData(topic_id=TOPIC_ID, partitions=[data])])
    )
    assert [outcome.error for _, outcome in bench.outcomes] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    bench.submit(B)
    assert bench.partitions() == [1]


def test_a_proposal_that_is_submitted_again_at_once_waits_for_a_pause(bench: Bench) -> None:
    bench.alter.submit(A, TOPIC_ID, PROPOSAL, lambda _outcome: bench.submit(A))
    bench.answer()
    assert len(bench.sent) == 1
    bench.wait()
    assert bench.partitions() == [0]


def test_a_callback_that_raises_stops_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.submit(C)
    bench.alter.submit(A, TOPIC_ID, PROPOSAL, lambda _outcome: 1 / 0)
    bench.submit(B)
    bench.answer(2)
    bench.answer(0, 1)
    assert [tp for tp, _ in bench.outcomes] == [C, B]
    assert "the outcome of an ISR change of t-0" in caplog.text
    bench.submit(C)
    assert bench.partitions() == [2]
