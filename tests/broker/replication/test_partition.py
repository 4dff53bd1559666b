"""Leaders, followers, watermarks and the ISR, with real logs and pushes."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.role import IsrOutcome
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.broker_room import BrokerRoom, batch, fetch, produce, registration, state

TP = TopicPartition("t", 0)


@pytest.fixture
def room():
    made = BrokerRoom(min_insync_replicas="2", replica_lag_time_max_ms="1000")
    yield made
    made.close()


def follower_fetch(offset, *, replica=2, epoch=-1, **about):
    request = fetch(offset, item={"current_leader_epoch": epoch, "log_start_offset": 0}, **about)
    request.replica_state.replica_id = replica
    request.replica_state.replica_epoch = 33
    return request


def partition_of(response):
    return response.responses[0].partitions[0]


def test_the_watermark_follows_the_slowest_in_sync_replica(room):
    room.push({"t": [state(1, (1, 2, 3))]})
    room.answer(produce(batch(b"a", b"b")), 9)
    partition = room.manager.partition(TP)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    room.answer(follower_fetch(2), 17)
    assert partition.high_watermark == 0
    told = partition_of(room.answer(follower_fetch(2, replica=3), 17))
    assert (partition.high_watermark, told.high_watermark) == (2, 2)


def test_acks_all_waits_for_the_followers(room):
    room.push({"t": [state(1, (1, 2))]})
    waiting = room.answer(produce(batch(b"a"), acks=-1), 9)
    assert waiting.response is None
    room.answer(follower_fetch(0), 17)
    assert waiting.response is None
    room.answer(follower_fetch(1), 17)
    answered = waiting.response.responses[0].partition_responses[0]
    assert (answered.error_code, answered.base_offset) == (0, 0)


def test_acks_all_runs_out_of_time(room):
    room.push({"t": [state(1, (1, 2))]})
    waiting = room.answer(produce(batch(b"a"), acks=-1, timeout_ms=500), 9)
    room.advance_ms(600)
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_acks_all_ends_with_leadership_and_tells_who_leads(room):
    room.push({"t": [state(1, (1, 2))]})
    waiting = room.answer(produce(batch(b"a"), acks=-1), 10)
    room.push({"t": [state(2, (1, 2), leader_epoch=1, partition_epoch=1)]})
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answered.current_leader.leader_id, answered.current_leader.leader_epoch) == (2, 1)
    assert [(n.node_id, n.host) for n in waiting.response.node_endpoints] == [(2, "b2")]
    assert room.fetchers.followed == {TP}
    assert room.listening.heard == [("led", TP, 0), ("resigned", TP, 1)]


def test_where_nobody_leads_no_leader_is_told(room):
    room.push({"t": [state(1, (1, 2))]})
    waiting = room.answer(produce(batch(b"a"), acks=-1), 10)
    room.push({"t": [state(-1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answered.current_leader.leader_id, answered.current_leader.leader_epoch) == (-1, -1), (
        "the field is not sent"
    )
    assert not waiting.response.node_endpoints


def test_too_small_an_isr_refuses_acks_all_but_not_acks_1(room):
    room.push({"t": [state(1, (1, 2, 3), isr=(1,))]})
    refused = room.answer(produce(batch(b"a"), acks=-1), 9).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert room.answer(produce(batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0
    assert room.manager.partition(TP).high_watermark == 0  # nothing is safe below min.insync.replicas


def test_an_isr_that_shrinks_meanwhile_is_told(room):
    room.push({"t": [state(1, (1, 2, 3))]})
    waiting = room.answer(produce(batch(b"a"), acks=-1), 9)
    partition = room.manager.partition(TP)
    room.push({"t": [state(1, (1, 2, 3), isr=(1,), partition_epoch=1)]})
    partition.log.update_high_watermark(1)
    room.manager.complete_delayed(TP)
    answered = waiting.response.responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_follower_that_caught_up_joins_through_the_controller(room):
    room.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    room.answer(produce(batch(b"a")), 9)
    room.answer(follower_fetch(1, replica=3), 17)
    ((tp, proposal, on_done),) = room.isr_changes.submitted
    assert (tp, proposal.is_expansion, dict(proposal.isr)) == (TP, True, {1: -1, 2: -1, 3: 33})
    partition = room.manager.partition(TP)
    assert partition.role.maximal_isr == {1, 2, 3}
    room.answer(follower_fetch(1, replica=3), 17)
    assert len(room.isr_changes.submitted) == 1  # one at a time
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2, 3), partition_epoch=1))
    assert (partition.isr, partition.partition_epoch) == ({1, 2, 3}, 1)


def test_a_push_that_says_nothing_new_leaves_a_proposal_in_flight(room):
    room.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    room.answer(produce(batch(b"a")), 9)
    room.answer(follower_fetch(1, replica=3), 17)
    ((_tp, _proposal, on_done),) = room.isr_changes.submitted
    partition = room.manager.partition(TP)
    room.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    assert (partition.isr, partition.role.maximal_isr) == ({1, 2}, {1, 2, 3})
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2, 3), partition_epoch=1))
    assert partition.isr == {1, 2, 3}


@pytest.mark.parametrize(
    ("error", "is_in_flight"),
    [(ErrorCode.INELIGIBLE_REPLICA, False), (ErrorCode.INVALID_UPDATE_VERSION, True)],
)
def test_a_refused_change_is_undone_or_left_to_the_next_push(room, error, is_in_flight):
    room.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    room.answer(follower_fetch(0, replica=3), 17)
    room.isr_changes.submitted[0][2](IsrOutcome(error))
    assert room.manager.partition(TP).role.is_isr_change_in_flight is is_in_flight


def test_a_failed_change_is_tried_again(room):
    room.push({"t": [state(1, (1, 2, 3), isr=(1, 2))]})
    room.answer(follower_fetch(0, replica=3), 17)
    room.isr_changes.submitted[0][2](IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert len(room.isr_changes.submitted) == 2


def test_a_follower_that_lags_is_proposed_to_leave(room):
    room.push({"t": [state(1, (1, 2, 3))]})
    room.answer(produce(batch(b"a")), 9)
    room.answer(follower_fetch(1, replica=2), 17)
    room.clock.advance_ms(900)
    room.answer(follower_fetch(1, replica=2), 17)
    room.clock.advance_ms(200)
    room.manager.maybe_shrink_isrs()
    _, proposal, on_done = room.isr_changes.submitted[0]
    assert [broker for broker, _ in proposal.isr] == [1, 2]
    assert room.manager.partition(TP).high_watermark == 0  # until the controller agrees, broker 3 counts
    on_done(IsrOutcome(ErrorCode.NONE, 1, 0, (1, 2), partition_epoch=1))
    assert room.manager.partition(TP).high_watermark == 1


def test_epochs_of_fetchers_are_checked(room):
    room.push({"t": [state(1, (1, 2), leader_epoch=5, partition_epoch=5)]})
    assert partition_of(room.answer(follower_fetch(0, epoch=4), 17)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert partition_of(room.answer(follower_fetch(0, epoch=6), 17)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stranger = partition_of(room.answer(follower_fetch(0, replica=9), 17))
    assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_fetcher_is_told_where(room):
    room.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]})
    room.answer(produce(batch(b"a", b"b")), 9)
    room.push({"t": [state(1, (1, 2), leader_epoch=3, partition_epoch=2)]})
    room.answer(produce(batch(b"c")), 9)
    request = follower_fetch(5)
    request.topics[0].partitions[0].last_fetched_epoch = 2
    told = partition_of(room.answer(request, 17))
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset, told.records) == (1, 2, b"")


def test_followers_take_over_what_the_leader_says(room):
    room.push({"t": [state(2, (1, 2))]})
    partition = room.manager.partition(TP)
    records = memoryview(bytearray(batch(b"a", b"b", leader_epoch=0)))
    assert partition.append_as_follower(records, leader_epoch=7) is None  # of another epoch
    assert partition.append_as_follower(records, leader_epoch=0).last_offset == 1
    assert partition.update_follower_watermarks(9, 0)
    assert partition.high_watermark == 2  # no further than our own log
    partition.truncate_to(0, leader_epoch=0)
    assert partition.log.log_end_offset == 0
    with pytest.raises(ApiError) as refused:
        partition.leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_older_partition_epoch_is_ignored(room):
    room.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=5)]})
    room.push({"t": [state(2, (1, 2), leader_epoch=1, partition_epoch=4)]})
    assert room.manager.partition(TP).is_leader


def tell_of_brokers(room, *registrations):
    """What the controller pushes when brokers come, go or are about to."""
    room.answer(room.update_metadata({}, registrations=registrations), 8)


def test_a_broker_that_shuts_down_is_not_proposed_for_the_isr(room):
    room.push({"t": [state(1, (1, 2), (1,))]})
    tell_of_brokers(room, registration(2, leaving=True))
    room.answer(follower_fetch(0), 17)
    assert room.isr_changes.submitted == []
    tell_of_brokers(room, registration(2))
    room.answer(follower_fetch(0), 17)
    assert [proposal.isr for _, proposal, _ in room.isr_changes.submitted] == [((1, -1), (2, 33))]


def test_the_fetches_of_an_earlier_incarnation_are_refused(room):
    room.push({"t": [state(1, (1, 2), (1,))]})
    tell_of_brokers(room, registration(2, epoch=44))
    refused = partition_of(room.answer(follower_fetch(0), 17))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert room.isr_changes.submitted == []


def test_an_incarnation_that_we_have_not_heard_of_yet_is_not_proposed(room):
    room.push({"t": [state(1, (1, 2), (1,))]})
    tell_of_brokers(room, registration(2, epoch=22))
    assert partition_of(room.answer(follower_fetch(0), 17)).error_code == ErrorCode.NONE
    assert room.isr_changes.submitted == []
    tell_of_brokers(room, registration(2, epoch=33))
    room.answer(follower_fetch(0), 17)
    assert len(room.isr_changes.submitted) == 1


def test_the_watermark_does_not_wait_for_a_broker_that_shuts_down(room):
    room.push({"t": [state(1, (1, 2, 3), (1, 3))]})
    tell_of_brokers(room, registration(2), registration(3))
    room.answer(follower_fetch(0), 17)
    room.isr_changes.submitted[0][2](IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))
    room.answer(produce(batch(b"a")), 9)
    tell_of_brokers(room, registration(2, leaving=True), registration(3))
    room.answer(follower_fetch(1, replica=3), 17)
    assert room.manager.partition(TP).high_watermark == 1


def test_a_leader_by_unclean_election_says_that_it_has_recovered(room):
    room.push({"t": [state(1, (1, 2), (1,), leader_recovery_state=1)]})
    room.answer(follower_fetch(0), 17)
    ((_, proposal, _),) = room.isr_changes.submitted
    assert (proposal.isr, proposal.leader_recovery_state) == (((1, -1), (2, 33)), 0)
