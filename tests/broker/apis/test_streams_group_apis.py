"""The APIs of streams groups on the wire, and older APIs on such groups.

Tests `apis/k88_streams_group_heartbeat.py`, `apis/k89_streams_group_describe.py` and `apis/streams_topology.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis import (
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k88_streams_group_heartbeat,
    k89_streams_group_describe,
)
from barnabas.broker.apis.authorized import GROUP_OPERATIONS
from barnabas.broker.apis.streams_topology import CREATED_TOPICS_MAX, PARTS_MAX
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k88_streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopicPartition,
    Topology,
)
from barnabas.protocol.messages.k89_streams_group_describe import StreamsGroupDescribeRequest
from tests.broker.apis.group_rig import Rig
from tests.broker.authorization.kit import ask, lacking

INVALID = ErrorCode.INVALID_REQUEST
INVALID_TOPOLOGY = ErrorCode.STREAMS_INVALID_TOPOLOGY
TOO_LARGE = f"A topology can have at most {PARTS_MAX} subtopologies and topics in all."
BOTH = [TaskIds(subtopology_id="0", partitions=[0, 1])]
STALE = 0  # the status of a member with an older topology
MISSING = 3  # the status of missing internal topics


def topology(**fields: Any) -> Topology:
    return Topology(epoch=1, subtopologies=[Subtopology(**{"subtopology_id": "0", "source_topics": ["t"], **fields})])


def stateful(*names: str) -> Topology:
    """A topology with these changelogs."""
    configs = [KeyValue(key="cleanup.policy", value="compact")]
    return topology(state_changelog_topics=[TopicInfo(name=name, topic_configs=configs) for name in names])


JOINS: dict[str, Any] = {
    "member_epoch": 0, "rebalance_timeout_ms": 1000, "process_id": "p", "topology": topology(), "active_tasks": [],
    "standby_tasks": [], "warmup_tasks": [],
}  # fmt: skip


def message(**fields: Any) -> StreamsGroupHeartbeatRequest:
    given = JOINS if fields.get("member_epoch", 0) == 0 else {}
    return StreamsGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", **given, **fields})


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.world.cache.finalized_features = FinalizedFeatures({"streams.version": 1}, 3)
    return rig


def heartbeat(rig: Rig, **fields: Any) -> Any:
    return rig.ask(k88_streams_group_heartbeat, message(**fields))


def describe(rig: Rig, *groups: str, asks_operations: bool = False) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=asks_operations)
    return rig.ask(k89_streams_group_describe, request).groups


def test_a_member_joins_gets_its_tasks_and_leaves(rig: Rig) -> None:
    joined = heartbeat(rig)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert (joined.heartbeat_interval_ms, joined.status) == (5000, [])
    assert (joined.active_tasks, joined.standby_tasks, joined.warmup_tasks) == (BOTH, [], [])
    assert (joined.endpoint_information_epoch, joined.partitions_by_user_endpoint) == (0, None)
    again = heartbeat(rig, member_epoch=2)
    assert (again.error_code, again.active_tasks, again.standby_tasks, again.warmup_tasks) == (0, None, None, None)
    left = heartbeat(rig, member_epoch=-1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms, left.status) == (0, -1, 0, [])


def test_endpoints_are_shown(rig: Rig) -> None:
    endpoint = Endpoint(host="h", port=65_535)
    joined = heartbeat(rig, user_endpoint=endpoint)
    (shown,) = joined.partitions_by_user_endpoint
    assert (shown.user_endpoint, shown.active_partitions, shown.standby_partitions) == (
        endpoint, [TopicPartition(topic="t", partitions=[0, 1])], [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"member_id": " "}, INVALID, "MemberId can't be empty."),
        ({"group_id": ""}, INVALID, "GroupId can't be empty."),
        ({"rack_id": ""}, INVALID, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, INVALID, "RebalanceTimeoutMs must be provided in first request."),
        ({"topology": None}, INVALID, "Topology must be non-null when (re-)joining."),
        ({"active_tasks": None}, INVALID, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": BOTH}, INVALID, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": None}, INVALID, "WarmupTasks must be empty when (re-)joining."),
        ({"member_epoch": 1, "topology": topology()}, INVALID, "Topology can only be provided when (re-)joining."),
        ({"member_epoch": 1, "active_tasks": []}, INVALID, "If one task-type is non-null, all must be non-null."),
        ({"member_epoch": -2}, INVALID, "InstanceId can't be null."),
        ({"member_epoch": -3}, INVALID, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"instance_id": "i"}, INVALID, "Static membership is not yet supported."),
        ({"task_offsets": []}, INVALID, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": [TaskOffset()]}, INVALID, "TaskEndOffsets are not supported yet."),
        ({"warmup_tasks": BOTH}, INVALID, "WarmupTasks are not supported yet."),
        (
            {"topology": topology(source_topic_regex=["t.*"])}, INVALID,
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            {"topology": topology(source_topics=["t", "__consumer_offsets"])}, INVALID_TOPOLOGY,
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        (
            {"topology": topology(repartition_sink_topics=["a b"], source_topics=["t", "/"])}, INVALID_TOPOLOGY,
            "Topic names /,a b are not valid topic names.",
        ),
        (
            {"topology": topology(source_topics=[f"/{n:02}" for n in range(12)])}, INVALID_TOPOLOGY,
            "Topic names /00,/01,/02,/03,/04,/05,/06,/07,/08,/09 and 2 more are not valid topic names.",
        ),
        (
            {"topology": Topology(epoch=1, subtopologies=topology().subtopologies * 2)}, INVALID_TOPOLOGY,
            "A subtopology is there twice.",
        ),
        (
            {"topology": topology(copartition_groups=[CopartitionGroup(source_topics=[1])])}, INVALID_TOPOLOGY,
            "A copartition group of subtopology 0 names a topic that does not exist.",
        ),
        ({"topology": topology(source_topics=["t"] * PARTS_MAX)}, INVALID_TOPOLOGY, TOO_LARGE),
        (
            {"topology": topology(copartition_groups=[CopartitionGroup(source_topics=[0] * PARTS_MAX)])},
            INVALID_TOPOLOGY, TOO_LARGE,
        ),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found."),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)  # fmt: skip
def test_what_is_refused(rig: Rig, fields: dict[str, Any], error: ErrorCode, text: str) -> None:
    answer = heartbeat(rig, **fields)
    assert (answer.error_code, answer.error_message) == (error, text)
    assert rig.world.coordinator.shards()[0].streams_groups == {}


def test_a_status_fits_into_the_response_whatever_the_ids_of_members_are(rig: Rig) -> None:
    """Else every member of the group would get UNKNOWN_SERVER_ERROR, and the log an exception each time."""
    heartbeat(rig, member_id="x" * 32_767)
    heartbeat(rig, member_id="m")
    heartbeat(rig, member_id="x" * 32_767, member_epoch=-1, shutdown_application=True)
    (status,) = heartbeat(rig).status
    assert status.status_detail.startswith("Streams group member xxx")
    assert len(status.status_detail) < 32_767


# Internal topics


def status_of(answer: Any) -> str:
    (status,) = answer.status
    assert status.status_code == MISSING
    detail: str = status.status_detail
    return detail


def test_missing_internal_topics_are_created(rig: Rig) -> None:
    answer = heartbeat(rig, topology=stateful("g-c"))
    assert status_of(answer) == "Internal topics are missing: g-c"
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    assert rig.creation.of_streams == [
        CreatableTopic(name="g-c", num_partitions=2, replication_factor=-1, configs=configs)
    ]
    assert rig.creation.keep_errors_ms == 10_000


def test_why_topics_are_not_created_is_reported(rig: Rig) -> None:
    rig.creation.failed = {f"c{n}": f"no {n}" for n in range(5)}
    assert status_of(heartbeat(rig, topology=stateful("c0", "d"))) == (
        "Internal topics are missing: c0, d; Creation failed: c0 (no 0)."
    )
    answer = heartbeat(rig, group_id="h", topology=stateful("c0", "c1", "c2", "c3", "c4"))
    assert status_of(answer).endswith("; Creation failed: c0 (no 0), c1 (no 1), c2 (no 2) and 2 more.")


def test_a_heartbeat_has_a_bounded_number_of_topics_created(rig: Rig) -> None:
    """Else a heartbeat of 100 bytes sends the controller a request of a megabyte, and fills the log with its errors."""
    names = [f"c{n:05}" for n in range(CREATED_TOPICS_MAX + 1)]
    assert status_of(heartbeat(rig, topology=stateful(*names))).startswith("Internal topics are missing: c00000")
    assert [topic.name for topic in rig.creation.of_streams] == names[:-1]


@pytest.mark.parametrize(("partitions", "created"), [(2_000, "ab"), (4_000, "a"), (20_000, "a")])
def test_the_controller_is_not_asked_for_more_partitions_than_it_creates_at_once(
    rig: Rig, partitions: int, created: str
) -> None:
    reads = [TopicInfo(name=name, partitions=partitions) for name in "ab"]
    answer = heartbeat(rig, topology=topology(repartition_sink_topics=["a", "b"], repartition_source_topics=reads))
    assert status_of(answer) == "Internal topics are missing: a, b"
    assert "".join(topic.name for topic in rig.creation.of_streams) == created


@pytest.mark.parametrize(
    ("missing", "created"),
    [
        ((), ["a", "b"]),
        ((rights.STREAMS_CREATE_ANY,), ["a", "b"]),
        ((rights.STREAMS_CREATE_TOPIC,), ["a", "b"]),
        ((rights.STREAMS_CREATE_ANY, rights.STREAMS_CREATE_TOPIC), []),
    ],
)
def test_a_member_creates_topics_with_its_own_rights(rig: Rig, missing: Any, created: list[str]) -> None:
    answer = ask(rig.services, message(topology=stateful("a", "b")), 0, lacking(*missing, name="b"))
    assert [topic.name for topic in rig.creation.of_streams] == created
    refusal = "" if created else "; Unauthorized to CREATE on topics b."
    assert status_of(answer) == f"Internal topics are missing: a, b{refusal}"


def test_a_member_creates_no_topics_that_its_own_topology_does_not_name(rig: Rig) -> None:
    """Another client may have joined first, with a newer topology: this member's rights are not for its topics."""
    newer = stateful("not-mine")
    newer.epoch = 2
    heartbeat(rig, member_id="other", topology=newer)
    rig.creation.of_streams.clear()
    joined = heartbeat(rig)
    assert [status.status_code for status in joined.status] == [STALE, MISSING]
    heartbeat(rig, member_epoch=joined.member_epoch)
    assert rig.creation.of_streams == []
    heartbeat(rig, member_id="other", topology=newer)
    assert [topic.name for topic in rig.creation.of_streams] == ["not-mine"]


# Groups


def test_a_group_is_described(rig: Rig) -> None:
    tags = [KeyValue(key="zone", value="1")]
    heartbeat(rig, user_endpoint=Endpoint(host="h", port=1), client_tags=tags, rack_id="r")
    group, unknown, nameless = describe(rig, "g", "x", "", "g", asks_operations=True)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.authorized_operations == GROUP_OPERATIONS
    (subtopology,) = group.topology.subtopologies
    assert (group.topology.epoch, subtopology.subtopology_id, subtopology.source_topics) == (1, "0", ["t"])
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.topology_epoch) == ("m", 2, 1)
    assert (member.client_id, member.client_host, member.process_id) == ("client", "/10.0.0.9", "p")
    assert (member.user_endpoint.host, member.user_endpoint.port, member.rack_id) == ("h", 1, "r")
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "1")]
    for assignment in (member.assignment, member.target_assignment):
        assert [(ids.subtopology_id, ids.partitions) for ids in assignment.active_tasks] == [("0", [0, 1])]
        assert assignment.standby_tasks == assignment.warmup_tasks == []
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_topology_is_described_as_it_was_sent_until_its_topics_exist(rig: Rig) -> None:
    heartbeat(rig, topology=stateful("u-c"))
    (group,) = describe(rig, "g")
    (topic,) = group.topology.subtopologies[0].state_changelog_topics
    assert (group.group_state, topic.name, topic.partitions) == ("NotReady", "u-c", 0)
    assert [(config.key, config.value) for config in topic.topic_configs] == [("cleanup.policy", "compact")]


def test_the_feature_may_be_off(rig: Rig) -> None:
    for features in (FinalizedFeatures(), FinalizedFeatures({"streams.version": 0}, 3)):
        rig.world.cache.finalized_features = features
        for response in (heartbeat(rig), describe(rig, "g")[0]):
            assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_a_coordinator_that_is_not_ready_says_so() -> None:
    rig = Rig(leads=False)
    rig.world.cache.finalized_features = FinalizedFeatures({"streams.version": 1}, 3)
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        assert heartbeat(rig).error_code == error
        assert describe(rig, "g")[0].error_code == error
        for partition in (0, 1):
            rig.world.lead(partition, loads=False)


def test_what_older_apis_say_of_it(rig: Rig) -> None:
    heartbeat(rig)
    (old,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (old.error_code, old.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    (listed,) = rig.ask(k16_list_groups, ListGroupsRequest(types_filter=["STREAMS"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g", "streams", "Stable", "streams",
    )  # fmt: skip
    request = DeleteGroupsRequest(groups_names=["g"])
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(rig, member_epoch=-1)
    assert rig.ask(k42_delete_groups, request).results[0].error_code == ErrorCode.NONE
    assert rig.ask(k16_list_groups, ListGroupsRequest(), 5).groups == []


@pytest.mark.parametrize("name", ["NotReady", "notready", "not_ready", " NOT_READY "])
def test_groups_that_are_not_ready_are_found_by_both_names(rig: Rig, name: str) -> None:
    heartbeat(rig, topology=topology(source_topics=["nothing"]))
    (group,) = rig.ask(k16_list_groups, ListGroupsRequest(states_filter=[name]), 5).groups
    assert (group.group_id, group.group_state, group.group_type) == ("g", "NotReady", "streams")
    assert rig.ask(k16_list_groups, ListGroupsRequest(states_filter=["stable"]), 5).groups == []
