"""Leaders, followers, watermarks and the ISR, with real logs and pushes.

Tests `replication/partition.py`, `replication/in_sync/followers.py` and `replication/in_sync/isr_updates.py`.
"""

from __future__ import annotations

import pytest

from barnabas.broker.replication.role import IsrOutcome
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.apis.config_rig import set_configs
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, registration, state

TP = TopicPartition("t", 0)


@pytest.fixture
def rig():
    made = BrokerRig(min_insync_replicas="2", replica_lag_time_max_ms="1000")
    yield made
    made.close()


def follower_fetch(offset, *, replica=2, epoch=-1, **about):
    request = fetch(offset, item={"current_leader_epoch": epoch, "log_start_offset": 0}, **about)
    request.replica_state.replica_id = replica
    request.replica_state.replica_epoch = 33
    return request


def partition_of(response):
    return response.responses[0].partitions[0]


def test_the_watermark_follows_the_slowest_in_sync_replica(rig):
    rig.push({"t": [state(1, (1, 2, 3))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    partition = rig.manager.partition(TP)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    rig.answer(follower_fetch(2), 17)
    assert partition.high_watermark == 0
    data = partition_of(rig.answer(follower_fetch(2, replica=3), 17))
    assert (partition.high_watermark, data.high_watermark) == (2, 2)


def test_acks_all_waits_for_the_followers(rig):
    rig.push({"t": [state(1, (1, 2))]})
    waiting = rig.answer(produce(batch(b"a"), acks=-1), 9)
    assert waiting.response is None
    rig.answer(follower_fetch(0), 17)
    assert waiting.response is None
    rig.answer(follower_fetch(1), 17)
    answered = waiting.response.responses[0].partition_responses[0]
    assert (answered.error_code, answered.base_offset) == (0, 0)


def test_acks_all_times_out(rig):
    rig.push({"t": [state(1, (1, 2))]})
    waiting = rig.answer(produce(batch(b"a"), acks=-1, timeout_ms=500), 9)
    rig.advance_ms(600)
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_lost_leadership_ends_acks_all_and_names_the_new_leader(rig):
    rig.push({"t": [state(1, (1, 2))]})
    waiting = rig.answer(produce(batch(b"a"), acks=-1), 10)
    rig.push({"t": [state(2, (1, 2), leader_epoch=1, partition_epoch=1)]})
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answered.current_leader.leader_id, answered.current_leader.leader_epoch) == (2, 1)
    assert [(n.node_id, n.host) for n in waiting.response.node_endpoints] == [(2, "b2")]
    assert rig.fetchers.followed == {TP}
    assert rig.listening.heard == [("led", TP, 0), ("resigned", TP, 1)]


def test_without_a_leader_no_leader_is_named(rig):
    rig.push({"t": [state(1, (1, 2))]})
    waiting = rig.answer(produce(batch(b"a"), acks=-1), 10)
    rig.push({"t": [state(-1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answered.current_leader.leader_id, answered.current_leader.leader_epoch) == (-1, -1), (
        "the field is not sent"
    )
    assert not waiting.response.node_endpoints


def test_an_isr_below_the_minimum_refuses_acks_all_but_not_acks_1(rig):
    rig.push({"t": [state(1, (1, 2, 3), isr=(1,))]})
    refused = rig.answer(produce(batch(b"a"), acks=-1), 9).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.answer(produce(batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0
    assert rig.manager.partition(TP).high_watermark == 0  # no record is safe below min.insync.replicas


def test_an_isr_that_shrinks_after_the_append_is_reported(rig):
    rig.push({"t": [state(1, (1, 2, 3))]})
    waiting = rig.answer(produce(batch(b"a"), acks=-1), 9)
    partition = rig.manager.partition(TP)
    rig.push({"t": [state(1, (1, 2, 3), isr=(1,), partition_epoch=1)]})
    partition.log.update_high_watermark(1)
    rig.manager.complete_delayed(TP)
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_caught_up_follower_joins_through_the_controller(rig):
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    rig.answer(produce(batch(b"a")), 9)
    rig.answer(follower_fetch(1, replica=3), 17)
    ((tp, proposal, on_done),) = rig.isr_changes.submitted
    assert (tp, proposal.is_expansion, dict(proposal.isr)) == (TP, True, {1: -1, 2: -1, 3: 33})
    partition = rig.manager.partition(TP)
    assert partition.role.maximal_isr == {1, 2, 3}
    rig.answer(follower_fetch(1, replica=3), 17)
    assert len(rig.isr_changes.submitted) == 1  # one at a time
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2, 3), partition_epoch=1))
    assert (partition.isr, partition.partition_epoch) == ({1, 2, 3}, 1)


def test_a_push_of_the_known_state_leaves_a_proposal_in_flight(rig):
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    rig.answer(produce(batch(b"a")), 9)
    rig.answer(follower_fetch(1, replica=3), 17)
    ((_tp, _proposal, on_done),) = rig.isr_changes.submitted
    partition = rig.manager.partition(TP)
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    assert (partition.isr, partition.role.maximal_isr) == ({1, 2}, {1, 2, 3})
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2, 3), partition_epoch=1))
    assert partition.isr == {1, 2, 3}


@pytest.mark.parametrize(
    ("error", "is_in_flight"),
    [(ErrorCode.INELIGIBLE_REPLICA, False), (ErrorCode.INVALID_UPDATE_VERSION, True)],
)
def test_a_refused_change_is_rolled_back_or_left_to_the_next_push(rig, error, is_in_flight):
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    rig.answer(follower_fetch(0, replica=3), 17)
    rig.isr_changes.submitted[0][2](IsrOutcome(error))
    assert rig.manager.partition(TP).role.is_isr_change_in_flight is is_in_flight


def test_a_failed_change_is_proposed_again(rig):
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    rig.answer(follower_fetch(0, replica=3), 17)
    rig.isr_changes.submitted[0][2](IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert len(rig.isr_changes.submitted) == 2


def test_a_lagging_follower_is_proposed_to_leave(rig):
    rig.push({"t": [state(1, (1, 2, 3))]})
    rig.answer(produce(batch(b"a")), 9)
    rig.answer(follower_fetch(1, replica=2), 17)
    rig.clock.advance_ms(900)
    rig.answer(follower_fetch(1, replica=2), 17)
    rig.clock.advance_ms(200)
    rig.manager.maybe_shrink_isrs()
    _, proposal, on_done = rig.isr_changes.submitted[0]
    assert [broker for broker, _ in proposal.isr] == [1, 2]
    assert rig.manager.partition(TP).high_watermark == 0  # until the controller agrees, broker 3 counts
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2), partition_epoch=1))
    assert rig.manager.partition(TP).high_watermark == 0
    rig.push({"t": [state(1, (1, 2, 3), isr=(1, 2), partition_epoch=1)]})
    assert rig.manager.partition(TP).high_watermark == 1


def test_a_smaller_isr_waits_for_the_min_insync_replicas_with_which_it_was_decided(rig):
    set_configs(rig.services, ResourceType.TOPIC, "t", min_insync_replicas="1")
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a")), 9)
    rig.advance_ms(1_100)
    rig.manager.maybe_shrink_isrs()
    ((_, proposal, on_done),) = rig.isr_changes.submitted
    assert [broker for broker, _ in proposal.isr] == [1]
    # The controller has raised the value to 2 since. It notes broker 2 as an eligible leader replica, and responds.
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1,), partition_epoch=1))
    partition = rig.manager.partition(TP)
    assert (partition.isr, partition.high_watermark) == ({1, 2}, 0)
    set_configs(rig.services, ResourceType.TOPIC, "t", min_insync_replicas="2")  # applied before the rest of the push
    rig.push({"t": [state(1, (1, 2), isr=(1,), partition_epoch=1)]})
    assert (partition.isr, partition.high_watermark) == ({1}, 0), "broker 2 may be elected without the record"


def test_epochs_of_fetchers_are_checked(rig):
    rig.push({"t": [state(1, (1, 2), leader_epoch=5, partition_epoch=5)]})
    assert partition_of(rig.answer(follower_fetch(0, epoch=4), 17)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert partition_of(rig.answer(follower_fetch(0, epoch=6), 17)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stranger = partition_of(rig.answer(follower_fetch(0, replica=9, epoch=5), 17))
    assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    without_epoch = partition_of(rig.answer(follower_fetch(0, replica=9), 17))
    assert without_epoch.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_diverging_fetcher_gets_the_epoch_and_its_end(rig):
    rig.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    rig.push({"t": [state(1, (1, 2), leader_epoch=3, partition_epoch=2)]})
    rig.answer(produce(batch(b"c")), 9)
    request = follower_fetch(5)
    request.topics[0].partitions[0].last_fetched_epoch = 2
    data = partition_of(rig.answer(request, 17))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, data.records) == (1, 2, b"")


def test_a_follower_takes_over_records_and_watermarks(rig):
    rig.push({"t": [state(2, (1, 2))]})
    partition = rig.manager.partition(TP)
    records = memoryview(bytearray(batch(b"a", b"b", leader_epoch=0)))
    assert partition.append_as_follower(records, leader_epoch=7) is None  # of another epoch
    assert partition.append_as_follower(records, leader_epoch=0).last_offset == 1
    assert partition.update_follower_watermarks(9, 0)
    assert partition.high_watermark == 2  # no further than its own log
    partition.truncate_to(0, leader_epoch=0)
    assert partition.log.log_end_offset == 0
    with pytest.raises(ApiError) as refused:
        partition.leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_older_partition_epoch_is_ignored(rig):
    rig.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=5)]})
    rig.push({"t": [state(2, (1, 2), leader_epoch=1, partition_epoch=4)]})
    assert rig.manager.partition(TP).is_leader


def push_registrations(rig, *registrations):
    """Push the registrations of brokers, as the controller does when they change."""
    rig.answer(rig.update_metadata({}, registrations=registrations), 8)


def test_a_broker_that_shuts_down_is_not_proposed_for_the_isr(rig):
    rig.push({"t": [state(1, (1, 2), (1,))]})
    push_registrations(rig, registration(2, leaving=True))
    rig.answer(follower_fetch(0), 17)
    assert rig.isr_changes.submitted == []
    push_registrations(rig, registration(2))
    rig.answer(follower_fetch(0), 17)
    assert [proposal.isr for _, proposal, _ in rig.isr_changes.submitted] == [((1, -1), (2, 33))]


def test_the_fetches_of_an_earlier_incarnation_are_refused(rig):
    rig.push({"t": [state(1, (1, 2), (1,))]})
    push_registrations(rig, registration(2, epoch=44))
    refused = partition_of(rig.answer(follower_fetch(0), 17))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.isr_changes.submitted == []


def test_an_unknown_incarnation_is_not_proposed(rig):
    rig.push({"t": [state(1, (1, 2), (1,))]})
    push_registrations(rig, registration(2, epoch=22))
    assert partition_of(rig.answer(follower_fetch(0), 17)).error_code == ErrorCode.NONE
    assert rig.isr_changes.submitted == []
    push_registrations(rig, registration(2, epoch=33))
    rig.answer(follower_fetch(0), 17)
    assert len(rig.isr_changes.submitted) == 1


def test_the_watermark_does_not_wait_for_a_broker_that_shuts_down(rig):
    rig.push({"t": [state(1, (1, 2, 3), (1, 3))]})
    push_registrations(rig, registration(2), registration(3))
    rig.answer(follower_fetch(0), 17)
    rig.isr_changes.submitted[0][2](IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))
    rig.answer(produce(batch(b"a")), 9)
    push_registrations(rig, registration(2, leaving=True), registration(3))
    rig.answer(follower_fetch(1, replica=3), 17)
    assert rig.manager.partition(TP).high_watermark == 1


def test_a_leader_by_unclean_election_reports_its_recovery(rig):
    rig.push({"t": [state(1, (1, 2), (1,), leader_recovery_state=1)]})
    rig.answer(follower_fetch(0), 17)
    ((_, proposal, _),) = rig.isr_changes.submitted
    assert (proposal.isr, proposal.leader_recovery_state) == (((1, -1), (2, 33)), 0)
