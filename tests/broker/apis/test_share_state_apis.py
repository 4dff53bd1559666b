"""The APIs of the share coordinator, on a broker without sockets; finding the coordinator of a share partition.

Tests `apis/share_state.py`, `apis/k83_initialize_share_group_state.py`, `apis/k84_read_share_group_state.py`,
`apis/k85_write_share_group_state.py`, `apis/k86_delete_share_group_state.py` and
`apis/k87_read_share_group_state_summary.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k10_find_coordinator as find
from barnabas.protocol.messages import k83_initialize_share_group_state as initialize
from barnabas.protocol.messages import k84_read_share_group_state as read
from barnabas.protocol.messages import k85_write_share_group_state as write
from barnabas.protocol.messages import k86_delete_share_group_state as delete
from barnabas.protocol.messages import k87_read_share_group_state_summary as summary
from barnabas.protocol.schema import Message
from tests.support.broker.broker_rig import BrokerRig, state, topic_id

TOPIC, GONE = topic_id("t"), topic_id("gone")
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def rig() -> BrokerRig:
    rig = BrokerRig()
    rig.push({SHARE_GROUP_STATE_TOPIC: [state(1)], "t": [state(1), state(1)]})
    rig.share_coordinator.run_pending_jobs()
    return rig


def initialized(*partitions: int, topic: bytes = TOPIC, group: str = "g") -> Message:
    return initialize.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            initialize.InitializeStateData(
                topic_id=topic,
                partitions=[initialize.PartitionData(partition=n, state_epoch=1, start_offset=5) for n in partitions],
            )
        ],
    )


def written(partition: int, state_epoch: int = 1) -> Message:
    return write.WriteShareGroupStateRequest(
        group_id="g",
        topics=[
            write.WriteStateData(
                topic_id=TOPIC,
                partitions=[
                    write.PartitionData(
                        partition=partition,
                        state_epoch=state_epoch,
                        leader_epoch=0,
                        start_offset=6,
                        delivery_complete_count=2,
                        state_batches=[
                            write.StateBatch(first_offset=5, last_offset=7, delivery_state=2, delivery_count=1)
                        ],
                    )
                ],
            )
        ],
    )


def read_of(*partitions: int, leader_epoch: int = 0) -> Message:
    return read.ReadShareGroupStateRequest(
        group_id="g",
        topics=[
            read.ReadStateData(
                topic_id=TOPIC,
                partitions=[read.PartitionData(partition=n, leader_epoch=leader_epoch) for n in partitions],
            )
        ],
    )


def summary_of(*partitions: int) -> Message:
    return summary.ReadShareGroupStateSummaryRequest(
        group_id="g",
        topics=[
            summary.ReadStateSummaryData(
                topic_id=TOPIC, partitions=[summary.PartitionData(partition=n, leader_epoch=-1) for n in partitions]
            )
        ],
    )


def deleted(*partitions: int) -> Message:
    return delete.DeleteShareGroupStateRequest(
        group_id="g",
        topics=[
            delete.DeleteStateData(topic_id=TOPIC, partitions=[delete.PartitionData(partition=n) for n in partitions])
        ],
    )


def errors(response: Any) -> list[tuple[int, int]]:
    return [(p.partition, p.error_code) for topic in response.results for p in topic.partitions]


def test_a_share_partition_from_beginning_to_end(rig: BrokerRig) -> None:
    assert errors(rig.answer(initialized(0, 1), 0)) == [(0, 0), (1, 0)]
    assert errors(rig.answer(written(0), 1)) == [(0, 0)]
    (topic,) = rig.answer(read_of(0, 1), 0).results
    assert topic.topic_id == TOPIC
    assert topic.partitions == [
        read.PartitionResult(
            partition=0,
            error_code=0,
            state_epoch=1,
            start_offset=6,
            state_batches=[read.StateBatch(first_offset=6, last_offset=7, delivery_state=2, delivery_count=1)],
        ),
        read.PartitionResult(partition=1, error_code=0, state_epoch=1, start_offset=5),
    ]
    (topic,) = rig.answer(summary_of(0, 1), 1).results
    assert topic.partitions == [
        summary.PartitionResult(
            partition=0, error_code=0, state_epoch=1, leader_epoch=0, start_offset=6, delivery_complete_count=2
        ),
        summary.PartitionResult(
            partition=1, error_code=0, state_epoch=1, leader_epoch=0, start_offset=5, delivery_complete_count=0
        ),
    ]
    assert errors(rig.answer(deleted(0, 1), 0)) == [(0, 0), (1, 0)]
    assert errors(rig.answer(read_of(0), 0)) == [(0, INVALID)]


def test_each_partition_has_its_own_error(rig: BrokerRig) -> None:
    rig.answer(initialized(0), 0)
    (topic,) = rig.answer(written(0, state_epoch=0), 0).results
    assert topic.partitions == [
        write.PartitionResult(
            partition=0,
            error_code=ErrorCode.FENCED_STATE_EPOCH,
            error_message=ErrorCode.FENCED_STATE_EPOCH.message,
        )
    ]
    assert errors(rig.answer(read_of(0, 1, -1), 0)) == [(0, 0), (1, INVALID), (-1, INVALID)]
    assert errors(rig.answer(initialized(7), 0)) == [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert errors(rig.answer(initialized(0, topic=GONE), 0)) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert errors(rig.answer(summary_of(7), 0)) == [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert errors(rig.answer(deleted(7), 0)) == [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_partition_that_is_named_twice_is_answered_twice(rig: BrokerRig) -> None:
    assert errors(rig.answer(initialized(0, 0), 0)) == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    "message",
    [
        initialized(0, group=""),
        initialized(),
        read.ReadShareGroupStateRequest(group_id="g", topics=[]),
    ],
)
def test_a_request_that_names_nothing_is_answered_with_nothing(rig: BrokerRig, message: Message) -> None:
    assert rig.answer(message, 0).results == []


def test_no_client_may_call_them() -> None:
    rig = BrokerRig()
    for key in range(83, 88):
        api = rig.services.table[key]
        assert api.nodes_only is not None
        assert api.nodes_only(None)  # type: ignore[arg-type]
        assert ApiKey(key).name.endswith(("_SHARE_GROUP_STATE", "_SHARE_GROUP_STATE_SUMMARY"))


# -- the coordinator of a share partition


def asked(key: str, version: int = 6) -> Message:
    if version >= 4:
        return find.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    return find.FindCoordinatorRequest(key_type=2, key=key)


def test_the_leader_of_its_partition_coordinates_a_share_partition(rig: BrokerRig) -> None:
    (found,) = rig.answer(asked("g:AAAAAAAAAAAAAAAAAAAAAQ:0"), 6).coordinators
    assert (found.error_code, found.node_id, found.host) == (0, 1, "b1")


def test_the_topic_is_created_when_it_is_asked_for() -> None:
    rig = BrokerRig()
    (found,) = rig.answer(asked("g:AAAAAAAAAAAAAAAAAAAAAQ:0"), 6).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (topic,) = rig.channel.sent[0][0].topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (SHARE_GROUP_STATE_TOPIC, 50, 3)
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize(("key", "version"), [("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 5), ("g", 6)])
def test_no_other_request_finds_one(rig: BrokerRig, key: str, version: int) -> None:
    (found,) = rig.answer(asked(key, version), version).coordinators
    assert found.error_code == INVALID
