"""The ends of partitions: of this broker's and of other leaders', with one request for each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.share_groups.latest_offsets import EndOffset, LatestOffsets
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.broker.coordinators.transactions.test_markers import snapshot
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state

HERE, THERE, THERE_TOO, DEAD, GONE = (TopicPartition("t", index) for index in range(5))


class FakeConnection:
    """Another leader; its partitions end at offset 50."""

    def __init__(self) -> None:
        self.sent: list[ListOffsetsRequest] = []
        self.fails = False
        self.forgets: set[int] = set()

    def send(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        request = ListOffsetsRequest.decode(request.encode(version), version)
        self.sent.append(request)
        if self.fails:
            raise NodeConnectionError("hung up")
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, error_code=0, timestamp=-1, offset=50
                    )
                    for p in topic.partitions
                    if p.partition_index not in self.forgets
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


class EndsRig:
    """Broker 0, and broker 1, which answers at once. Partition t3 is led by broker 2, which is gone."""

    def __init__(self, read: Callable[[TopicPartition], Any] | None = None) -> None:
        cache = MetadataCache()
        cache.snapshot = snapshot({HERE: 0, THERE: 1, THERE_TOO: 1, DEAD: 2}, alive=[0, 1])
        self.connection = FakeConnection()
        manager: Any = SimpleNamespace(partition=read or self._refuse)
        self.ends = LatestOffsets(
            broker_id=0, clock=FakeClock(), metadata_cache=cache, replica_manager=manager, listener_name="PLAINTEXT",
            request_timeout_ms=1000,
        )  # fmt: skip
        self.is_known = True
        self.ends._senders.send = self._send  # type: ignore[method-assign]

    def _send(self, destination: int, item: Any) -> None:
        connection: Any = self.connection if self.is_known else None
        self.ends._carry(destination, connection, [item])

    @staticmethod
    def _refuse(_tp: TopicPartition) -> Any:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def ask(self, *partitions: TopicPartition) -> dict[TopicPartition, EndOffset]:
        answers: list[dict[TopicPartition, EndOffset]] = []
        self.ends.ask(partitions, answers.append)
        (answer,) = answers
        return answer


def test_every_partition_is_answered() -> None:
    rig = EndsRig()
    assert rig.ask(HERE, THERE, THERE_TOO, DEAD, GONE) == {
        HERE: EndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        THERE: EndOffset(ErrorCode.NONE, 50),
        THERE_TOO: EndOffset(ErrorCode.NONE, 50),
        DEAD: EndOffset(ErrorCode.LEADER_NOT_AVAILABLE),
        GONE: EndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    (request,) = rig.connection.sent
    assert (request.replica_id, request.isolation_level) == (-1, 0)
    assert [(p.partition_index, p.timestamp) for p in request.topics[0].partitions] == [(1, -1), (2, -1)]
    assert rig.ask() == {}


def test_a_leader_that_does_not_answer_is_an_error_of_its_partitions() -> None:
    rig = EndsRig()
    rig.connection.fails = True
    assert rig.ask(THERE) == {THERE: EndOffset(ErrorCode.LEADER_NOT_AVAILABLE)}
    rig.connection.fails = False
    rig.connection.forgets = {1}
    assert rig.ask(THERE, THERE_TOO)[THERE] == EndOffset(ErrorCode.UNKNOWN_SERVER_ERROR)
    rig.is_known = False
    assert rig.ask(THERE) == {THERE: EndOffset(ErrorCode.LEADER_NOT_AVAILABLE)}


def test_what_is_led_here_is_read_here() -> None:
    broker = BrokerRig()
    broker.push({"t": [state(1)]})
    rig = EndsRig(broker.manager.partition)
    assert rig.ask(HERE) == {HERE: EndOffset(ErrorCode.NONE, 0)}
    broker.answer(produce(batch(b"a", b"b")), 9)
    assert rig.ask(HERE) == {HERE: EndOffset(ErrorCode.NONE, 2)}
    assert rig.connection.sent == []
    broker.close()


def test_the_senders_end() -> None:
    rig = EndsRig()
    rig.ends.shutdown()
    assert rig.ends._senders.is_stopping.is_set()
