"""Builds the requests and responses of the raft protocol for the one partition `__cluster_metadata-0`.

Source: RaftUtil (Kafka 4.3).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.ids import METADATA_TOPIC_ID
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.controller.raft.quorum import Quorum
from barnabas.controller.raft.roles import Resigned
from barnabas.controller.raft.voter_set import Listener, ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k01_fetch as fetch
from barnabas.protocol.messages import k52_vote as vote
from barnabas.protocol.messages import k53_begin_quorum_epoch as begin
from barnabas.protocol.messages import k54_end_quorum_epoch as end
from barnabas.protocol.messages import k59_fetch_snapshot as snapshot
from barnabas.protocol.messages import k82_update_raft_voter as update

TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = -1
NO_RECORDS: Final = b""


def vote_request(q: Quorum, voter: ReplicaKey, *, is_pre_vote: bool) -> vote.VoteRequest:
    """Ask a voter for its vote, or for its pre-vote."""
    log_end = q.outline.end
    partition = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=q.epoch,
        replica_id=q.key.id,
        replica_directory_id=q.key.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=log_end.epoch,
        last_offset=log_end.offset,
        pre_vote=is_pre_vote,
    )
    topic = vote.RequestTopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=q.config.cluster_id, voter_id=voter.id, topics=[topic])


def vote_response(q: Quorum, error: ErrorCode, *, is_granted: bool = False) -> vote.VoteResponse:
    """Answer a request for a vote."""
    partition = vote.ResponsePartitionData(
        partition_index=0,
        error_code=error,
        leader_id=leader_id(q),
        leader_epoch=q.epoch,
        vote_granted=is_granted,
    )
    topic = vote.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteResponse(error_code=0, topics=[topic], node_endpoints=_endpoints(q, vote.NodeEndpoint))


def begin_quorum_epoch_request(q: Quorum, voter: ReplicaKey) -> begin.BeginQuorumEpochRequest:
    """Tell a voter who leads."""
    partition = begin.RequestPartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=q.key.id, leader_epoch=q.epoch
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=q.config.cluster_id,
        voter_id=voter.id,
        topics=[begin.RequestTopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[begin.LeaderEndpoint(name=name, host=h, port=port) for name, h, port in q.config.listeners],
    )


def begin_quorum_epoch_response(q: Quorum, error: ErrorCode) -> begin.BeginQuorumEpochResponse:
    """Answer a leader that begins its epoch."""
    partition = begin.ResponsePartitionData(
        partition_index=0, error_code=error, leader_id=leader_id(q), leader_epoch=q.epoch
    )
    topic = begin.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    return begin.BeginQuorumEpochResponse(
        error_code=0, topics=[topic], node_endpoints=_endpoints(q, begin.NodeEndpoint)
    )


def end_quorum_epoch_request(q: Quorum, role: Resigned) -> end.EndQuorumEpochRequest:
    """Tell a voter that this leader has resigned, and who should be elected next."""
    partition = end.RequestPartitionData(
        partition_index=0,
        leader_id=q.key.id,
        leader_epoch=q.epoch,
        preferred_successors=[key.id for key in role.successors],
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in role.successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=q.config.cluster_id,
        topics=[end.RequestTopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[end.LeaderEndpoint(name=name, host=h, port=port) for name, h, port in q.config.listeners],
    )


def end_quorum_epoch_response(q: Quorum, error: ErrorCode) -> end.EndQuorumEpochResponse:
    """Answer a leader that has resigned."""
    partition = end.ResponsePartitionData(
        partition_index=0, error_code=error, leader_id=leader_id(q), leader_epoch=q.epoch
    )
    topic = end.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    return end.EndQuorumEpochResponse(error_code=0, topics=[topic], node_endpoints=_endpoints(q, end.NodeEndpoint))


def fetch_request(q: Quorum) -> fetch.FetchRequest:
    """Ask the leader for what follows the log's end."""
    log_end = q.outline.end
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=q.epoch,
        fetch_offset=log_end.offset,
        last_fetched_epoch=log_end.epoch,
        partition_max_bytes=0,
        replica_directory_id=q.key.directory_id,
        high_watermark=q.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=q.config.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=q.key.id),
        max_wait_ms=q.config.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=q.config.fetch_max_bytes,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_response(
    q: Quorum,
    error: ErrorCode,
    *,
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> fetch.FetchResponse:
    """Answer a fetch; the records are put in later."""
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=q.outline.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id(q), leader_epoch=q.epoch),
        records=NO_RECORDS,
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic], node_endpoints=_endpoints(q, fetch.NodeEndpoint))


def fetch_snapshot_request(q: Quorum, snapshot_id: OffsetAndEpoch, position: int) -> snapshot.FetchSnapshotRequest:
    """Ask the leader for the next part of a snapshot."""
    partition = snapshot.RequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=q.epoch,
        snapshot_id=snapshot.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=q.key.directory_id,
    )
    return snapshot.FetchSnapshotRequest(
        cluster_id=q.config.cluster_id,
        replica_id=q.key.id,
        max_bytes=q.config.snapshot_max_bytes,
        topics=[snapshot.RequestTopicSnapshot(name=TOPIC, partitions=[partition])],
    )


def fetch_snapshot_response(
    q: Quorum, error: ErrorCode, snapshot_id: OffsetAndEpoch | None = None, position: int = 0
) -> snapshot.FetchSnapshotResponse:
    """Answer a fetch of a snapshot; size and bytes are put in later."""
    offset, epoch = snapshot_id or (-1, -1)
    partition = snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=snapshot.SnapshotId(end_offset=offset, epoch=epoch),
        current_leader=snapshot.LeaderIdAndEpoch(leader_id=leader_id(q), leader_epoch=q.epoch),
        position=position,
        unaligned_records=NO_RECORDS,
    )
    topic = snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])
    return snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=_endpoints(q, snapshot.NodeEndpoint))


def update_voter_request(q: Quorum) -> update.UpdateRaftVoterRequest:
    """Tell the leader this voter's endpoints and versions."""
    lowest, highest = q.config.kraft_versions
    return update.UpdateRaftVoterRequest(
        cluster_id=q.config.cluster_id,
        current_leader_epoch=q.epoch,
        voter_id=q.key.id,
        voter_directory_id=q.key.directory_id,
        listeners=[update.Listener(name=name, host=host, port=port) for name, host, port in q.config.listeners],
        kraft_version_feature=update.KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
    )


def update_voter_response(q: Quorum, error: ErrorCode) -> update.UpdateRaftVoterResponse:
    """Answer a voter that updates its endpoints."""
    found = _leader_listener(q)
    leader = update.CurrentLeader(leader_id=leader_id(q), leader_epoch=q.epoch)
    if found is not None:
        leader.host, leader.port = found.host, found.port
    return update.UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def leader_id(q: Quorum) -> int:
    """Return the id of the epoch's leader; -1 if it is not known."""
    found = q.role.leader_id
    return NO_LEADER if found is None else found


def listener_of(q: Quorum, node_endpoints: list[Any], node_id: int | None) -> tuple[Listener, ...]:
    """Return the leader's listener that a response names."""
    name = q.config.listener_name
    found = next((endpoint for endpoint in node_endpoints if endpoint.node_id == node_id), None)
    return () if found is None else (Listener(name, found.host, found.port),)


def _leader_listener(q: Quorum) -> Listener | None:
    name = q.config.listener_name
    return next((listener for listener in q.leader_endpoints if listener.name == name), None)


def _endpoints(q: Quorum, cls: type[Any]) -> list[Any]:
    found = _leader_listener(q)
    return [] if found is None else [cls(node_id=leader_id(q), host=found.host, port=found.port)]
