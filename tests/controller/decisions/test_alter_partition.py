"""AlterPartition: accepted and refused ISRs."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.ids import random_uuid
from barnabas.controller.decisions.alter_partition import alter_partition
from barnabas.controller.image import RECOVERED, RECOVERING
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k56_alter_partition as wire
from tests.controller.rig import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    return rig


def propose(rig: Rig, isr: list[int], *, broker: int = 0, version: int = 3, **fields: Any) -> Any:
    """Return a proposal for partition t-0; `fields` replace the values of a correct leader."""
    values: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": rig.partition("t").leader_epoch,
        "partition_epoch": rig.partition("t").partition_epoch,
        "leader_recovery_state": RECOVERED,
    }
    topic_id = fields.pop("topic_id", rig.image.topic_ids["t"])
    epochs = fields.pop("epochs", {})
    if version >= 3:
        values["new_isr_with_epochs"] = [
            wire.BrokerState(broker_id=id_, broker_epoch=epochs.get(id_, epoch_of(rig, id_))) for id_ in isr
        ]
    else:
        values["new_isr"] = isr
    partition = wire.RequestPartitionData(**{**values, **fields})
    request = wire.AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=epoch_of(rig, broker),
        topics=[wire.RequestTopicData(topic_id=topic_id, partitions=[partition])],
    )
    response = rig.decide(lambda view: alter_partition(view, request, version))
    (answer,) = response.topics[0].partitions
    return answer


def epoch_of(rig: Rig, broker_id: int) -> int:
    broker = rig.image.brokers.get(broker_id)
    return -1 if broker is None else int(broker.epoch)


@pytest.mark.parametrize("version", [2, 3])
def test_shrink_and_expand(rig: Rig, version: int) -> None:
    answer = propose(rig, [0, 1], version=version)
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [0, 1], 0)
    assert (answer.leader_epoch, answer.partition_epoch) == (0, 1)
    assert rig.partition("t").isr == (0, 1)
    answer = propose(rig, [0, 1, 2], version=version)
    assert (answer.isr, answer.partition_epoch) == ([0, 1, 2], 2)


def test_a_partition_that_is_named_twice_is_refused(rig: Rig) -> None:
    """Else both changes are accepted for one state: the second may leave a replica both in the ISR and in the ELR."""
    topic_id, brokers = rig.create("two", [[0, 1, 2]], min_insync_replicas="2"), range(3)
    partitions = [
        wire.RequestPartitionData(
            partition_index=0,
            new_isr_with_epochs=[wire.BrokerState(broker_id=id_, broker_epoch=epoch_of(rig, id_)) for id_ in isr],
        )
        for isr in (brokers[:1], brokers[:2])
    ]
    request = wire.AlterPartitionRequest(
        broker_id=0,
        broker_epoch=epoch_of(rig, 0),
        topics=[wire.RequestTopicData(topic_id=topic_id, partitions=[one]) for one in partitions],
    )
    response = rig.decide(lambda view: alter_partition(view, request, 3))
    answers = [one for topic in response.topics for one in topic.partitions]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert (rig.partition("two").isr, rig.partition("two").elr) == ((0,), (1, 2))


def test_the_same_isr_changes_nothing(rig: Rig) -> None:
    before = rig.image
    answer = propose(rig, [0, 1, 2])
    assert (answer.error_code, answer.partition_epoch) == (0, 0)
    assert rig.image is before


@pytest.mark.parametrize(
    ("isr", "fields", "code"),
    [
        ([0, 1], {"topic_id": random_uuid()}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([0, 1], {"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([0, 1], {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([0, 1], {"partition_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([0, 1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([0, 1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([0, 1], {"broker": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {}, ErrorCode.INVALID_REQUEST),  # without the leader
        ([0, 9], {}, ErrorCode.INVALID_REQUEST),  # not a replica
        ([0, 0], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([0, 1], {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([0], {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([0], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ([0, 1], {"epochs": {1: 12345}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(rig: Rig, isr: list[int], fields: dict[str, Any], code: ErrorCode) -> None:
    before = rig.image
    assert ErrorCode(propose(rig, isr, **fields).error_code) is code
    assert rig.image is before


def test_fenced_and_leaving_brokers_are_ineligible(rig: Rig) -> None:
    propose(rig, [0])
    rig.heartbeat(1, want_fence=True)
    assert ErrorCode(propose(rig, [0, 1]).error_code) is ErrorCode.INELIGIBLE_REPLICA
    rig.create("u", [[2]])
    rig.heartbeat(2, want_shut_down=True)
    assert ErrorCode(propose(rig, [0, 2]).error_code) is ErrorCode.INELIGIBLE_REPLICA


def test_a_stale_broker_epoch_is_refused(rig: Rig) -> None:
    request = wire.AlterPartitionRequest(broker_id=0, broker_epoch=0)
    with pytest.raises(ApiError) as caught:
        rig.decide(lambda view: alter_partition(view, request, 3))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_after_an_unclean_election_the_leader_reports_its_recovery() -> None:
    rig = Rig(unclean_leader_election_enable="true")
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    propose(rig, [0])
    rig.heartbeat(0, want_fence=True)
    assert rig.partition("t").isr == (1,)
    assert rig.partition("t").recovery_state == RECOVERING
    assert propose(rig, [1], broker=1, leader_recovery_state=RECOVERING).error_code == 0
    answer = propose(rig, [1], broker=1)
    assert (answer.error_code, answer.leader_recovery_state) == (0, RECOVERED)
    assert rig.partition("t").recovery_state == RECOVERED
