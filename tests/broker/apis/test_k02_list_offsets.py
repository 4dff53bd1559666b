"""ListOffsets on real logs, and `replication/offset_queries.py`."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k02_list_offsets as list_wire
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1, leader_epoch=2, partition_epoch=2)]})
    for at_ms in (1000, 3000, 2000):
        made.answer(produce(batch(b"v", timestamp_ms=at_ms)), 9)
    yield made
    made.close()


def offset_at(rig, timestamp, version=11, **about):
    replica_id = about.pop("replica_id", -1)
    topic = about.pop("topic", "t")
    item = list_wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **about)
    request = list_wire.ListOffsetsRequest(
        replica_id=replica_id, topics=[list_wire.ListOffsetsTopic(name=topic, partitions=[item])]
    )
    return rig.answer(request, version).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (-1, 3, 2)),
        (-2, (-1, 0, 2)),
        (-3, (3000, 1, 2)),
        (-4, (-1, 0, 2)),
        (-5, (-1, -1, -1)),
        (-6, (-1, -1, -1)),
        (1500, (3000, 1, 2)),
        (9999, (-1, -1, -1)),
    ],
)
def test_offsets_by_timestamp_and_by_special_value(rig, timestamp, expected):
    found = offset_at(rig, timestamp)
    assert (found.error_code, (found.timestamp, found.offset, found.leader_epoch)) == (0, expected)


def test_errors(rig):
    assert offset_at(rig, -3, 6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset_at(rig, -9).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset_at(rig, -1, topic="x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_at(rig, -1, current_leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    item = list_wire.ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = list_wire.ListOffsetsRequest(
        replica_id=-1, topics=[list_wire.ListOffsetsTopic(name="t", partitions=[item, item])]
    )
    partitions = rig.answer(twice, 11).topics[0].partitions
    assert [p.error_code for p in partitions] == [ErrorCode.INVALID_REQUEST], "named twice, one result"


def test_a_new_leader_with_a_lagging_watermark_returns_no_end(rig):
    rig.push({"w": [state(1, (1, 2), leader_epoch=0)]})
    rig.answer(produce(batch(b"v"), topic="w"), 9)
    rig.push({"w": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    assert offset_at(rig, -1, topic="w").error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_at(rig, -1, 4, topic="w").error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert offset_at(rig, -1, topic="w", replica_id=2).offset == 1
