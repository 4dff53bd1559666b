"""Votes, pre-votes, and leaders that begin and end their epochs.

Source: KafkaRaftClient (Kafka 4.3); KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from barnabas.controller.raft.handlers.common import (
    cluster_error,
    is_for_this_replica,
    is_handled,
    listeners_named,
    partition_of,
    voter_error,
)
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.controller.raft.messages import begin_quorum_epoch_response, end_quorum_epoch_response, vote_response
from barnabas.controller.raft.quorum import Quorum
from barnabas.controller.raft.roles import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    can_grant_pre_vote,
    can_grant_vote,
)
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k52_vote import RequestPartitionData, VoteRequest, VoteResponse
from barnabas.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse, ReplicaInfo


def handle_vote(q: Quorum, request: VoteRequest, token: object, now_ms: int) -> None:
    """Answer a candidate, or a replica that asks whether it would be elected."""
    partition = partition_of(request.topics, "topic_name")
    if error := cluster_error(q, request.cluster_id, partition):
        q.reply(token, VoteResponse(error_code=error))
        return
    error = _vote_error(q, partition, now_ms)
    if error:
        q.reply(token, vote_response(q, error))
        return
    if partition.replica_epoch > q.epoch:
        reason = f"controller {partition.replica_id} asked for a vote in epoch {partition.replica_epoch}"
        q.become_unattached(partition.replica_epoch, now_ms, reason)
    if not is_for_this_replica(q, request.voter_id, partition.voter_directory_id):
        q.reply(token, vote_response(q, ErrorCode.INVALID_VOTER_KEY))
        return
    log_end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
    is_up_to_date = log_end.is_up_to_date_with(q.outline.end)
    candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
    if isinstance(q.role, Leader):
        is_granted = False
    elif partition.pre_vote:
        is_granted = can_grant_pre_vote(q.role, is_up_to_date)
    else:
        is_granted = can_grant_vote(q.role, candidate, is_up_to_date)
        if is_granted:
            q.vote_for(candidate, now_ms)
    q.reply(token, vote_response(q, ErrorCode.NONE, is_granted=is_granted))


def _vote_error(q: Quorum, partition: RequestPartitionData, now_ms: int) -> ErrorCode:
    epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
    # Why the difference: a candidate has raised its epoch above its log's; a pre-vote has not yet.
    is_valid = last_epoch <= epoch if partition.pre_vote else last_epoch < epoch
    if partition.last_offset < 0 or last_epoch < 0 or not is_valid or partition.replica_id == q.key.id:
        return ErrorCode.INVALID_REQUEST
    return voter_error(q, partition.replica_id, epoch, now_ms)


def handle_vote_response(q: Quorum, sender_id: int, response: VoteResponse, now_ms: int) -> bool:
    """Count a vote; return whether the response is no failure."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(q.role, Prospective):
        _count(q, sender_id, is_granted=True, now_ms=now_ms)  # Why: a voter without KIP-996 is no obstacle to it
        return True
    partition = partition_of(response.topics, "topic_name")
    if response.error_code or partition is None:
        return False
    error, epoch, leader_id = partition.error_code, partition.leader_epoch, partition.leader_id
    if not is_handled(q, error, epoch, leader_id, response.node_endpoints, now_ms):
        _count(q, sender_id, is_granted=partition.vote_granted, now_ms=now_ms)
    return not error  # Why a pause after each error: the same request would be sent again at once, without end


def _count(q: Quorum, sender_id: int, *, is_granted: bool, now_ms: int) -> None:
    role = q.role
    if not isinstance(role, Candidate | Prospective):
        return
    role.votes.record(sender_id, is_granted)
    if role.votes.is_granted:
        if isinstance(role, Candidate):
            q.become_leader(now_ms)
        else:
            q.become_candidate(now_ms)
    elif role.votes.is_rejected and isinstance(role, Prospective):
        q.lose_pre_vote(now_ms)


def handle_begin_quorum_epoch(q: Quorum, request: BeginQuorumEpochRequest, token: object, now_ms: int) -> None:
    """Follow a leader that begins its epoch."""
    partition = partition_of(request.topics, "topic_name")
    if error := cluster_error(q, request.cluster_id, partition):
        q.reply(token, BeginQuorumEpochResponse(error_code=error))
        return
    error = voter_error(q, partition.leader_id, partition.leader_epoch, now_ms)
    if not error:
        listeners = listeners_named(q, request.leader_endpoints)
        q.maybe_transition(partition.leader_epoch, partition.leader_id, listeners, now_ms)
        if not is_for_this_replica(q, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    q.reply(token, begin_quorum_epoch_response(q, error))


def handle_begin_quorum_epoch_response(q: Quorum, response: BeginQuorumEpochResponse, now_ms: int) -> bool:
    """Learn of a later epoch; return whether the response is no failure."""
    partition = partition_of(response.topics, "topic_name")
    if response.error_code or partition is None:
        return False
    is_handled(q, partition.error_code, partition.leader_epoch, partition.leader_id, response.node_endpoints, now_ms)
    return not partition.error_code


def handle_end_quorum_epoch(q: Quorum, request: EndQuorumEpochRequest, token: object, now_ms: int) -> None:
    """Begin an election soon: its leader has resigned. The preferred successor begins first."""
    partition = partition_of(request.topics, "topic_name")
    if error := cluster_error(q, request.cluster_id, partition):
        q.reply(token, EndQuorumEpochResponse(error_code=error))
        return
    error = voter_error(q, partition.leader_id, partition.leader_epoch, now_ms)
    if not error:
        listeners = listeners_named(q, request.leader_endpoints)
        q.maybe_transition(partition.leader_epoch, partition.leader_id, listeners, now_ms)
        if isinstance(q.role, Follower) and q.role.leader_id == partition.leader_id:
            q.role.deadline_ms = now_ms + _election_backoff(q, partition.preferred_candidates)
            # Why: it has no leader any more, so it must not refuse a pre-vote for one.
            q.role.has_fetched = False
            q.role.leader_has_resigned = True
    q.reply(token, end_quorum_epoch_response(q, error))


def _election_backoff(q: Quorum, candidates: list[ReplicaInfo]) -> int:
    longest = q.config.election_backoff_max_ms
    keys = [ReplicaKey(found.candidate_id, found.candidate_directory_id) for found in candidates]
    position = next((index for index, key in enumerate(keys) if key.matches(q.key)), len(keys))
    if position == 0:
        return 0
    if position >= len(keys):
        return longest
    return min(longest, (longest >> min(len(keys) - 1, 32)) << min(position - 1, 32))


def handle_end_quorum_epoch_response(q: Quorum, sender_id: int, response: EndQuorumEpochResponse, now_ms: int) -> bool:
    """Tell this voter no more; return whether the response is no failure."""
    partition = partition_of(response.topics, "topic_name")
    if response.error_code or partition is None:
        return False
    error, epoch, leader_id = partition.error_code, partition.leader_epoch, partition.leader_id
    if not is_handled(q, error, epoch, leader_id, response.node_endpoints, now_ms) and isinstance(q.role, Resigned):
        q.role.unacknowledged.discard(sender_id)
    return not error  # Why a pause after each error: the same request would be sent again at once, without end
