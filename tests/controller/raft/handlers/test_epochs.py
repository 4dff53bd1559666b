"""Epochs that no election can have reached: refused in requests, bounded in responses."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.push_state import PushState
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.raft.handlers.epochs import EPOCHS_PER_S, JUMP_MAX, LEARNED_MAX, EpochBound
from barnabas.controller.raft.replica import RaftReplica
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k52_vote as vote
from barnabas.protocol.messages import k53_begin_quorum_epoch as begin
from barnabas.protocol.messages import k54_end_quorum_epoch as end
from barnabas.protocol.messages.k52_vote import VoteResponse
from barnabas.protocol.schema import Message
from tests.controller.raft.rig import answers, key, leader_alone, replica
from tests.controller.raft.simulator.node import CLUSTER

TOPIC = "__cluster_metadata"
LAST = (1 << 31) - 1
HIGHEST = LEARNED_MAX + JUMP_MAX


def vote_in(epoch: int, *, pre_vote: bool = False) -> Message:
    partition = vote.RequestPartitionData(
        partition_index=0, replica_epoch=epoch, replica_id=2, replica_directory_id=key(2).directory_id,
        last_offset=100, last_offset_epoch=epoch - 1, pre_vote=pre_vote,
    )  # fmt: skip
    topics = [vote.RequestTopicData(topic_name=TOPIC, partitions=[partition])]
    return vote.VoteRequest(cluster_id=CLUSTER, voter_id=1, topics=topics)


def begin_in(epoch: int) -> Message:
    partition = begin.RequestPartitionData(partition_index=0, leader_id=2, leader_epoch=epoch)
    topics = [begin.RequestTopicData(topic_name=TOPIC, partitions=[partition])]
    return begin.BeginQuorumEpochRequest(cluster_id=CLUSTER, voter_id=1, topics=topics)


def end_in(epoch: int) -> Message:
    partition = end.RequestPartitionData(partition_index=0, leader_id=2, leader_epoch=epoch)
    topics = [end.RequestTopicData(topic_name=TOPIC, partitions=[partition])]
    return end.EndQuorumEpochRequest(cluster_id=CLUSTER, topics=topics)


@pytest.mark.parametrize("request_", [vote_in(LAST), vote_in(LAST, pre_vote=True), begin_in(LAST), end_in(LAST)])
def test_a_request_with_the_last_epoch_is_refused_and_the_leader_stays(request_: Message) -> None:
    leader = leader_alone()
    epoch = leader.quorum.epoch
    [answer] = answers(leader.handle_request(request_, "token", 3_000))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert leader.is_leader
    assert leader.quorum.epoch == epoch


def test_a_candidate_of_a_later_epoch_is_heard() -> None:
    follower = replica(1)
    follower.start(0)
    [answer] = answers(follower.handle_request(vote_in(JUMP_MAX), "token", 0))
    assert answer.topics[0].partitions[0].vote_granted
    assert follower.quorum.epoch == JUMP_MAX


def answered(asking: RaftReplica, epoch: int) -> int:
    """The epoch of a replica after a voter has answered its pre-vote with an epoch."""
    now_ms = 3_000
    while not (sends := [e for e in asking.poll(now_ms) if getattr(e, "node_id", None) == 2]):
        now_ms += 10
    partition = vote.ResponsePartitionData(
        partition_index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH, leader_id=-1, leader_epoch=epoch
    )
    response = VoteResponse(topics=[vote.ResponseTopicData(topic_name=TOPIC, partitions=[partition])])
    asking.handle_response(2, sends[0].correlation_id, response, now_ms)
    return asking.quorum.epoch


@pytest.mark.parametrize(
    ("epoch", "entered"),
    [(LEARNED_MAX, LEARNED_MAX), (HIGHEST, HIGHEST), (HIGHEST + 1, 0), (LAST, 0)],
)
def test_a_replica_learns_a_later_epoch_from_a_response_up_to_a_bound(epoch: int, entered: int) -> None:
    """Above LEARNED_MAX too: others that came there by a response have elected since."""
    asking = replica(1)
    asking.start(0)
    assert answered(asking, epoch) == entered


def test_brokers_obey_a_leader_of_each_epoch_that_a_quorum_may_learn() -> None:
    """Otherwise an epoch that was raised once leaves a quorum whose every push is refused, for ever."""
    state = PushState(MemoryFileSystem(), [], CLUSTER)
    state.controller_epoch = 0
    assert not state.is_leap(HIGHEST)
    assert state.is_leap(LAST)


def test_requests_may_name_more_as_epochs_pass() -> None:
    bound = EpochBound()
    bound.start(7, 1_000)
    assert bound.admits(7 + JUMP_MAX, 7, 1_000)
    assert not bound.admits(8 + JUMP_MAX, 7, 1_000)
    own = 7 + JUMP_MAX
    assert bound.admits(own + EPOCHS_PER_S, own, 2_000)
    assert not bound.admits(own + EPOCHS_PER_S + 1, own, 2_000)
    for now_ms in range(2_000, 3_000):  # requests that come often do not stop the growth
        bound.admits(0, own, now_ms)
    assert bound.admits(own + 2 * EPOCHS_PER_S, own, 3_000)


def test_no_allowance_is_saved_up() -> None:
    bound = EpochBound()
    bound.start(7, 0)
    year_ms = 365 * 86_400_000
    assert not bound.admits(LAST, 7, year_ms)
    assert not bound.admits(8 + JUMP_MAX, 7, year_ms)
    assert bound.admits(7 + JUMP_MAX, 7, year_ms)
    assert not bound.admits(8 + JUMP_MAX, 7 + JUMP_MAX, year_ms)


def test_after_a_response_requests_count_from_its_epoch() -> None:
    bound = EpochBound()
    assert bound.learns(LEARNED_MAX, 0, 5)
    assert bound.admits(LEARNED_MAX + JUMP_MAX, LEARNED_MAX, 5)
    assert bound.learns(LEARNED_MAX + 1, LEARNED_MAX, 5)
    assert not bound.learns(LEARNED_MAX + JUMP_MAX + 1, LEARNED_MAX, 5)
    assert bound.learns(LEARNED_MAX + 9, 10, 5)  # a replica that was away
