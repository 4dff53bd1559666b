"""The APIs of share groups on the wire, at every version, and older APIs on such groups.

Tests `apis/k76_share_group_heartbeat.py`, `apis/k77_share_group_describe.py`,
`apis/k90_describe_share_group_offsets.py`, `apis/k91_alter_share_group_offsets.py` and
`apis/k92_delete_share_group_offsets.py`, with `coordinators/share_groups/requests.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis import (
    k09_offset_fetch,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k69_consumer_group_describe,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from barnabas.broker.apis.authorized import GROUP_OPERATIONS, NOT_REQUESTED
from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k90_describe_share_group_offsets as described
from barnabas.protocol.messages import k91_alter_share_group_offsets as altered
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.k77_share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from tests.broker.apis.group_rig import Rig

T = b"t" * 16
UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def make_rig(**config: Any) -> Rig:
    rig = Rig(**config)
    rig.world.cache.finalized_features = FinalizedFeatures({"group.version": 1, "share.version": 1}, 3)
    return rig


@pytest.fixture
def rig() -> Rig:
    return make_rig()


def heartbeat(rig: Rig, **fields: Any) -> Any:
    given = {"group_id": "g", "member_id": "m", "member_epoch": 0, **fields}
    if given["member_epoch"] == 0:
        given = {"subscribed_topic_names": ["t"], **given}
    return rig.ask(k76_share_group_heartbeat, ShareGroupHeartbeatRequest(**given))


def describe(rig: Rig, *groups: str, asks_operations: bool = False) -> Any:
    request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=asks_operations)
    return rig.ask(k77_share_group_describe, request).groups


def describe_offsets(rig: Rig, topics: dict[str, list[int]] | None, group_id: str = "g", version: int = 1) -> Any:
    wanted = None
    if topics is not None:
        wanted = [
            described.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
            for name, found in topics.items()
        ]
    group = described.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=wanted)
    request = described.DescribeShareGroupOffsetsRequest(groups=[group])
    return rig.ask(k90_describe_share_group_offsets, request, version).groups[0]


def alter_offsets(rig: Rig, **topics: dict[int, int]) -> Any:
    wanted = [
        altered.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                altered.AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=offset)
                for p, offset in offsets.items()
            ],
        )
        for name, offsets in topics.items()
    ]
    request = altered.AlterShareGroupOffsetsRequest(group_id="g", topics=wanted)
    return rig.ask(k91_alter_share_group_offsets, request)


def delete_offsets(rig: Rig, *names: str) -> Any:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return rig.ask(k92_delete_share_group_offsets, DeleteShareGroupOffsetsRequest(group_id="g", topics=topics))


def test_a_member_joins_gets_its_partitions_and_leaves(rig: Rig) -> None:
    joined = heartbeat(rig)
    assert (joined.error_code, joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == (0, "m", 2, 5000)
    assert joined.assignment.topic_partitions == []
    later = heartbeat(rig, member_epoch=2)
    assert later.member_epoch == 3
    assert later.assignment.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]
    assert heartbeat(rig, member_epoch=3).assignment is None
    left = heartbeat(rig, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_error_has_a_message(rig: Rig, fields: dict[str, Any], error: ErrorCode) -> None:
    answer = heartbeat(rig, **fields)
    assert answer.error_code == error
    assert answer.error_message


def test_a_group_is_described(rig: Rig) -> None:
    heartbeat(rig, rack_id="r")
    heartbeat(rig, member_epoch=2)
    found, missing, unnamed = describe(rig, "g", "nobody's", "", asks_operations=True)
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable", 3, 3, "simple",
    )  # fmt: skip
    assert found.authorized_operations == GROUP_OPERATIONS
    (member,) = found.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 3)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("client", "/10.0.0.9", ["t"])
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("t", [0, 1])]
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody's not found.")
    assert missing.authorized_operations == NOT_REQUESTED
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


def test_the_feature_may_be_off() -> None:
    for features in (FinalizedFeatures(), FinalizedFeatures({"share.version": 0}, 3)):
        rig = make_rig()
        rig.world.cache.finalized_features = features
        for response in (heartbeat(rig), describe(rig, "g")[0]):
            assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        assert describe_offsets(rig, None).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert alter_offsets(rig, t={0: 1}).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert delete_offsets(rig, "t").error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_coordinator_that_is_not_ready_says_so() -> None:
    rig = make_rig(leads=False)
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        assert heartbeat(rig).error_code == error
        assert describe(rig, "g")[0].error_code == error
        assert describe_offsets(rig, None).error_code == error
        assert alter_offsets(rig, t={0: 1}).error_code == error
        assert delete_offsets(rig, "t").error_code == error
        for partition in (0, 1):
            rig.world.lead(partition, loads=False)


def test_what_older_apis_say_of_it(rig: Rig) -> None:
    heartbeat(rig)
    (old,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (old.error_code, old.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    asked = ConsumerGroupDescribeRequest(group_ids=["g"])
    (other,) = rig.ask(k69_consumer_group_describe, asked, 1).groups
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group."
    )  # fmt: skip
    (listed,) = rig.ask(k16_list_groups, ListGroupsRequest(types_filter=["SHARE"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g", "share", "Stable", "share",
    )  # fmt: skip
    assert rig.ask(k16_list_groups, ListGroupsRequest(types_filter=["consumer"]), 5).groups == []
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (answer,) = rig.ask(k09_offset_fetch, fetch, 9).groups
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, -1)
    request = DeleteGroupsRequest(groups_names=["g"])
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(rig, member_epoch=-1)
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NONE
    assert rig.ask(k16_list_groups, ListGroupsRequest(), 5).groups == []


class TestDescribeOffsets:
    @pytest.fixture
    def rig(self) -> Rig:
        """Group `g` without members, at offset 40 of t0 and with no start of t1 yet."""
        rig = make_rig()
        heartbeat(rig)
        heartbeat(rig, member_epoch=-1)
        alter_offsets(rig, t={0: 40})
        return rig

    @pytest.mark.parametrize("version", [0, 1])
    def test_offsets_and_lags(self, rig: Rig, version: int) -> None:
        for wanted in (None, {"t": [0, 1]}):
            group = describe_offsets(rig, wanted, version=version)
            assert (group.group_id, group.error_code) == ("g", 0)
            (topic,) = group.topics
            assert (topic.topic_name, topic.topic_id) == ("t", T)
            shown = [(p.partition_index, p.start_offset, p.leader_epoch, p.lag) for p in topic.partitions]
            assert shown == [(0, 40, 3, 100 - 40 - 2 if version else -1), (1, -1, 3, -1)]
            assert {p.error_code for p in topic.partitions} == {0}

    def test_what_does_not_exist_has_no_offset(self, rig: Rig) -> None:
        group = describe_offsets(rig, {"t": [7, -1, 0, 0], "w": [0]})
        assert [(t.topic_name, t.topic_id) for t in group.topics] == [("t", T), ("w", ZERO_UUID)]
        assert [(p.partition_index, p.start_offset) for p in group.topics[0].partitions] == [(-1, -1), (0, 40), (7, -1)]
        assert [(p.partition_index, p.start_offset, p.error_code) for p in group.topics[1].partitions] == [(0, -1, 0)]
        assert describe_offsets(rig, {}).topics == []
        assert describe_offsets(rig, None, "nobody's").topics == []

    def test_a_share_coordinator_that_is_away_leaves_no_offset(self, rig: Rig) -> None:
        rig.world.persister.refuses = {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        (partition,) = describe_offsets(rig, {"t": [0]}).topics[0].partitions
        assert (partition.start_offset, partition.leader_epoch, partition.error_code) == (-1, 0, 0)

    def test_a_leader_that_is_away_is_an_error(self, rig: Rig) -> None:
        rig.ends.errors = {0: ErrorCode.LEADER_NOT_AVAILABLE}
        (partition,) = describe_offsets(rig, {"t": [0]}).topics[0].partitions
        assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert partition.error_message

    def test_a_group_that_is_named_over_and_over_is_not_read_over_and_over(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(k90_describe_share_group_offsets, "PARTITIONS_MAX", 5)
        group = described.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        request = described.DescribeShareGroupOffsetsRequest(groups=[group] * 4)
        answered = rig.ask(k90_describe_share_group_offsets, request).groups
        assert [each.error_code for each in answered] == [0, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
        assert answered[3].error_message == "The request asks for too many partitions."

    def test_a_request_without_groups_is_answered(self, rig: Rig) -> None:
        request = described.DescribeShareGroupOffsetsRequest(groups=[])
        assert rig.ask(k90_describe_share_group_offsets, request).groups == []


def test_offsets_are_altered_and_deleted(rig: Rig) -> None:
    answer = alter_offsets(rig, t={0: 7, 9: 1}, w={0: 1})
    assert answer.error_code == 0
    assert [
        (t.topic_name, t.topic_id, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.responses
    ] == [("t", T, [(0, 0), (9, UNKNOWN_PARTITION)]), ("w", ZERO_UUID, [(0, UNKNOWN_PARTITION)])]
    assert answer.responses[1].partitions[0].error_message
    assert rig.world.persister.states == {SharePartitionKey("g", T, 0): (2, 7)}
    heartbeat(rig)
    assert alter_offsets(rig, t={0: 7}).error_code == ErrorCode.NON_EMPTY_GROUP
    refused = delete_offsets(rig, "t")
    assert (refused.error_code, refused.responses) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert refused.error_message
    heartbeat(rig, member_epoch=-1)
    answer = delete_offsets(rig, "t", "u", "t")
    assert [(t.topic_name, t.error_code) for t in answer.responses] == [("t", 0), ("u", UNKNOWN_PARTITION)]
    assert rig.world.persister.states == {}
