"""Tests benchmarks/wide/topics.py: many partitions as topics, and what a broker says of their leaders."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k00_produce as produce_wire
from barnabas.protocol.messages import k03_metadata as metadata_wire
from barnabas.protocol.messages import k19_create_topics as create_wire
from benchmarks.quorum.topics import TopicError
from benchmarks.wide import topics


class Answering:
    """A connection that gives these answers one after another."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    def send(self, message: Any, _version: int) -> Any:
        self.asked.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def connection(*answers: Any) -> NodeConnection:
    return cast(NodeConnection, Answering(*answers))


def created(code: int) -> create_wire.CreateTopicsResponse:
    return create_wire.CreateTopicsResponse(topics=[create_wire.CreatableTopicResult(name="t", error_code=code)])


def listed(leaders: list[int], code: int = 0) -> metadata_wire.MetadataResponse:
    partitions = [
        metadata_wire.MetadataResponsePartition(partition_index=index, leader_id=leader)
        for index, leader in enumerate(leaders)
    ]
    topic = metadata_wire.MetadataResponseTopic(name="t", error_code=code, partitions=partitions)
    return metadata_wire.MetadataResponse(topics=[topic])


def produced(code: int) -> produce_wire.ProduceResponse:
    partition = produce_wire.PartitionProduceResponse(index=0, error_code=code)
    return produce_wire.ProduceResponse(
        responses=[produce_wire.TopicProduceResponse(name="t", partition_responses=[partition])]
    )


@pytest.mark.parametrize(
    ("partitions", "sizes"),
    [(10, [10]), (1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500]), (10_000, [1000] * 10)],
)
def test_topics_have_at_most_a_thousand_partitions(partitions: int, sizes: list[int]) -> None:
    assert list(topics.split(partitions).values()) == sizes


def test_each_topic_is_created_by_a_request_of_its_own() -> None:
    to = Answering(created(0), created(0))
    topics.create(cast(NodeConnection, to), {"a": 1000, "b": 5}, 3)
    assert [(topic.name, topic.num_partitions) for asked in to.asked for topic in asked.topics] == [
        ("a", 1000),
        ("b", 5),
    ]
    with pytest.raises(TopicError, match="topic b of 5 partitions"):
        topics.create(connection(created(0), created(ErrorCode.POLICY_VIOLATION)), {"a": 1000, "b": 5}, 3)


def test_an_unknown_topic_has_no_leaders() -> None:
    assert topics.leaders(connection(listed([2, -1, 0])), "t") == [2, -1, 0]
    assert topics.leaders(connection(listed([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), "t") == []


def test_all_partitions_are_led_by_brokers_that_live() -> None:
    assert topics.are_led([0, 1, 2], 3)
    assert not topics.are_led([0, 1], 3)
    assert not topics.are_led([0, -1, 2], 3)
    assert not topics.are_led([0, 1, 2], 3, gone=1)
    assert topics.are_led([0, 2, 2], 3, gone=1)


def test_a_topic_that_is_led_is_not_asked_for_again() -> None:
    to = Answering(listed([0, 0]), listed([1, -1]), listed([1, 0]))
    topics.await_led([cast(NodeConnection, to)], {"a": 2, "b": 2}, every_ms=1)
    assert [asked.topics[0].name for asked in to.asked] == ["a", "b", "b"]


def test_a_record_is_acknowledged_by_a_broker_that_runs() -> None:
    failed = NodeConnectionError("no connection")
    answers = connection(failed, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), produced(0))
    found = [topics.is_acknowledged(answers, "t", 0, SystemClock()) for _ in range(3)]
    assert found == [False, False, True]
