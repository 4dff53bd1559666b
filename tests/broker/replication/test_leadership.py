"""What a push makes of the replicas and logs of this broker."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord
from barnabas.protocol.push_tags import FULL, set_records
from tests.support.broker_room import BROKER_EPOCH, BROKER_ID, BrokerRoom, batch, produce, state, topic_id

TP = TopicPartition("t", 0)


@pytest.fixture
def room():
    made = BrokerRoom()
    yield made
    made.close()


def errors_of(response):
    return [p.error_code for topic in response.topics for p in topic.partition_errors]


def test_commands_of_the_past_are_refused(room):
    room.push({"t": [state(1)]})
    old_broker = room.answer(room.leader_and_isr({"t": [state(1)]}, broker_epoch=BROKER_EPOCH - 1), 7)
    assert old_broker.error_code == ErrorCode.STALE_BROKER_EPOCH
    room.answer(room.leader_and_isr({}, controller_epoch=3, offset=30), 7)
    old_controller = room.answer(room.leader_and_isr({}, controller_epoch=2, offset=30), 7)
    assert old_controller.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    newer = room.answer(room.leader_and_isr({}, broker_epoch=BROKER_EPOCH + 5, controller_epoch=3, offset=30), 7)
    assert newer.error_code == ErrorCode.NONE  # the controller knows of our registration before we do


def test_before_its_registration_a_broker_obeys_nobody(room):
    room.push_gate.broker_epoch = -1
    for_the_process_before = room.answer(room.leader_and_isr({"t": [state(1)]}, broker_epoch=BROKER_EPOCH), 7)
    assert for_the_process_before.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert room.manager.find(TP) is None


def test_an_older_leader_epoch_is_refused_alone(room):
    room.push({"t": [state(1, leader_epoch=4, partition_epoch=4)], "u": [state(1)]})
    answer = room.push({"t": [state(1, leader_epoch=3, partition_epoch=5)], "u": [state(1)]})
    assert sorted(errors_of(answer)) == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]


def test_a_deleted_topic_leaves_nothing(room):
    room.push({"t": [state(1)]})
    room.answer(produce(batch(b"a")), 9)
    room.stop_replica(TP, leader_epoch=-2, delete=True)
    assert room.manager.find(TP) is None
    assert room.log_manager.get_log(TP) is None
    assert room.listening.heard[-1] == ("resigned", TP, None)


def test_a_stop_of_an_older_epoch_is_fenced(room):
    room.push({"t": [state(1, leader_epoch=2, partition_epoch=2)]})
    answer = room.stop_replica(TP, leader_epoch=1, delete=True)
    assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert room.manager.find(TP) is not None


def test_a_full_push_sets_aside_what_it_does_not_name_and_logs_of_former_topics(room):
    room.push({"t": [state(1)], "gone": [state(1)]})
    room.answer(produce(batch(b"a")), 9)
    room.push({"t": [state(1)]}, type_=FULL, incarnation=1)
    assert room.log_manager.get_log(TopicPartition("gone", 0)) is None
    assert room.manager.find(TopicPartition("gone", 0)) is None
    assert room.manager.partition(TP).log.log_end_offset == 0  # a new topic of the same name
    assert set(room.cache.snapshot.topics) == {"t"}
    kept = {stray.tp: stray for stray in room.log_manager.strays}
    assert {tp: stray.note.topic_id for tp, stray in kept.items()} == {
        TP: topic_id("t"),
        TopicPartition("gone", 0): topic_id("gone"),
    }
    assert kept[TP].size_bytes > 0


def test_an_empty_full_push_deletes_nothing(room):
    room.push({"t": [state(1), state(1)]})
    room.answer(produce(batch(b"a")), 9)
    room.push({}, type_=FULL)
    room.advance_ms(120_000)
    assert sorted(stray.tp for stray in room.log_manager.strays) == [TP, TopicPartition("t", 1)]
    assert all(room.fs.exists(stray.path) for stray in room.log_manager.strays)


def test_a_topic_is_deleted_by_its_id_only(room):
    room.push({"t": [state(1)]})
    room.answer(produce(batch(b"a")), 9)
    for records in ([], [RemoveTopicRecord(topic_id=topic_id("t", 1))]):
        answer = room.stop_replica(TP, leader_epoch=-2, delete=True, records=records)
        assert answer.partition_errors[0].error_code == ErrorCode.NONE
        assert room.manager.partition(TP).log.log_end_offset == 1
    room.stop_replica(TP, leader_epoch=-2, delete=True)
    assert room.manager.find(TP) is None
    assert room.log_manager.strays == []


def test_a_replica_that_moved_away_is_deleted_by_the_record_that_does_not_name_it(room):
    room.push({"t": [state(1)]})
    here = PartitionRecord(topic_id=topic_id("t"), partition_id=0, replicas=[BROKER_ID, 2])
    other = PartitionRecord(topic_id=topic_id("t"), partition_id=1, replicas=[2])
    room.stop_replica(TP, leader_epoch=0, delete=True, records=[here, other])
    assert room.manager.find(TP) is not None
    gone = PartitionRecord(topic_id=topic_id("t"), partition_id=0, replicas=[2])
    room.stop_replica(TP, leader_epoch=0, delete=True, records=[gone])
    assert (room.manager.find(TP), room.log_manager.get_log(TP)) == (None, None)
    assert room.log_manager.strays == []


def test_watermarks_survive_a_restart(room):
    room.push({"t": [state(1, (1, 2))]})
    room.answer(produce(batch(b"a", b"b")), 9)
    partition = room.manager.partition(TP)
    partition.update_follower(2, fetch_offset=1, log_start_offset=0, leader_log_end_offset=2, broker_epoch=1)
    assert partition.high_watermark == 1
    room.high_watermarks.write(room.manager)
    room.close()
    again = BrokerRoom(room.fs)
    again.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]}, type_=FULL)
    assert (again.manager.partition(TP).high_watermark, again.manager.partition(TP).log.log_end_offset) == (1, 2)
    again.close()


def test_a_lone_replica_has_its_watermark_at_the_end_after_a_crash(room):
    room.push({"t": [state(1)]})
    room.answer(produce(batch(b"a", b"b")), 9)
    room.close()
    again = BrokerRoom(room.fs)
    again.push({"t": [state(1, leader_epoch=1, partition_epoch=1)]}, type_=FULL)
    assert again.manager.partition(TP).high_watermark == 2
    again.close()


def test_configs_come_with_the_push(room):
    def tagged(value):
        record = ConfigRecord(resource_type=2, resource_name="t", name="max.message.bytes", value=value)
        request = room.leader_and_isr({"t": [state(1)]})
        set_records(request, [record])
        room.answer(request, 7)
        return room.manager.partition(TP).log.config.max_message_bytes

    default = room.config.topic_config().max_message_bytes
    assert tagged("1000") == 1000
    assert tagged(None) == default


def test_the_offset_of_the_push_is_noted_and_clients_are_let_in_once(room):
    told = []
    room.cache.on_caught_up = lambda: told.append(room.cache.offset)
    room.push({"t": [state(1)]})
    room.push({"t": [state(1)]})
    assert (room.cache.offset, room.woken, told) == (20, 2, [20])


def test_gauges_count_partitions(room):
    room.push({"t": [state(1, (1, 2), isr=(1,)), state(2, (1, 2))]})
    assert (len(room.manager.partitions()), len(room.manager.led_partitions())) == (2, 1)
    assert room.manager.partition(TP).is_under_replicated()


def test_a_broker_that_is_about_to_leave_copies_nothing_once_it_is_out_of_the_isr(room):
    room.push({"t": [state(1, (1, 2)), state(2, (1, 2)), state(2, (1, 2))]})
    assert {tp.partition for tp in room.fetchers.followed} == {1, 2}
    room.leadership.is_leaving = True
    told = [
        state(2, (1, 2), (2,), leader_epoch=1, partition_epoch=1),
        state(2, (1, 2), (2,), partition_epoch=1),
        state(2, (1, 2), partition_epoch=1),
    ]
    room.push({"t": told})
    assert {tp.partition for tp in room.fetchers.followed} == {2}
    assert not room.manager.partition(TopicPartition("t", 0)).is_leader
