"""The effect of pushes on the replicas and logs of a broker: `replication/leadership.py`."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord
from barnabas.protocol.push_tags import FULL, set_records
from tests.support.broker.broker_rig import BROKER_EPOCH, BROKER_ID, BrokerRig, batch, produce, state, topic_id

TP = TopicPartition("t", 0)


@pytest.fixture
def rig():
    made = BrokerRig()
    yield made
    made.close()


def errors_of(response):
    return [p.error_code for topic in response.topics for p in topic.partition_errors]


def test_pushes_with_old_epochs_are_refused(rig):
    rig.push({"t": [state(1)]})
    old_broker = rig.answer(rig.leader_and_isr({"t": [state(1)]}, broker_epoch=BROKER_EPOCH - 1), 7)
    assert old_broker.error_code == ErrorCode.STALE_BROKER_EPOCH
    rig.answer(rig.leader_and_isr({}, controller_epoch=3, offset=30), 7)
    old_controller = rig.answer(rig.leader_and_isr({}, controller_epoch=2, offset=30), 7)
    assert old_controller.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    newer = rig.answer(rig.leader_and_isr({}, broker_epoch=BROKER_EPOCH + 5, controller_epoch=3, offset=30), 7)
    assert newer.error_code == ErrorCode.NONE  # the controller knows of our registration before we do


def test_an_unregistered_broker_refuses_pushes(rig, monkeypatch):
    monkeypatch.setattr("barnabas.broker.metadata.push_gate.REGISTRATION_WAIT_S", 0)
    rig.push_gate._is_registered.clear()
    too_early = rig.answer(rig.leader_and_isr({"t": [state(1)]}, broker_epoch=BROKER_EPOCH), 7)
    assert too_early.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert rig.manager.find(TP) is None


def test_an_older_leader_epoch_is_refused_alone(rig):
    rig.push({"t": [state(1, leader_epoch=4, partition_epoch=4)], "u": [state(1)]})
    answer = rig.push({"t": [state(1, leader_epoch=3, partition_epoch=5)], "u": [state(1)]})
    assert sorted(errors_of(answer)) == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]


def test_a_deleted_topic_leaves_no_log(rig):
    rig.push({"t": [state(1)]})
    rig.answer(produce(batch(b"a")), 9)
    rig.stop_replica(TP, leader_epoch=-2, delete=True)
    assert rig.manager.find(TP) is None
    assert rig.log_manager.get_log(TP) is None
    assert rig.listening.heard[-1] == ("resigned", TP, None)


def test_a_stop_of_an_older_epoch_is_fenced(rig):
    rig.push({"t": [state(1, leader_epoch=2, partition_epoch=2)]})
    answer = rig.stop_replica(TP, leader_epoch=1, delete=True)
    assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert rig.manager.find(TP) is not None


def test_a_full_push_sets_aside_unnamed_logs_and_logs_of_former_topics(rig):
    rig.push({"t": [state(1)], "gone": [state(1)]})
    rig.answer(produce(batch(b"a")), 9)
    rig.push({"t": [state(1)]}, type_=FULL, incarnation=1)
    assert rig.log_manager.get_log(TopicPartition("gone", 0)) is None
    assert rig.manager.find(TopicPartition("gone", 0)) is None
    assert rig.manager.partition(TP).log.log_end_offset == 0  # a new topic of the same name
    assert set(rig.cache.snapshot.topics) == {"t"}
    kept = {stray.tp: stray for stray in rig.log_manager.strays}
    assert {tp: stray.note.topic_id for tp, stray in kept.items()} == {
        TP: topic_id("t"),
        TopicPartition("gone", 0): topic_id("gone"),
    }
    assert kept[TP].size_bytes > 0


def test_an_empty_full_push_deletes_nothing(rig):
    rig.push({"t": [state(1), state(1)]})
    rig.answer(produce(batch(b"a")), 9)
    rig.push({}, type_=FULL)
    rig.advance_ms(120_000)
    assert sorted(stray.tp for stray in rig.log_manager.strays) == [TP, TopicPartition("t", 1)]
    assert all(rig.fs.exists(stray.path) for stray in rig.log_manager.strays)


def test_a_topic_is_deleted_only_by_its_id(rig):
    rig.push({"t": [state(1)]})
    rig.answer(produce(batch(b"a")), 9)
    for records in ([], [RemoveTopicRecord(topic_id=topic_id("t", 1))]):
        answer = rig.stop_replica(TP, leader_epoch=-2, delete=True, records=records)
        assert answer.partition_errors[0].error_code == ErrorCode.NONE
        assert rig.manager.partition(TP).log.log_end_offset == 1
    rig.stop_replica(TP, leader_epoch=-2, delete=True)
    assert rig.manager.find(TP) is None
    assert rig.log_manager.strays == []


def test_a_reassigned_replica_is_deleted_by_a_record_without_this_broker(rig):
    rig.push({"t": [state(1)]})
    here = PartitionRecord(topic_id=topic_id("t"), partition_id=0, replicas=[BROKER_ID, 2])
    other = PartitionRecord(topic_id=topic_id("t"), partition_id=1, replicas=[2])
    rig.stop_replica(TP, leader_epoch=0, delete=True, records=[here, other])
    assert rig.manager.find(TP) is not None
    gone = PartitionRecord(topic_id=topic_id("t"), partition_id=0, replicas=[2])
    rig.stop_replica(TP, leader_epoch=0, delete=True, records=[gone])
    assert (rig.manager.find(TP), rig.log_manager.get_log(TP)) == (None, None)
    assert rig.log_manager.strays == []


def test_after_a_crash_a_single_replica_has_its_watermark_at_the_end(rig):
    rig.push({"t": [state(1)]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    rig.close()
    again = BrokerRig(rig.fs)
    again.push({"t": [state(1, leader_epoch=1, partition_epoch=1)]}, type_=FULL)
    assert again.manager.partition(TP).high_watermark == 2
    again.close()


def test_topic_configs_in_the_push_are_applied(rig):
    def tagged(value):
        record = ConfigRecord(resource_type=2, resource_name="t", name="max.message.bytes", value=value)
        request = rig.leader_and_isr({"t": [state(1)]})
        set_records(request, [record])
        rig.answer(request, 7)
        return rig.manager.partition(TP).log.config.max_message_bytes

    default = rig.config.topic_config().max_message_bytes
    assert tagged("1000") == 1000
    assert tagged(None) == default


def test_a_deposed_leader_acknowledges_nothing_by_the_configs_of_the_push_that_deposes_it(rig):
    """Its ISR was too small. The next leader was elected while min.insync.replicas was 2, and lacks its records."""

    def min_isr(request, value):
        set_records(
            request, [ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=value)]
        )
        return request

    rig.answer(min_isr(rig.leader_and_isr({"t": [state(1, [1, 2], [1])]}), "2"), 7)
    rig.answer(produce(batch(b"a")), 9)
    assert rig.manager.partition(TP).high_watermark == 0
    meanwhile = []

    def configs_have_changed(_resource):
        (topic,) = rig.answer(produce(batch(b"b"), acks=-1), 9).responses
        meanwhile.append((topic.partition_responses[0].error_code, rig.manager.partition(TP).high_watermark))

    rig.dynamic_config.on_change(configs_have_changed)
    deposed = state(2, [1, 2], [2], leader_epoch=1, partition_epoch=1)
    rig.answer(min_isr(rig.leader_and_isr({"t": [deposed]}), "1"), 7)
    assert meanwhile == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    partition = rig.manager.partition(TP)
    assert (partition.leader_epoch, partition.is_leader, partition.high_watermark) == (1, False, 0)
    assert rig.fetchers.followed == {TP}


def test_a_state_that_is_older_ends_no_leadership(rig):
    rig.push({"t": [state(1, [1, 2], leader_epoch=2, partition_epoch=4)]})
    for late in ({"leader_epoch": 1, "partition_epoch": 5}, {"leader_epoch": 3, "partition_epoch": 3}):
        request = rig.leader_and_isr({"t": [state(2, [1, 2], **late)]})
        set_records(request, [ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")])
        rig.answer(request, 7)
        assert rig.manager.partition(TP).is_leader


def test_the_metadata_offset_is_noted_and_the_broker_is_caught_up_once(rig):
    caught_up = []
    rig.cache.on_caught_up.append(lambda: caught_up.append(rig.cache.offset))
    rig.push({"t": [state(1)]})
    rig.push({"t": [state(1)]})
    assert (rig.cache.offset, rig.woken, caught_up) == (20, 2, [20])


def test_gauges_count_partitions(rig):
    rig.push({"t": [state(1, (1, 2), isr=(1,)), state(2, (1, 2))]})
    assert (len(rig.manager.partitions()), len(rig.manager.hosted.led())) == (2, 1)
    assert rig.manager.partition(TP).role.is_under_replicated


def test_a_broker_that_shuts_down_stops_fetching_partitions_whose_isr_it_left(rig):
    rig.push({"t": [state(1, (1, 2)), state(2, (1, 2)), state(2, (1, 2))]})
    assert {tp.partition for tp in rig.fetchers.followed} == {1, 2}
    rig.leadership.is_leaving = True
    states = [
        state(2, (1, 2), (2,), leader_epoch=1, partition_epoch=1),
        state(2, (1, 2), (2,), partition_epoch=1),
        state(2, (1, 2), partition_epoch=1),
    ]
    rig.push({"t": states})
    assert {tp.partition for tp in rig.fetchers.followed} == {2}
    assert not rig.manager.partition(TopicPartition("t", 0)).is_leader
