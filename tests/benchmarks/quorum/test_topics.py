"""Topics that are created, and what a broker says of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k03_metadata as metadata_wire
from barnabas.protocol.messages import k19_create_topics as create_wire
from benchmarks.quorum import topics


class Answering:
    """A connection on which each request has the same response."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def send(self, _message: Any, _version: int) -> Any:
        return self._response


def created(*codes: int) -> NodeConnection:
    results = [create_wire.CreatableTopicResult(name=f"t{n}", error_code=code) for n, code in enumerate(codes)]
    return cast(NodeConnection, Answering(create_wire.CreateTopicsResponse(topics=results)))


def listed(leaders: list[int], code: int = 0) -> NodeConnection:
    partitions = [
        metadata_wire.MetadataResponsePartition(partition_index=index, leader_id=leader)
        for index, leader in enumerate(leaders)
    ]
    topic = metadata_wire.MetadataResponseTopic(name="t", error_code=code, partitions=partitions)
    return cast(NodeConnection, Answering(metadata_wire.MetadataResponse(topics=[topic])))


def test_every_topic_must_be_created() -> None:
    topics.must_create(created(0, 0), ["t0", "t1"])
    with pytest.raises(topics.TopicError, match="1 of 2"):
        topics.must_create(created(0), ["t0", "t1"])
    with pytest.raises(topics.TopicError, match=str(int(ErrorCode.NOT_CONTROLLER))):
        topics.must_create(created(0, ErrorCode.NOT_CONTROLLER), ["t0", "t1"])


def test_a_topic_is_known_when_all_of_its_partitions_have_leaders() -> None:
    assert topics.are_known(listed([0, 1, 2, 0, 1, 2]), ["t"])
    assert not topics.are_known(listed([0, 1, 2, 0, 1, -1]), ["t"])
    assert not topics.are_known(listed([0, 1, 2]), ["t"])
    assert not topics.are_known(listed([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ["t"])
