"""DeleteRecords on real logs, and `replication/delayed/delayed_delete_records.py`."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k21_delete_records as delete_wire
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state

TP = TopicPartition("t", 0)


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1, leader_epoch=2, partition_epoch=2)], "__consumer_offsets": [state(1)]})
    for value in (b"a", b"b", b"c"):
        made.answer(produce(batch(value)), 9)
    yield made
    made.close()


def delete(rig, offset, topic="t", timeout_ms=1000):
    item = delete_wire.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = delete_wire.DeleteRecordsRequest(
        topics=[delete_wire.DeleteRecordsTopic(name=topic, partitions=[item])], timeout_ms=timeout_ms
    )
    return rig.answer(request, 2)


def outcome(response):
    result = response.topics[0].partitions[0]
    return ErrorCode(result.error_code), result.low_watermark


def test_records_are_deleted(rig):
    assert outcome(delete(rig, 2)) == (ErrorCode.NONE, 2)
    assert rig.manager.partition(TP).log.log_start_offset == 2
    assert rig.answer(fetch(1), 12).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcome(delete(rig, -1)) == (ErrorCode.NONE, 3)
    assert outcome(delete(rig, 4)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert outcome(delete(rig, 0, topic="__consumer_offsets")) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert outcome(delete(rig, 0, topic="__transaction_state")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),  # records are kept for ever, until someone deletes them
    ],
)
def test_only_a_compacted_log_keeps_its_records(rig, policy, error):
    rig.manager.partition(TP).log.update_config(rig.config.topic_config({"cleanup.policy": policy}))
    assert outcome(delete(rig, 1))[0] is error


def test_deletion_waits_for_the_followers(rig):
    rig.push({"w": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"v"), topic="w"), 9)
    partition = rig.manager.partition(TopicPartition("w", 0))

    def follow(log_start_offset):
        now_ms = rig.clock.monotonic_ms()
        rig.manager.isr_updates.note_fetch(
            partition, 2, fetch_offset=1, log_start_offset=log_start_offset, now_ms=now_ms, broker_epoch=1
        )
        rig.manager.complete_delayed(partition.tp)

    follow(0)
    waiting = delete(rig, 1, topic="w")
    assert waiting.response is None
    follow(1)
    assert outcome(waiting.response) == (ErrorCode.NONE, 1)


def test_a_deletion_without_a_timeout_expires_at_once(rig):
    rig.push({"w": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"v"), topic="w"), 9)
    partition = rig.manager.partition(TopicPartition("w", 0))
    rig.manager.isr_updates.note_fetch(
        partition, 2, fetch_offset=1, log_start_offset=0, now_ms=rig.clock.monotonic_ms(), broker_epoch=1
    )
    assert outcome(delete(rig, 1, topic="w", timeout_ms=-1))[0] == ErrorCode.REQUEST_TIMED_OUT
