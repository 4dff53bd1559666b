"""Reassignments: start, completion and cancellation."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import Decision
from barnabas.controller.decisions.alter_partition import alter_partition
from barnabas.controller.decisions.reassignment import alter_reassignments, list_reassignments
from barnabas.controller.image import ELR_VERSION, NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k45_alter_partition_reassignments as alter_wire
from barnabas.protocol.messages import k46_list_partition_reassignments as list_wire
from barnabas.protocol.messages import k56_alter_partition as isr_wire
from barnabas.protocol.metadata_records import FeatureLevelRecord
from tests.controller.rig import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0, 1, 2, 3)
    rig.create("t", [[0, 1], [1, 2]])
    return rig


def reassign(
    rig: Rig, replicas: list[int] | None, *, name: str = "t", index: int = 0, allow: bool = True
) -> tuple[ErrorCode, str | None]:
    request = alter_wire.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow,
        topics=[
            alter_wire.ReassignableTopic(
                name=name,
                partitions=[alter_wire.ReassignablePartition(partition_index=index, replicas=replicas)],
            )
        ],
    )
    response = rig.decide(lambda view: alter_reassignments(view, request))
    (answer,) = response.responses[0].partitions
    return ErrorCode(answer.error_code), answer.error_message


def join_isr(rig: Rig, isr: list[int]) -> ErrorCode:
    p = rig.partition("t")
    data = isr_wire.RequestPartitionData(
        partition_index=0,
        leader_epoch=p.leader_epoch,
        partition_epoch=p.partition_epoch,
        new_isr_with_epochs=[
            isr_wire.BrokerState(broker_id=id_, broker_epoch=rig.image.brokers[id_].epoch) for id_ in isr
        ],
    )
    request = isr_wire.AlterPartitionRequest(
        broker_id=p.leader,
        broker_epoch=rig.image.brokers[p.leader].epoch,
        topics=[isr_wire.RequestTopicData(topic_id=rig.image.topic_ids["t"], partitions=[data])],
    )
    response = rig.decide(lambda view: alter_partition(view, request, 3))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def listed(rig: Rig, topics: list[Any] | None = None) -> list[Any]:
    request = list_wire.ListPartitionReassignmentsRequest(topics=topics)
    response = rig.decide(lambda view: Decision([], list_reassignments(view.image, request)))
    return list(response.topics)


def test_a_partition_moves_in_three_stages(rig: Rig) -> None:
    assert reassign(rig, [2, 3]) == (ErrorCode.NONE, None)
    p = rig.partition("t")
    assert (p.replicas, p.adding, p.removing, p.leader) == ((2, 3, 0, 1), (2, 3), (0, 1), 0)
    (topic,) = listed(rig)
    (ongoing,) = topic.partitions
    assert (ongoing.partition_index, ongoing.replicas) == (0, [2, 3, 0, 1])
    assert (ongoing.adding_replicas, ongoing.removing_replicas) == ([2, 3], [0, 1])
    assert join_isr(rig, [0, 1, 2]) is ErrorCode.NONE
    assert rig.partition("t").is_reassigning
    assert join_isr(rig, [0, 1, 2, 3]) is ErrorCode.NEW_LEADER_ELECTED
    p = rig.partition("t")
    assert (p.replicas, p.isr, p.adding, p.removing, p.leader) == ((2, 3), (2, 3), (), (), 2)
    assert listed(rig) == []


def test_a_new_order_of_replicas_applies_at_once(rig: Rig) -> None:
    assert reassign(rig, [1, 0]) == (ErrorCode.NONE, None)
    p = rig.partition("t")
    assert (p.replicas, p.leader, p.is_reassigning) == ((1, 0), 0, False)


def test_a_replica_is_dropped_at_once(rig: Rig) -> None:
    assert reassign(rig, [1]) == (ErrorCode.NONE, None)
    p = rig.partition("t")
    assert (p.replicas, p.isr, p.leader, p.leader_epoch) == ((1,), (1,), 1, 1)


def test_a_reassignment_can_be_cancelled(rig: Rig) -> None:
    reassign(rig, [2, 3])
    join_isr(rig, [0, 1, 2])
    assert reassign(rig, None) == (ErrorCode.NONE, None)
    p = rig.partition("t")
    assert (p.replicas, p.isr, p.is_reassigning) == ((0, 1), (0, 1), False)


def test_cancelling_must_not_lose_data(rig: Rig) -> None:
    reassign(rig, [2])
    join_isr(rig, [0, 2])
    rig.heartbeat(0, want_fence=True)
    assert not rig.partition("t").is_reassigning  # 2 alone was enough to complete it


def test_cancelling_leaves_only_the_former_replicas_after_the_elr_feature_was_disabled() -> None:
    """The ELR from before is all that they have, and no member of it can lead yet."""
    rig = Rig()
    rig.join(0, 1, 2, 3)
    rig.create("t", [[0, 1]], min_insync_replicas="2")
    reassign(rig, [2, 3])
    join_isr(rig, [0, 1, 2])
    for broker_id in (1, 0):
        rig.heartbeat(broker_id, want_fence=True)
    rig.decide(lambda _view: Decision([FeatureLevelRecord(name=ELR_VERSION, feature_level=0)], None))
    assert (rig.partition("t").isr, rig.partition("t").elr) == ((2,), (0,))
    assert reassign(rig, None) == (ErrorCode.NONE, None)
    p = rig.partition("t")
    assert (p.replicas, p.isr, p.elr, p.leader) == ((0, 1), (), (0,), NO_LEADER)
    rig.heartbeat(0)
    p = rig.partition("t")
    assert (p.isr, p.elr, p.leader) == ((0,), (), 0)


@pytest.mark.parametrize(
    ("replicas", "fields", "code", "message"),
    [
        (
            [0],
            {"name": "x"},
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named x.",
        ),
        ([0], {"index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:5."),
        (
            [9],
            {},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            [],
            {},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            [0, 1, 2],
            {"allow": False},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "The replication factor is changed from 2 to 3",
        ),
        (None, {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ],
)
def test_what_is_refused(
    rig: Rig, replicas: list[int] | None, fields: dict[str, Any], code: ErrorCode, message: str | None
) -> None:
    before = rig.image
    assert reassign(rig, replicas, **fields) == (code, message)
    assert rig.image is before


def test_listing_by_name(rig: Rig) -> None:
    reassign(rig, [2, 3])
    asked = list_wire.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])
    other = list_wire.ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0])
    (topic,) = listed(rig, [asked, other])
    assert [p.partition_index for p in topic.partitions] == [0]
