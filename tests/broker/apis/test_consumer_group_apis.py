"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on the wire, at every version, and older APIs on such groups.

Tests `apis/k68_consumer_group_heartbeat.py` and `apis/k69_consumer_group_describe.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis import (
    k09_offset_fetch,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)
from barnabas.broker.apis.authorized import GROUP_OPERATIONS, NOT_REQUESTED
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.apis.group_rig import Rig
from tests.broker.apis.test_offset_apis import commit

T = b"t" * 16


def heartbeat(rig: Rig, version: int = 1, **fields: Any) -> Any:
    given = {"group_id": "g", "member_id": "m", "member_epoch": 0, **fields}
    if given["member_epoch"] == 0:
        given = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": ["t"], "topic_partitions": [], **given}
    return rig.ask(k68_consumer_group_heartbeat, ConsumerGroupHeartbeatRequest(**given), version)


def describe(rig: Rig, *groups: str, version: int = 1, asks_operations: bool = False) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=asks_operations)
    return rig.ask(k69_consumer_group_describe, request, version).groups


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_goes_on_and_leaves(version: int) -> None:
    rig = Rig()
    joined = heartbeat(rig, version, member_id="m" if version else "")
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5000)
    assert joined.assignment.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]
    assert joined.member_id == "m" if version else len(joined.member_id) == 22
    again = heartbeat(rig, version, member_id=joined.member_id, member_epoch=2)
    assert (again.error_code, again.assignment) == (0, None)
    left = heartbeat(rig, version, member_id=joined.member_id, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_error_has_a_message(fields: dict[str, Any], error: ErrorCode) -> None:
    answer = heartbeat(Rig(), **fields)
    assert answer.error_code == error
    assert answer.error_message


@pytest.mark.parametrize(("epoch", "text"), [(5, "Consumer group g not found."), (-1, "Group g not found.")])
def test_a_member_of_no_group_is_told_so_in_kafkas_words(epoch: int, text: str) -> None:
    answer = heartbeat(Rig(), member_epoch=epoch)
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, text)


def test_a_whole_answer_while_the_write_is_under_way() -> None:
    rig = Rig()
    rig.world.replicas.holds = True
    fields = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, **fields)
    pending = rig.send(k68_consumer_group_heartbeat, request, 1)
    assert not pending.is_there
    rig.world.replicas.release()
    assert pending.get().member_epoch == 2


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described(version: int) -> None:
    rig = Rig()
    heartbeat(rig, instance_id="i", rack_id="r")
    found, missing = describe(rig, "g", "nobody's", version=version, asks_operations=True)
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    assert found.authorized_operations == GROUP_OPERATIONS
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("client", "/10.0.0.9", ["t"])
    for assignment in (member.assignment, member.target_assignment):
        assert [(t.topic_name, t.partitions) for t in assignment.topic_partitions] == [("t", [0, 1])]
    assert member.member_type == (1 if version else -1)
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody's not found.")
    assert missing.authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("how", ["by configuration", "by feature"])
def test_the_protocol_may_be_off(how: str) -> None:
    rig = Rig(group_coordinator_rebalance_protocols=("classic",)) if how == "by configuration" else Rig()
    if how == "by feature":
        rig.world.cache.finalized_features = FinalizedFeatures({"metadata.version": 25}, 3)
    for response in (heartbeat(rig), describe(rig, "g")[0]):
        assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_an_empty_group_id_is_invalid() -> None:
    assert describe(Rig(), "")[0].error_code == ErrorCode.INVALID_GROUP_ID


def test_a_coordinator_that_is_not_ready_says_so() -> None:
    rig = Rig(leads=False)
    assert heartbeat(rig).error_code == ErrorCode.NOT_COORDINATOR
    assert describe(rig, "g")[0].error_code == ErrorCode.NOT_COORDINATOR
    for partition in (0, 1):
        rig.world.lead(partition, loads=False)
    assert heartbeat(rig).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert describe(rig, "g")[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_what_older_apis_say_of_it() -> None:
    rig = Rig()
    heartbeat(rig)
    (old,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (old.error_code, old.group_state) == (0, "Dead")
    (new,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (new.error_code, new.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    (listed,) = rig.ask(k16_list_groups, ListGroupsRequest(types_filter=["CONSUMER"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g", "consumer", "Stable", "consumer",
    )  # fmt: skip
    assert rig.ask(k16_list_groups, ListGroupsRequest(types_filter=["classic"]), 5).groups == []
    request = DeleteGroupsRequest(groups_names=["g"])
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(rig, member_epoch=-1)
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NONE
    assert rig.ask(k16_list_groups, ListGroupsRequest(), 5).groups == []
    rig.world.fail_over()
    assert rig.ask(k16_list_groups, ListGroupsRequest(), 5).groups == []


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE), ("m", 2, ErrorCode.NONE), ("m", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)  # fmt: skip
def test_members_fetch_offsets_in_their_epoch(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    rig = Rig()
    heartbeat(rig)
    group = OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )  # fmt: skip
    (answer,) = rig.ask(k09_offset_fetch, OffsetFetchRequest(groups=[group]), 9).groups
    assert answer.error_code == error


def test_offsets_expire_by_the_time_of_their_commit_unless_somebody_reads_the_topic() -> None:
    rig = Rig()
    heartbeat(rig)
    assert commit(rig, member_id="m", generation_id_or_member_epoch=2) == [0]
    shard = rig.world.coordinator._shard("g")
    assert shard is not None
    for member_epoch, count in ((2, 1), (-1, 1)):
        rig.world.clock.advance_ms(1000)
        heartbeat(rig, member_epoch=member_epoch)
        assert shard.offsets.count == count
    rig.world.clock.advance_ms(60 * 60_000)
    shard.expire()
    assert (shard.offsets.count, shard.consumer_groups) == (0, {})
