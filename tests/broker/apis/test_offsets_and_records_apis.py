"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k02_list_offsets as list_wire
from barnabas.protocol.messages import k21_delete_records as delete_wire
from barnabas.protocol.messages import k23_offset_for_leader_epoch as epoch_wire
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from tests.support.broker_room import BrokerRoom, batch, fetch, produce, state

TP = TopicPartition("t", 0)


@pytest.fixture
def room():
    made = BrokerRoom()
    made.push({"t": [state(1, leader_epoch=2, partition_epoch=2)], "__consumer_offsets": [state(1)]})
    for at_ms in (1000, 3000, 2000):
        made.answer(produce(batch(b"v", timestamp_ms=at_ms)), 9)
    yield made
    made.close()


def offset_at(room, timestamp, version=11, **about):
    replica_id = about.pop("replica_id", -1)
    topic = about.pop("topic", "t")
    item = list_wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **about)
    request = list_wire.ListOffsetsRequest(
        replica_id=replica_id, topics=[list_wire.ListOffsetsTopic(name=topic, partitions=[item])]
    )
    return room.answer(request, version).topics[0].partitions[0]


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
def test_offsets_by_time_and_by_place(room, timestamp, expected):
    told = offset_at(room, timestamp)
    assert (told.error_code, (told.timestamp, told.offset, told.leader_epoch)) == (0, expected)


def test_offsets_that_are_refused(room):
    assert offset_at(room, -3, 6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset_at(room, -9).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset_at(room, -1, topic="x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_at(room, -1, current_leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    item = list_wire.ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = list_wire.ListOffsetsRequest(
        replica_id=-1, topics=[list_wire.ListOffsetsTopic(name="t", partitions=[item, item])]
    )
    partitions = room.answer(twice, 11).topics[0].partitions
    assert [p.error_code for p in partitions] == [ErrorCode.INVALID_REQUEST], "named twice, answered once"


def test_a_new_leader_whose_watermark_lags_gives_no_end(room):
    room.push({"w": [state(1, (1, 2), leader_epoch=0)]})
    room.answer(produce(batch(b"v"), topic="w"), 9)
    room.push({"w": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    assert offset_at(room, -1, topic="w").error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_at(room, -1, 4, topic="w").error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert offset_at(room, -1, topic="w", replica_id=2).offset == 1


def test_the_end_of_an_epoch(room):
    room.push({"t": [state(1, leader_epoch=5, partition_epoch=5)]})

    def ask(epoch, current=-1):
        item = epoch_wire.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = epoch_wire.OffsetForLeaderEpochRequest(
            topics=[epoch_wire.OffsetForLeaderTopic(topic="t", partitions=[item])]
        )
        told = room.answer(request, 4).topics[0].partitions[0]
        return told.error_code, told.leader_epoch, told.end_offset

    assert ask(3) == (0, 2, 3)
    assert ask(2) == (0, 2, 3)
    assert ask(2, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(9) == (0, -1, -1)


def delete(room, offset, topic="t", timeout_ms=1000):
    item = delete_wire.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = delete_wire.DeleteRecordsRequest(
        topics=[delete_wire.DeleteRecordsTopic(name=topic, partitions=[item])], timeout_ms=timeout_ms
    )
    return room.answer(request, 2)


def outcome(response):
    told = response.topics[0].partitions[0]
    return ErrorCode(told.error_code), told.low_watermark


def test_records_are_deleted(room):
    assert outcome(delete(room, 2)) == (ErrorCode.NONE, 2)
    assert offset_at(room, -2).offset == 2
    assert room.answer(fetch(1), 12).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcome(delete(room, -1)) == (ErrorCode.NONE, 3)
    assert outcome(delete(room, 4)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert outcome(delete(room, 0, topic="__consumer_offsets")) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_deletion_waits_for_the_followers(room):
    room.push({"w": [state(1, (1, 2))]})
    room.answer(produce(batch(b"v"), topic="w"), 9)
    partition = room.manager.partition(TopicPartition("w", 0))

    def follow(log_start_offset):
        room.manager.update_follower(
            partition, 2, fetch_offset=1, log_start_offset=log_start_offset, leader_log_end_offset=1, broker_epoch=1
        )
        room.manager.complete_delayed(partition.tp)

    follow(0)
    waiting = delete(room, 1, topic="w")
    assert waiting.response is None
    follow(1)
    assert outcome(waiting.response) == (ErrorCode.NONE, 1)


def test_a_deletion_without_time_to_wait_is_answered_at_once(room):
    room.push({"w": [state(1, (1, 2))]})
    room.answer(produce(batch(b"v"), topic="w"), 9)
    partition = room.manager.partition(TopicPartition("w", 0))
    room.manager.update_follower(
        partition, 2, fetch_offset=1, log_start_offset=0, leader_log_end_offset=1, broker_epoch=1
    )
    assert outcome(delete(room, 1, topic="w", timeout_ms=-1))[0] == ErrorCode.REQUEST_TIMED_OUT


def test_producer_ids_come_from_blocks(room):
    def ask(**about):
        told = room.answer(InitProducerIdRequest(transactional_id=None, **about), 4)
        return told.error_code, told.producer_id, told.producer_epoch

    assert ask() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert ask()[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ((_, on_done),) = room.channel.sent
    on_done(AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=10))
    assert [ask() for _ in range(9)] == [(0, 1000 + i, 0) for i in range(9)]
    assert len(room.channel.sent) == 2  # nine tenths are used: the next block is asked for
    room.channel.sent[1][1](AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=10))
    assert [ask()[1] for _ in range(2)] == [1009, 5000]
    assert ask(producer_id=5)[0] == ErrorCode.INVALID_REQUEST
    transactional = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    assert room.answer(transactional, 4).error_code == ErrorCode.NOT_COORDINATOR
