"""Log directories: reported, failed, replaced and cordoned."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decisions.alter_partition import alter_partition
from barnabas.controller.decisions.directories import assign_replicas_to_dirs
from barnabas.controller.decisions.leader_requests import UNCLEAN, elect_leaders
from barnabas.controller.decisions.topics import usable_brokers
from barnabas.controller.image import NO_LEADER, UNASSIGNED_DIRECTORY, Image
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.metadata.snapshot import image_records
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k43_elect_leaders as elect_wire
from barnabas.protocol.messages import k56_alter_partition as alter_wire
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.controller.rig import Rig, registration

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
SAME_PROCESS, RESTARTED = 0, 1


def register(rig: Rig, broker_id: int, *dirs: bytes, incarnation: int = SAME_PROCESS) -> None:
    if broker_id in rig.image.brokers:
        rig.heartbeat(broker_id, want_fence=True, want_shut_down=True)
    request = registration(broker_id, incarnation, log_dirs=list(dirs))
    rig.decide(lambda view: rig.controller.register(view, request))
    rig.heartbeat(broker_id)


def assign(rig: Rig, broker_id: int, directory: bytes, topic_id: bytes, *indexes: int, epoch: int | None = None) -> Any:
    request = wire.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=rig.image.brokers[broker_id].epoch if epoch is None else epoch,
        directories=[
            wire.RequestDirectoryData(
                id=directory,
                topics=[
                    wire.RequestTopicData(
                        topic_id=topic_id,
                        partitions=[wire.RequestPartitionData(partition_index=index) for index in indexes],
                    )
                ],
            )
        ],
    )
    response = rig.decide(lambda view: assign_replicas_to_dirs(view, request))
    (found,) = response.directories
    return [p.error_code for p in found.topics[0].partitions]


def fail(rig: Rig, broker_id: int, *dirs: bytes) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=rig.image.brokers[broker_id].epoch,
        current_metadata_offset=rig.image.offset,
        offline_log_dirs=list(dirs),
    )
    rig.decide(lambda view: rig.controller.heartbeat(view, request))


def propose(rig: Rig, leader: int, *isr: int) -> Any:
    partition = rig.partition("t")
    request = alter_wire.AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=rig.image.brokers[leader].epoch,
        topics=[
            alter_wire.RequestTopicData(
                topic_id=rig.image.topic_ids["t"],
                partitions=[
                    alter_wire.RequestPartitionData(
                        partition_index=0,
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=partition.partition_epoch,
                        new_isr_with_epochs=[
                            alter_wire.BrokerState(broker_id=id_, broker_epoch=rig.image.brokers[id_].epoch)
                            for id_ in isr
                        ],
                    )
                ],
            )
        ],
    )
    response = rig.decide(lambda view: alter_partition(view, request, 3))
    return response.topics[0].partitions[0].error_code


def elect_unclean(rig: Rig) -> None:
    asked = elect_wire.TopicPartitions(topic="t", partitions=[0])
    request = elect_wire.ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[asked])
    rig.decide(lambda view: elect_leaders(view, request))


@pytest.fixture
def rig() -> Rig:
    """Broker 0 has two directories, broker 1 one."""
    made = Rig()
    register(made, 0, A, B)
    register(made, 1, C)
    return made


def test_a_new_replica_has_the_only_directory_or_none(rig: Rig) -> None:
    rig.create("t", [[0, 1]])
    assert rig.partition("t").directories == (UNASSIGNED_DIRECTORY, C)


def test_brokers_report_the_directories_of_replicas(rig: Rig) -> None:
    topic_id = rig.create("t", [[0, 1]])
    others = rig.create("u", [[1]])
    assert assign(rig, 0, B, topic_id, 0, 7) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(rig, 0, B, others, 0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert rig.partition("t").directories == (B, C)
    assert assign(rig, 0, B, bytes(16), 0) == [ErrorCode.UNKNOWN_TOPIC_ID]
    offset = rig.image.offset
    assert assign(rig, 0, B, topic_id, 0) == [ErrorCode.NONE]
    assert rig.image.offset == offset, "what is known is not written again"
    with pytest.raises(ApiError) as refused:
        assign(rig, 0, B, topic_id, 0, epoch=-5)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_only_the_replicas_of_a_failed_directory_leave_the_isrs(rig: Rig) -> None:
    topic_id = rig.create("t", [[0, 1], [0, 1]])
    alone = rig.create("u", [[0]])
    assign(rig, 0, A, topic_id, 0)
    assign(rig, 0, A, alone, 0)
    assign(rig, 0, B, topic_id, 1)
    rig.push()
    rig.brokers[1].take()
    fail(rig, 0, A)
    assert rig.image.brokers[0].log_dirs == (B,)
    states = [rig.partition("t", 0), rig.partition("t", 1), rig.partition("u")]
    assert [(p.leader, p.isr) for p in states] == [(1, (1,)), (0, (0, 1)), (NO_LEADER, ())]
    assert (states[2].elr, states[2].last_known_elr) == ((0,), (0,))
    rig.push()
    update = [message for message in rig.brokers[1].take() if isinstance(message, UpdateMetadataRequest)][-1]
    found = {
        (s.topic_name, p.partition_index): p.offline_replicas for s in update.topic_states for p in s.partition_states
    }
    assert found == {("t", 0): [0], ("t", 1): [], ("u", 0): [0]}


def test_a_replica_reported_in_a_failed_directory_leaves_the_isr(rig: Rig) -> None:
    topic_id = rig.create("t", [[0, 1]])
    fail(rig, 0, A)
    assert assign(rig, 0, A, topic_id, 0) == [ErrorCode.NONE]
    partition = rig.partition("t")
    assert (partition.leader, partition.isr, partition.directories) == (1, (1,), (A, C))


def test_an_emptied_disk_is_not_elected(rig: Rig) -> None:
    topic_id = rig.create("t", [[1]])
    register(rig, 1, A[:-1] + b"!", incarnation=RESTARTED)
    t = rig.partition("t")
    assert (t.leader, t.isr, t.elr, t.last_known_elr) == (NO_LEADER, (), (), (1,))
    assert assign(rig, 1, A[:-1] + b"!", topic_id, 0) == [ErrorCode.NONE]
    assert rig.partition("t").leader == NO_LEADER
    register(rig, 1, C, incarnation=2)
    t = rig.partition("t")
    assert (t.leader, t.isr, t.last_known_elr) == (1, (1,), ()), "the right disk is back"


def test_an_unclean_election_accepts_an_emptied_disk(rig: Rig) -> None:
    rig.create("t", [[1]])
    register(rig, 1, A[:-1] + b"!", incarnation=RESTARTED)
    elect_unclean(rig)
    partition = rig.partition("t")
    assert (partition.leader, partition.isr, partition.directories) == (1, (1,), (A[:-1] + b"!",))


def test_a_replica_on_a_new_disk_may_lead_once_it_has_the_data(rig: Rig) -> None:
    rig.create("t", [[1, 0]])
    register(rig, 1, A[:-1] + b"!", incarnation=RESTARTED)
    assert rig.partition("t").isr == (0,)
    assert propose(rig, 0, 0, 1) == ErrorCode.NONE
    assert rig.partition("t").directories == (A[:-1] + b"!", UNASSIGNED_DIRECTORY)
    rig.heartbeat(0, want_fence=True, want_shut_down=True)
    assert rig.partition("t").leader == 1


def cordon(rig: Rig, broker_id: int, dirs: list[bytes] | None) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=rig.image.brokers[broker_id].epoch,
        current_metadata_offset=rig.image.offset,
        cordoned_log_dirs=dirs,
    )
    rig.decide(lambda view: rig.controller.heartbeat(view, request))


def test_brokers_report_cordoned_directories(rig: Rig) -> None:
    before = rig.image.offset
    cordon(rig, 0, [])
    cordon(rig, 0, None)
    assert rig.image.offset == before, "nothing has changed"
    cordon(rig, 0, [A])
    assert rig.image.brokers[0].cordoned_log_dirs == (A,)
    changed = rig.image.offset
    cordon(rig, 0, [A])
    cordon(rig, 0, None)
    assert rig.image.offset == changed
    assert rig.image.brokers[0].log_dirs == (A, B), "it keeps what it has"


def test_a_broker_with_only_cordoned_directories_gets_no_replicas(rig: Rig) -> None:
    def candidates() -> list[int]:
        return [broker.id for broker in usable_brokers(rig.image)]

    assert candidates() == [0, 1]
    cordon(rig, 0, [A])
    assert candidates() == [0, 1]
    cordon(rig, 0, [A, B])
    assert candidates() == [1]
    rig.create("t", [[0, 1]])
    assert rig.partition("t").replicas == (0, 1), "a manual assignment may name it"
    cordon(rig, 0, [B])
    assert candidates() == [0, 1]


def test_cordoning_is_in_snapshots_and_survives_a_restart(rig: Rig) -> None:
    cordon(rig, 0, [A, B])
    editor = ImageEditor(Image())
    editor.apply_all(image_records(rig.image), 0)
    assert editor.image().brokers[0].cordoned_log_dirs == (A, B)
    register(rig, 0, A, B)
    assert rig.image.brokers[0].cordoned_log_dirs == (A, B), "the same process amends its registration"
    register(rig, 0, A, B, incarnation=RESTARTED)
    assert rig.image.brokers[0].takes_replicas
    cordon(rig, 0, [A, B])
    assert not rig.image.brokers[0].takes_replicas


def test_a_log_elsewhere_is_not_the_data_of_an_eligible_replica() -> None:
    rig = Rig(min_insync_replicas="2")
    register(rig, 1, A, B)
    register(rig, 2, C)
    topic_id = rig.create("t", [[2, 1]])
    assign(rig, 1, A, topic_id, 0)
    rig.heartbeat(1, want_fence=True, want_shut_down=True)
    assert rig.partition("t").elr == (1,)
    request = registration(1, 9, log_dirs=[B], previous_broker_epoch=rig.image.brokers[1].epoch)
    rig.decide(lambda view: rig.controller.register(view, request))
    rig.heartbeat(1)
    assert rig.partition("t").elr == (1,), "the stop was clean, but A is gone"
    rig.heartbeat(2, want_fence=True, want_shut_down=True)
    assert (rig.partition("t").leader, rig.partition("t").elr) == (NO_LEADER, (1, 2))
    assign(rig, 1, B, topic_id, 0)
    assert (rig.partition("t").leader, rig.partition("t").directory(1)) == (NO_LEADER, A), "rule 3"
    rig.heartbeat(2)
    assert (rig.partition("t").leader, rig.partition("t").elr) == (2, (1,))
    assign(rig, 1, B, topic_id, 0)
    assert (rig.partition("t").elr, rig.partition("t").directory(1)) == ((), B), "rule 4"
