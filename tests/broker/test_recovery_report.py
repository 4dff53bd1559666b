"""A broker's report for a lost controller: all of its logs, or none, and no producer id that a client invented."""

from __future__ import annotations

import pytest

from barnabas.broker.recovery_report import RecoveryReporter
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.broker_room import BROKER_EPOCH, BROKER_ID, CLUSTER_ID, BrokerRoom, batch, produce, state


def reporter_of(room: BrokerRoom) -> RecoveryReporter:
    return RecoveryReporter(
        broker_id=BROKER_ID,
        cluster_id=CLUSTER_ID,
        broker_epoch=lambda: BROKER_EPOCH,
        fs=room.fs,
        log_manager=room.log_manager,
        replica_manager=room.manager,
        metadata_cache=room.cache,
        dynamic_config=room.dynamic_config,
        producer_ids=room.producer_ids,
        push_state=room.push_state,
    )


def test_a_producer_id_that_nobody_gave_does_not_use_up_all_others() -> None:
    room = BrokerRoom()
    room.push({"t": [state(1)]})
    for producer_id in (7, 2**63 - 1):
        data = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
        answer = room.answer(produce(data), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert reporter_of(room).report().highest_producer_id == 7


def test_a_broker_whose_log_directory_is_offline_does_not_report_the_rest_as_everything() -> None:
    room = BrokerRoom(log_dirs="/a,/b")
    room.push({"t": [state(1), state(1)]})
    reporter = reporter_of(room)
    assert sorted((log.topic, log.partition, log.isr) for log in reporter.report().logs) == [
        ("t", 0, [1]),
        ("t", 1, [1]),
    ]
    failed = room.log_manager.directories[0]
    room.log_manager.fail_directory(failed, OSError("it broke"))
    room.log_manager.forget_directory(failed)
    with pytest.raises(ApiError) as refusal:
        reporter.report()
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
