"""Every result of CreateTopics, CreatePartitions and DeleteTopics; covers `controller/decisions/topic_names.py` too."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.ids import ZERO_UUID, random_uuid
from barnabas.controller.decisions import topics
from barnabas.controller.decisions.topics import create_partitions, create_topics, delete_topics
from barnabas.controller.image import TOPIC_RESOURCE
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k37_create_partitions as grow_wire
from tests.controller.rig import Rig, manual_topic, topic


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0, 1, 2)
    return rig


def create(rig: Rig, *topics: Any, validate_only: bool = False) -> list[Any]:
    request = create_wire.CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = rig.decide(lambda view: create_topics(view, request))
    return list(response.topics)


def outcome(result: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(result.error_code), result.error_message


def test_a_topic_is_placed_and_described(rig: Rig) -> None:
    (result,) = create(rig, topic("flights", 6, 2))
    assert outcome(result) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (6, 2)
    assert result.topic_id == rig.image.topic_ids["flights"]
    configs = {c.name: c for c in result.configs}
    assert configs["retention.ms"].value == "604800000"
    assert configs["retention.ms"].config_source == 5
    assert [c.name for c in result.configs] == sorted(configs)
    for index in range(6):
        p = rig.partition("flights", index)
        assert len(p.replicas) == 2
        assert p.isr == p.replicas
        assert p.leader == p.replicas[0]
        assert (p.leader_epoch, p.partition_epoch) == (0, 0)


def test_defaults_are_the_controllers() -> None:
    rig = Rig(num_partitions="4", default_replication_factor="2")
    rig.join(0, 1)
    (result,) = create(rig, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_configs_are_kept_and_reported(rig: Rig) -> None:
    (result,) = create(rig, manual_topic("t", [[0]], cleanup_policy="compact"))
    assert rig.image.resource_configs(2, "t") == {"cleanup.policy": "compact"}
    (reported,) = [c for c in result.configs if c.name == "cleanup.policy"]
    assert (reported.value, reported.config_source) == ("compact", 1)


def test_validate_only_responds_and_writes_nothing(rig: Rig) -> None:
    before = rig.image
    (result,) = create(rig, topic("t", 2), validate_only=True)
    assert result.error_code == 0
    assert result.num_partitions == 2
    assert rig.image is before


def test_the_isr_has_only_active_brokers() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.register(2)
    rig.create("t", [[2, 1, 0]])
    assert rig.partition("t").isr == (1, 0)
    assert rig.partition("t").leader == 1


LONG = "a" * 250


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (
            topic(""),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (
            topic(LONG),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{LONG}' is longer than the max allowed length 249",
        ),
        (
            topic("a b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
        (
            topic("x_y"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'x_y' collides with existing topic: x.y",
        ),
        (topic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        (
            topic("t", 0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("t", 1, 4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached "
            "because only 3 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            create_wire.CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=-1,
                assignments=manual_topic("t", [[0]]).assignments,
            ),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            create_wire.CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=1,
                assignments=manual_topic("t", [[0]]).assignments,
            ),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            manual_topic("t", [[]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            manual_topic("t", [[9]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            manual_topic("t", [[1, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            manual_topic("t", [[0, 1], [2]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s).",
        ),
        (
            create_wire.CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    create_wire.CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in (0, 2)
                ],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            create_wire.CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=[0]) for _ in "ab"],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            topic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            manual_topic("t", [[0]], no_such_key="1"),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.key",
        ),
    ],
)
def test_invalid_creations(rig: Rig, asked: Any, code: ErrorCode, message: str) -> None:
    create(rig, topic("old"), topic("x.y"))
    before = rig.image
    (result,) = create(rig, asked)
    assert outcome(result) == (code, message)
    assert rig.image is before


def test_null_configs_are_refused(rig: Rig) -> None:
    asked = topic("t")
    asked.configs = [create_wire.CreatableTopicConfig(name="retention.ms", value=None)]
    (result,) = create(rig, asked)
    assert outcome(result) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    )


def test_fenced_brokers_cannot_take_a_topic() -> None:
    rig = Rig()
    rig.register(0)
    (placed, manual) = create(rig, topic("a"), manual_topic("b", [[0]]))
    assert outcome(placed) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all "
        "their log directories cordoned.",
    )
    assert outcome(manual) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
        "shutdown.",
    )


def test_duplicates_are_refused_and_the_others_created(rig: Rig) -> None:
    results = {r.name: outcome(r) for r in create(rig, topic("a"), topic("b"), topic("a"))}
    assert results == {
        "a": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        "b": (ErrorCode.NONE, None),
    }
    assert set(rig.image.topic_ids) == {"b"}


def test_a_huge_request_is_a_policy_violation(rig: Rig) -> None:
    with pytest.raises(ApiError) as caught:
        create(rig, topic("a", 6000), topic("b", 6000))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


# -- more partitions


def grow(rig: Rig, *topics: Any, validate_only: bool = False) -> list[Any]:
    request = grow_wire.CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    return list(rig.decide(lambda view: create_partitions(view, request)).results)


def more(name: str, count: int, assignments: list[list[int]] | None = None) -> Any:
    return grow_wire.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [grow_wire.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )


def test_a_topic_grows(rig: Rig) -> None:
    rig.create("t", [[0, 1]])
    assert outcome(grow(rig, more("t", 3))[0]) == (ErrorCode.NONE, None)
    assert sorted(rig.image.topic("t").partitions) == [0, 1, 2]
    assert len(rig.partition("t", 2).replicas) == 2
    assert outcome(grow(rig, more("t", 4, [[2, 0]]))[0]) == (ErrorCode.NONE, None)
    assert rig.partition("t", 3).replicas == (2, 0)
    before = rig.image
    assert outcome(grow(rig, more("t", 9), validate_only=True)[0]) == (ErrorCode.NONE, None)
    assert rig.image is before


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (more("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (more("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            more("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            more("t", 4, [[0, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            more("t", 3, [[0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s).",
        ),
    ],
)
def test_invalid_growth(rig: Rig, asked: Any, code: ErrorCode, message: str | None) -> None:
    rig.create("t", [[0, 1], [1, 2]])
    (result,) = grow(rig, asked)
    assert ErrorCode(result.error_code) is code
    if message is not None:
        assert result.error_message == message


def test_growing_twice_in_one_request_is_refused(rig: Rig) -> None:
    rig.create("t", [[0, 1]])
    (result,) = grow(rig, more("t", 2), more("t", 3))
    assert outcome(result) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


# -- deletion


def delete(rig: Rig, *topics: tuple[str | None, bytes], names: list[str] | None = None) -> list[Any]:
    request = delete_wire.DeleteTopicsRequest(
        topics=[delete_wire.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics],
        topic_names=names or [],
    )
    return list(rig.decide(lambda view: delete_topics(view, request, 6)).responses)


def test_topics_are_deleted_by_name_and_by_id(rig: Rig) -> None:
    rig.create("a", [[0]], retention_ms="5")
    b_id = rig.create("b", [[0]])
    rig.create("c", [[0]])
    results = delete(rig, ("a", ZERO_UUID), (None, b_id), names=["c"])
    assert {r.name: r.error_code for r in results} == {"a": 0, "b": 0, "c": 0}
    assert not rig.image.topics
    assert not [resource for resource in rig.image.configs if resource.type == TOPIC_RESOURCE]


def test_invalid_deletions(rig: Rig) -> None:
    unknown = random_uuid()
    a_id, b_id = rig.create("a", [[0]]), rig.create("b", [[0]])
    results = delete(
        rig,
        ("none", ZERO_UUID),
        (None, unknown),
        (None, ZERO_UUID),
        ("a", b_id),
        ("twice", ZERO_UUID),
        ("twice", ZERO_UUID),
        (None, a_id),
        (None, a_id),
    )
    by_name = {(r.name, r.topic_id): outcome(r) for r in results}
    assert by_name[("none", ZERO_UUID)][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_name[(None, unknown)][0] is ErrorCode.UNKNOWN_TOPIC_ID
    assert by_name[(None, ZERO_UUID)] == (
        ErrorCode.INVALID_REQUEST,
        "Neither topic name nor id were specified.",
    )
    assert by_name[("a", b_id)] == (
        ErrorCode.INVALID_REQUEST,
        "You may not specify both topic name and topic id.",
    )
    assert by_name[("twice", ZERO_UUID)] == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert by_name[(None, a_id)] == (ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    assert set(rig.image.topic_ids) == {"a", "b"}


def test_a_topic_named_by_name_and_by_id_is_not_deleted(rig: Rig) -> None:
    a_id = rig.create("a", [[0]])
    (result,) = delete(rig, (None, a_id), ("a", ZERO_UUID))
    assert outcome(result) == (
        ErrorCode.INVALID_REQUEST,
        "The provided topic name maps to an ID that was already supplied.",
    )
    assert "a" in rig.image.topic_ids


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_may_be_disabled(version: int, code: ErrorCode) -> None:
    rig = Rig(delete_topic_enable="false")
    request = delete_wire.DeleteTopicsRequest(topic_names=["a"])
    with pytest.raises(ApiError) as caught:
        rig.decide(lambda view: delete_topics(view, request, version))
    assert caught.value.code is code


def test_a_request_with_too_many_items_is_refused_before_any_is_decided(rig: Rig) -> None:
    before = rig.image
    many = [topic(f"t{n}") for n in range(10_001)]
    with pytest.raises(ApiError, match="Excessively large number of partitions") as refused:
        create(rig, *many)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    grown = [grow_wire.CreatePartitionsTopic(name=t.name, count=2, assignments=None) for t in many]
    with pytest.raises(ApiError, match="excessively"):
        rig.decide(lambda view: create_partitions(view, grow_wire.CreatePartitionsRequest(topics=grown)))
    deleted = delete_wire.DeleteTopicsRequest(topic_names=[t.name for t in many])
    with pytest.raises(ApiError, match="excessively"):
        rig.decide(lambda view: delete_topics(view, deleted, 5))
    assert rig.image is before


def test_a_small_request_for_too_many_partitions_is_refused_early(rig: Rig) -> None:
    placed: list[int] = []
    view = rig.controller.view()
    request = create_wire.CreateTopicsRequest(topics=[topic(f"t{n}", 6_000) for n in range(1_000)])
    with pytest.MonkeyPatch.context() as patch:
        real = topics.place_replicas
        patch.setattr(
            topics, "place_replicas", lambda brokers, count, *rest: placed.append(count) or real(brokers, count, *rest)
        )
        with pytest.raises(ApiError, match="Excessively large number of partitions per request") as refused:
            create_topics(view, request)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert placed == []


@pytest.mark.parametrize(
    "more",
    [topic("b", 10_000), manual_topic("b", [[0]] * 10_000), topic("b", -1)],
    ids=["counted", "assigned", "by default"],
)
def test_too_many_partitions_of_all_topics_are_refused_before_names_are_looked_at(more: Any) -> None:
    """Kafka answers POLICY_VIOLATION for each topic then, and creates none."""
    rig = Rig(num_partitions="10000")
    rig.join(0)
    rig.create("b", [[0]])
    with pytest.raises(ApiError, match="Excessively") as refused:
        create(rig, topic("a", 1), more)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert set(rig.image.topic_ids) == {"b"}


def test_topics_that_may_not_be_created_do_not_count(rig: Rig) -> None:
    request = create_wire.CreateTopicsRequest(topics=[topic("a", 1), topic("b", 10_000)])
    response = rig.decide(lambda view: create_topics(view, request, may_create=lambda name: name == "a"))
    assert [result.error_code for result in response.topics] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
