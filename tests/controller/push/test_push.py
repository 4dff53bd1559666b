"""The requests that brokers receive: `controller/push/pending.py` and `controller/push/requests.py`."""

from __future__ import annotations

from typing import Any

from barnabas.controller.decisions.configs import incremental_alter_configs
from barnabas.controller.decisions.topics import delete_topics
from barnabas.controller.metadata.bootstrap import FEATURES
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as config_wire
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.push_tags import (
    FULL,
    INCREMENTAL,
    LEADER_DURING_DELETE,
    TAG_PARTIAL,
    offset_of,
    records_of,
    tag_of,
)
from tests.controller.rig import Rig


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def delete(rig: Rig, name: str) -> None:
    request = delete_wire.DeleteTopicsRequest(topic_names=[name])
    rig.decide(lambda view: delete_topics(view, request, 5))


def set_config(rig: Rig, topic: str, name: str, value: str) -> None:
    request = config_wire.IncrementalAlterConfigsRequest(
        resources=[
            config_wire.AlterConfigsResource(
                resource_type=2,
                resource_name=topic,
                configs=[config_wire.AlterableConfig(name=name, config_operation=0, value=value)],
            )
        ]
    )
    response = rig.decide(lambda view: incremental_alter_configs(view, request))
    assert response.responses[0].error_code == 0, response


def settled(*broker_ids: int) -> Rig:
    rig = Rig()
    rig.join(*broker_ids)
    rig.push()
    for broker_id in broker_ids:
        rig.brokers[broker_id].take()
    return rig


def test_a_new_broker_first_receives_a_full_push() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1], [1, 0]], retention_ms="5")
    rig.register(2)
    rig.push()
    leader_and_isr, update = rig.brokers[2].take()
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert isinstance(update, UpdateMetadataRequest)
    assert leader_and_isr.type == update.type == FULL
    assert leader_and_isr.topic_states == []
    assert leader_and_isr.broker_epoch == update.broker_epoch == rig.image.brokers[2].epoch
    assert leader_and_isr.controller_epoch == rig.controller.epoch
    (state,) = update.topic_states
    assert [p.replicas for p in state.partition_states] == [[0, 1], [1, 0]]
    assert [b.id for b in update.live_brokers] == [0, 1]  # 2 is fenced still
    *features, config, of_all = records_of(leader_and_isr)
    assert all(isinstance(record, FeatureLevelRecord) for record in features)
    assert {record.name: record.feature_level for record in features} == FEATURES
    assert (of_all.resource_name, of_all.name, of_all.value) == ("", "min.insync.replicas", "1")
    assert (config.resource_name, config.name, config.value) == ("t", "retention.ms", "5")
    assert offset_of(update) == rig.image.offset


def test_a_topic_reaches_its_replicas_and_everyones_metadata() -> None:
    rig = settled(0, 1, 2)
    rig.create("t", [[0, 1]], retention_ms="5")
    rig.push()
    leader_and_isr, update = rig.brokers[0].take()
    assert leader_and_isr.type == INCREMENTAL
    (topic,) = leader_and_isr.topic_states
    (state,) = topic.partition_states
    assert (topic.topic_name, topic.topic_id) == ("t", rig.image.topic_ids["t"])
    assert (state.leader, state.isr, state.replicas, state.is_new) == (0, [0, 1], [0, 1], True)
    assert [(n.broker_id, n.host_name, n.port) for n in leader_and_isr.live_leaders] == [(0, "127.0.0.1", 9000)]
    assert [r.value for r in records_of(leader_and_isr)] == ["5"]
    assert records_of(update) == []
    assert kinds(rig.brokers[1].take()) == [LeaderAndIsrRequest, UpdateMetadataRequest]
    (update,) = rig.brokers[2].take()
    assert [s.topic_name for s in update.topic_states] == ["t"]
    assert [r.value for r in records_of(update)] == ["5"]


def test_changes_coalesce_to_the_newest_state() -> None:
    rig = settled(0)
    rig.create("a", [[0]])
    for value in "123":
        set_config(rig, "a", "retention.ms", value)
    rig.create("b", [[0]])
    delete(rig, "b")
    rig.push()
    leader_and_isr, update, stop = rig.brokers[0].take()
    assert [s.topic_name for s in leader_and_isr.topic_states] == ["a"]
    assert [r.value for r in records_of(leader_and_isr)] == ["3"]
    assert [(s.topic_name, s.partition_states[0].leader) for s in update.topic_states] == [
        ("b", LEADER_DURING_DELETE),
        ("a", 0),
    ]
    assert [s.topic_name for s in stop.topic_states] == ["b"]


def test_a_push_to_a_broker_that_is_down_waits() -> None:
    rig = settled(0, 1)
    rig.brokers[1].is_down = True
    rig.create("t", [[1, 0]])
    rig.push()
    rig.create("u", [[1]])
    rig.push()
    assert len(rig.brokers[0].take()) == 3
    rig.brokers[1].is_down = False
    rig.push()
    leader_and_isr, _ = rig.brokers[1].take()
    assert sorted(s.topic_name for s in leader_and_isr.topic_states) == ["t", "u"]
    assert all(s.partition_states[0].is_new for s in leader_and_isr.topic_states)


def test_a_topic_deleted_while_a_broker_was_down() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1]], retention_ms="5")
    rig.push()
    rig.brokers[1].take()
    rig.brokers[1].is_down = True
    delete(rig, "t")
    rig.push()
    rig.brokers[1].is_down = False
    rig.push()
    update, stop = rig.brokers[1].take()
    assert [r.value for r in records_of(update)] == [None]
    (state,) = update.topic_states
    assert state.partition_states[0].leader == LEADER_DURING_DELETE
    assert isinstance(stop, StopReplicaRequest)
    (topic,) = stop.topic_states
    assert topic.topic_name == "t"
    assert topic.partition_states[0].delete_partition


def test_a_topic_created_again_is_deleted_first() -> None:
    rig = settled(0)
    rig.create("t", [[0]])
    rig.push()
    rig.brokers[0].take()
    delete(rig, "t")
    rig.create("t", [[0]])
    rig.push()
    stop, leader_and_isr, update = rig.brokers[0].take()
    assert [s.topic_name for s in stop.topic_states] == ["t"]
    assert leader_and_isr.topic_states[0].topic_id == rig.image.topic_ids["t"]
    assert [s.partition_states[0].leader for s in update.topic_states] == [LEADER_DURING_DELETE, 0]


def test_a_broker_that_registers_again_receives_a_full_push() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1]])
    rig.push()
    rig.tick(9_001)
    rig.heartbeat(1)
    rig.brokers[0].take()
    rig.register(0, incarnation=3)
    rig.push()
    leader_and_isr, update = rig.brokers[0].take()
    assert leader_and_isr.type == FULL
    assert [s.topic_name for s in leader_and_isr.topic_states] == ["t"]
    assert update.topic_states[0].partition_states[0].offline_replicas == [0]


def test_brokers_that_come_and_go_change_the_offline_replicas() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1]])
    rig.push()
    rig.brokers[0].take()
    rig.heartbeat(1, want_fence=True)
    rig.push()
    *_, update = rig.brokers[0].take()
    assert [b.id for b in update.live_brokers] == [0]
    assert update.topic_states[0].partition_states[0].offline_replicas == [1]


def test_a_leader_learns_of_a_dead_follower_before_its_new_isr() -> None:
    """Else it would wait for the dead one, which it still believes alive and caught up, until it appends again."""
    rig = settled(0, 1)
    rig.create("t", [[0, 1]])
    rig.push()
    rig.brokers[0].take()
    rig.heartbeat(1, want_fence=True)
    rig.push()
    live, leader_and_isr, update = rig.brokers[0].take()
    assert isinstance(live, UpdateMetadataRequest)
    assert ([b.id for b in live.live_brokers], live.topic_states) == ([0], [])
    assert tag_of(live, TAG_PARTIAL) is not None
    assert {offset_of(message) for message in (live, leader_and_isr, update)} == {rig.controller.image.offset}
    assert leader_and_isr.topic_states[0].partition_states[0].isr == [0]
    assert update.topic_states[0].partition_states[0].isr == [0]


def test_after_a_refusal_the_next_push_is_full() -> None:
    rig = settled(0)
    rig.brokers[0].error_code = 77
    rig.create("t", [[0]])
    rig.push()
    assert len(rig.brokers[0].take()) == 1
    rig.brokers[0].error_code = 0
    rig.push()
    assert [m.type for m in rig.brokers[0].take()] == [FULL, FULL]


def test_a_removed_replica_is_stopped() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1]])
    rig.push()
    from barnabas.controller.decisions.reassignment import alter_reassignments
    from barnabas.protocol.messages import k45_alter_partition_reassignments as wire

    request = wire.AlterPartitionReassignmentsRequest(
        topics=[
            wire.ReassignableTopic(name="t", partitions=[wire.ReassignablePartition(partition_index=0, replicas=[0])])
        ]
    )
    rig.decide(lambda view: alter_reassignments(view, request))
    rig.brokers[1].take()
    rig.push()
    update, stop = rig.brokers[1].take()
    assert isinstance(update, UpdateMetadataRequest)
    (topic,) = stop.topic_states
    (state,) = topic.partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 1, True)


def test_an_unregistered_broker_receives_no_push() -> None:
    rig = settled(0, 1)
    rig.decide(lambda view: rig.controller.unregister(view, 1))
    assert rig.controller.channels is not None
    assert set(rig.controller.channels.channels) == {0}


def test_a_restarted_controller_sends_full_pushes() -> None:
    rig = settled(0, 1)
    rig.create("t", [[0, 1]])
    again = rig.restart()
    again.push()
    leader_and_isr, update = again.brokers[1].take()
    assert leader_and_isr.type == FULL
    assert leader_and_isr.controller_epoch == rig.controller.epoch + 1
    assert not leader_and_isr.topic_states[0].partition_states[0].is_new
    assert offset_of(update) == again.image.offset


def test_tags_survive_the_wire() -> None:
    rig = settled(0)
    rig.create("t", [[0]], retention_ms="5")
    rig.push()
    leader_and_isr, update = rig.brokers[0].take()
    assert LeaderAndIsrRequest.decode(leader_and_isr.encode(7), 7) == leader_and_isr
    decoded = UpdateMetadataRequest.decode(update.encode(8), 8)
    assert offset_of(decoded) == rig.image.offset
    (record,) = records_of(LeaderAndIsrRequest.decode(leader_and_isr.encode(7), 7))
    assert isinstance(record, ConfigRecord)


def registrations_of(message: Any) -> list[tuple[int, int, bool, bool]]:
    found = [r for r in records_of(message) if isinstance(r, RegisterBrokerRecord)]
    return [(r.broker_id, r.broker_epoch, r.fenced, r.in_controlled_shutdown) for r in found]


def test_the_other_brokers_learn_first_that_a_broker_shuts_down() -> None:
    rig = settled(0, 1)
    rig.create("t", [[1, 0]])
    rig.push()
    rig.brokers[0].take()
    rig.heartbeat(1, want_shut_down=True)
    rig.push()
    first, leader_and_isr, last = rig.brokers[0].take()
    epochs = [rig.image.brokers[id_].epoch for id_ in (0, 1)]
    assert registrations_of(first) == [(0, epochs[0], False, False), (1, epochs[1], False, True)]
    assert [s.partition_states[0].leader for s in leader_and_isr.topic_states] == [0]
    assert registrations_of(leader_and_isr) == []
    assert registrations_of(last) == registrations_of(first)


def test_a_fenced_broker_is_pushed_as_registered() -> None:
    rig = settled(0)
    rig.register(1)
    rig.push()
    *_, update = rig.brokers[0].take()
    assert [broker.id for broker in update.live_brokers] == [0]
    assert [(r[0], r[2]) for r in registrations_of(update)] == [(0, False), (1, True)]


def test_registrations_are_pushed_only_when_they_change() -> None:
    rig = settled(0)
    rig.create("t", [[0]])
    rig.push()
    assert not any(registrations_of(message) for message in rig.brokers[0].take())
