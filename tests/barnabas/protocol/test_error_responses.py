"""Error responses; tests/barnabas/protocol/test_apache_kafka.py compares all of them with Kafka's own."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ROWS as API_ROWS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.error_responses import ROWS, Items, error_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from tests.support import messages as facts

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("key", API_ROWS)
def test_every_api_and_version_can_answer(key: int) -> None:
    """The answer encodes in the version of the request, and says the code wherever the request named something."""
    for version in facts.versions(request_class(key)):
        for request in facts.samples(request_class(key), version, 3, tame=True):
            response = error_response(request, version, CODE, "why")
            assert type(response) is response_class(key)
            assert response_class(key).decode(response.encode(version), version) is not None


@pytest.mark.parametrize("key", ROWS)
def test_rows_name_fields_that_exist(key: int) -> None:
    for items in ROWS[key].items:
        check_items(items, request_class(key), response_class(key))
    names = {field.name for field in response_class(key).FIELDS}
    assert set(ROWS[key].fixed) <= names


def check_items(items: Items, source: type, target: type) -> None:
    for name in items.source.split("."):
        source = element(source, name)
    target = element(target, items.target)
    for name, copied in items.copies.items():
        assert name == "" or element(source, name) is not None
        assert element(target, copied) is not None
    if items.inner is not None:
        check_items(items.inner, source, target)


def element(owner: type, name: str) -> type:
    field = next(field for field in owner.FIELDS if field.name == name)  # type: ignore[attr-defined]
    return field.element if isinstance(field.element, type) else type(field.default)


def test_partitions_get_the_code() -> None:
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3)])]
    )
    (topic,) = error_response(request, 9, CODE).responses  # type: ignore[attr-defined]
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code, partition.base_offset) == ("t", 3, CODE, -1)
    assert partition.error_message is None


def test_fetch_says_it_at_the_top_and_until_version_12_everywhere() -> None:
    request = FetchRequest(session_id=5, topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=1)])])
    old, new = (error_response(request, version, CODE) for version in (12, 13))
    assert (old.error_code, old.session_id, new.error_code, new.session_id) == (CODE, 5, CODE, 5)  # type: ignore[attr-defined]
    assert old.responses[0].partitions[0].error_code == CODE  # type: ignore[attr-defined]
    assert new.responses == []  # type: ignore[attr-defined]


def test_offset_fetch_has_had_three_ways() -> None:
    request = OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[4])])
    partition = error_response(request, 1, CODE).topics[0].partitions[0]  # type: ignore[attr-defined]
    assert (partition.partition_index, partition.error_code, partition.committed_offset) == (4, CODE, -1)
    top = error_response(request, 5, CODE)
    assert (top.error_code, top.topics) == (CODE, [])  # type: ignore[attr-defined]
    groups = error_response(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 8, CODE).groups  # type: ignore[attr-defined]
    assert [(group.group_id, group.error_code) for group in groups] == [("g", CODE)]


def test_texts() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])

    def text(code: ErrorCode, message: str | None) -> str | None:
        found: str | None = error_response(request, 7, code, message).topics[0].error_message  # type: ignore[attr-defined]
        return found

    assert text(CODE, "no right to create t") == "no right to create t"
    assert text(CODE, CODE.message) is None
    assert text(CODE, None) is None
    assert text(ErrorCode.UNKNOWN_SERVER_ERROR, "a secret") is None


def test_api_versions_lists_its_own_versions_to_a_stranger() -> None:
    listed = error_response(ApiVersionsRequest(), 0, ErrorCode.UNSUPPORTED_VERSION).api_keys  # type: ignore[attr-defined]
    assert listed == [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)]
    assert error_response(ApiVersionsRequest(), 0, ErrorCode.INVALID_REQUEST).api_keys == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [4, 7])
def test_leader_and_isr(version: int) -> None:
    states = [LeaderAndIsrPartitionState(partition_index=1)]
    topics = [LeaderAndIsrTopicState(topic_name="t", topic_id=bytes([1] * 16), partition_states=states)]
    response = error_response(LeaderAndIsrRequest(topic_states=topics), version, ErrorCode.STALE_CONTROLLER_EPOCH)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH  # type: ignore[attr-defined]
    listed = response.partition_errors if version < 5 else response.topics[0].partition_errors  # type: ignore[attr-defined]
    assert [(error.partition_index, error.error_code) for error in listed] == [(1, 11)]


def test_stop_replica() -> None:
    topics = [StopReplicaTopicState(topic_name="t", partition_states=[StopReplicaPartitionState(partition_index=1)])]
    response = error_response(StopReplicaRequest(topic_states=topics), 4, CODE)
    (error,) = response.partition_errors  # type: ignore[attr-defined]
    assert (error.topic_name, error.partition_index, error.error_code) == ("t", 1, CODE)
