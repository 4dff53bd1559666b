"""OffsetForLeaderEpoch on a real log."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k23_offset_for_leader_epoch as epoch_wire
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1, leader_epoch=2, partition_epoch=2)], "__consumer_offsets": [state(1)]})
    for value in (b"a", b"b", b"c"):
        made.answer(produce(batch(value)), 9)
    yield made
    made.close()


def test_the_end_of_an_epoch(rig):
    rig.push({"t": [state(1, leader_epoch=5, partition_epoch=5)]})

    def end_of(epoch, current=-1):
        item = epoch_wire.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = epoch_wire.OffsetForLeaderEpochRequest(
            topics=[epoch_wire.OffsetForLeaderTopic(topic="t", partitions=[item])]
        )
        found = rig.answer(request, 4).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end_of(3) == (0, 2, 3)
    assert end_of(2) == (0, 2, 3)
    assert end_of(2, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(9) == (0, -1, -1)
