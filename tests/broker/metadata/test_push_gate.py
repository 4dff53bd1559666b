"""PushGate and `apis/push.py`: pushes for other processes, late pushes and pushes of old controllers have no effect.

Also covers `apis/k04_leader_and_isr.py`, `apis/k05_stop_replica.py` and `apis/k06_update_metadata.py`.
"""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.metadata.push_gate import NOT_REGISTERED
from barnabas.broker.metadata.push_state import EPOCH_LEAP_MAX
from barnabas.common.logs import LINES_MAX
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.limits import SMALL_BYTES
from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.metadata_records import RemoveTopicRecord
from barnabas.protocol.push_tags import FULL, TAG_OFFSET, TAG_PARTIAL, Receiver, set_receiver, set_tag
from tests.support.broker.broker_rig import (
    BROKER_EPOCH,
    BROKER_ID,
    CLUSTER_ID,
    INCARNATION,
    BrokerRig,
    batch,
    produce,
    pushed,
    state,
    topic_id,
)

TP = TopicPartition("t", 0)
EPOCH_MAX = 2**31 - 1


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1)]})
    made.answer(produce(batch(b"a")), 9)
    yield made
    made.close()


def is_unharmed(rig):
    """The log is there, and the controller still rules."""
    held = rig.manager.partition(TP).log.log_end_offset == 1 and "t" in rig.cache.snapshot.topics
    answer = rig.answer(rig.leader_and_isr({"t": [state(1)]}), 7)
    return held and answer.error_code == ErrorCode.NONE and rig.log_manager.strays == []


def test_refused_pushes_do_not_fill_the_log(rig, caplog):
    caplog.set_level("INFO")
    for _ in range(LINES_MAX + 20):
        rig.answer(StopReplicaRequest(controller_epoch=1, broker_epoch=-1), 4)
    assert caplog.messages == ["StopReplicaRequest of controller 0 refused: CLUSTER_AUTHORIZATION_FAILED"] * LINES_MAX


@pytest.mark.parametrize("controller_epoch", [-1, 1, 2, EPOCH_MAX])
@pytest.mark.parametrize("broker_epoch", [-1, BROKER_EPOCH])
def test_a_push_without_the_right_receiver_is_refused_and_not_noted(rig, controller_epoch, broker_epoch):
    epochs = {"controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    requests = [
        (rig.leader_and_isr({}, type_=FULL, **epochs), 7),
        (StopReplicaRequest(**epochs), 4),
        (UpdateMetadataRequest(type=FULL, **epochs), 8),
    ]
    for request, version in requests:
        request.unknown_tagged_fields = ()
        assert rig.answer(request, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert is_unharmed(rig)


@pytest.mark.parametrize(
    ("receiver", "error"),
    [
        (Receiver("AAAAAAAAAAAAAAAAAAAAAQ", BROKER_ID, INCARNATION), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (Receiver(CLUSTER_ID, BROKER_ID + 1, INCARNATION), ErrorCode.STALE_BROKER_EPOCH),
        (Receiver(CLUSTER_ID, BROKER_ID, bytes(16)), ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_push_for_another_process_is_refused_before_its_epoch_is_noted(rig, receiver, error):
    request = rig.leader_and_isr({}, type_=FULL, controller_epoch=EPOCH_MAX)
    set_receiver(request, receiver)
    assert rig.answer(request, 7).error_code == error
    assert is_unharmed(rig)


def test_epochs_and_offsets_are_bounded(rig):
    for epoch in (-1, EPOCH_MAX, 1 + EPOCH_LEAP_MAX + 1):
        request = rig.leader_and_isr({}, type_=FULL, controller_epoch=epoch)
        assert rig.answer(request, 7).error_code == ErrorCode.INVALID_REQUEST
    negative = rig.leader_and_isr({}, type_=FULL, offset=-1)
    assert rig.answer(negative, 7).error_code == ErrorCode.INVALID_REQUEST
    damaged = rig.leader_and_isr({}, type_=FULL)
    set_tag(damaged, TAG_OFFSET, b"123")
    assert rig.answer(damaged, 7).error_code == ErrorCode.INVALID_REQUEST
    assert rig.answer(rig.leader_and_isr({}, broker_epoch=-1), 7).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert is_unharmed(rig)


def test_a_push_below_the_obeyed_offset_is_late_and_has_no_effect(rig):
    """A (offset 30) is sent, its connection breaks; B (offset 32) is applied on the next one; then A arrives."""
    deletes_t = pushed(rig.leader_and_isr({}), 30)
    a = [
        (rig.leader_and_isr({"u": [state(1)]}, type_=FULL, offset=30), 7),
        (rig.update_metadata({"u": [state(1)]}, type_=FULL, offset=30), 8),
    ]
    b = {"t": [state(1, leader_epoch=1, partition_epoch=1)]}
    rig.answer(rig.leader_and_isr(b, offset=32), 7)
    rig.answer(rig.update_metadata(b, offset=32), 8)
    assert rig.cache.offset == 32
    for request, version in [*a, (deletes_t, 7)]:
        assert rig.answer(request, version).error_code == ErrorCode.NONE
    stop = rig.stop_replica(TP, leader_epoch=-2, delete=True, offset=30)
    assert (stop.error_code, stop.partition_errors) == (ErrorCode.NONE, [])
    assert (rig.cache.offset, set(rig.cache.snapshot.topics)) == (32, {"t"})
    assert (rig.manager.partition(TP).leader_epoch, rig.manager.partition(TP).log.log_end_offset) == (1, 1)
    assert (rig.log_manager.strays, rig.push_gate.late_count) == ([], 4)


def test_a_higher_epoch_with_a_lower_offset_is_refused(rig):
    """Each start of a controller writes a record before it pushes: its first offset is above all that was pushed."""
    rig.answer(rig.leader_and_isr({"t": [state(1)]}, controller_epoch=5, offset=40), 7)
    for offset in (39, 40):
        answer = rig.answer(rig.leader_and_isr({}, type_=FULL, controller_epoch=6, offset=offset), 7)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (rig.push_state.controller_epoch, rig.push_state.metadata_offset) == (5, 40)
    assert rig.manager.find(TP) is not None


def test_an_equal_offset_is_not_late(rig):
    for _ in range(2):
        rig.push({"t": [state(1)], "u": [state(1)]}, type_=FULL)
    rig.stop_replica(TopicPartition("u", 0), leader_epoch=-2, delete=True)
    assert rig.manager.find(TopicPartition("u", 0)) is None
    assert rig.push_gate.late_count == 0
    assert is_unharmed(rig)


def test_neither_epoch_nor_offset_goes_back_across_a_restart(rig):
    rig.answer(rig.leader_and_isr({"t": [state(1)]}, controller_epoch=5, offset=40), 7)
    again = BrokerRig(rig.fs.kill())
    older = again.answer(again.leader_and_isr({}, type_=FULL, controller_epoch=4, offset=90), 7)
    assert older.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    again.answer(again.leader_and_isr({}, type_=FULL, controller_epoch=5, offset=39), 7)
    assert again.push_gate.late_count == 1
    assert again.log_manager.get_log(TP).log_end_offset == 1
    again.answer(again.leader_and_isr({"t": [state(1)]}, type_=FULL, controller_epoch=6, offset=41), 7)
    assert again.manager.partition(TP).is_leader
    again.close()


def test_a_push_is_refused_if_its_epoch_cannot_be_written(rig):
    rig.log_manager.directories[0].failure = OSError("full")
    answer = rig.answer(rig.leader_and_isr({}, controller_epoch=2, offset=30), 7)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.push_state.controller_epoch == 1


def test_unreadable_records_are_refused_without_harm(rig):
    request = StopReplicaRequest(controller_epoch=1, broker_epoch=BROKER_EPOCH)
    set_tag(request, 10000, b"\xff\xff")
    assert rig.answer(pushed(request), 4).error_code == ErrorCode.INVALID_REQUEST
    assert is_unharmed(rig)


def test_records_of_another_topic_id_delete_nothing(rig):
    """A deletion is by id, whatever the body names."""
    rig.stop_replica(TP, leader_epoch=-2, delete=True, records=[RemoveTopicRecord(topic_id=topic_id("u"))])
    assert is_unharmed(rig)


@pytest.mark.parametrize(("incarnation", "is_admitted"), [(INCARNATION, True), (bytes(16), False)])
def test_a_large_push_is_decoded_only_if_it_names_this_process(rig, incarnation, is_admitted):
    for request in (
        rig.leader_and_isr({f"t{i}": [state(1)] for i in range(1500)}, type_=FULL),
        rig.update_metadata({f"t{i}": [state(1)] for i in range(1500)}, type_=FULL),
    ):
        set_receiver(request, Receiver(CLUSTER_ID, BROKER_ID, incarnation))
        set_tag(request, TAG_PARTIAL, b"")
        frame = memoryview(bytes(request.encode(request.MAX_VERSION)))
        assert len(frame) > SMALL_BYTES
        api = TABLE[request.API_KEY]
        assert api.admits(rig.services, frame) is is_admitted
    assert not api.admits(rig.services, memoryview(b""))


def test_a_push_that_overtakes_the_first_registration_waits_for_it(rig):
    gate = rig.push_gate
    gate.broker_epoch = NOT_REGISTERED
    gate._is_registered.clear()
    push = rig.leader_and_isr({"u": [state(1)]})
    answers = []
    handler = threading.Thread(target=lambda: answers.append(rig.answer(push, 7)))
    handler.start()
    stranger = rig.leader_and_isr({}, type_=FULL)
    set_receiver(stranger, Receiver(CLUSTER_ID, BROKER_ID, bytes(16)))
    assert gate._check(stranger) == (ErrorCode.STALE_BROKER_EPOCH, NOT_REGISTERED), "it does not make the broker wait"
    assert rig.manager.find(TopicPartition("u", 0)) is None
    gate.registered(BROKER_EPOCH)
    handler.join()
    assert answers[0].error_code == ErrorCode.NONE
    assert rig.manager.find(TopicPartition("u", 0)) is not None
