"""FetchSnapshot: a replica that is behind the log's start, or diverges before it, gets the snapshot in parts.

Rules
1. The parts come in order. One that does not fit what is there ends the attempt, and a fetch begins again after a
   pause. The first part names the size, which no later one changes. So a snapshot has an end.
2. A whole snapshot replaces the log only if it ends after the log (by epoch, then by offset): a replica never loses
   records that it has acknowledged to a later leader.

Source: KafkaRaftClient (Kafka 4.3); KIP-630.
"""

from __future__ import annotations

from barnabas.controller.raft.effects import LoadSnapshot, ReplaceLog, ReplySnapshot, WriteSnapshot
from barnabas.controller.raft.handlers.common import cluster_error, is_handled, leader_error, partition_of
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.messages import fetch_snapshot_response
from barnabas.controller.raft.quorum import Quorum
from barnabas.controller.raft.roles import Candidate, Follower
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ResponsePartitionSnapshot,
)


def handle_fetch_snapshot(q: Quorum, request: FetchSnapshotRequest, token: object, now_ms: int) -> None:
    """Answer with a part of a snapshot; the driver has its bytes."""
    partition = partition_of(request.topics, "name")
    if error := cluster_error(q, request.cluster_id, partition):
        q.reply(token, FetchSnapshotResponse(error_code=error))
        return
    if error := leader_error(q, partition.current_leader_epoch):
        q.reply(token, fetch_snapshot_response(q, error))
        return
    leader = q.role
    assert isinstance(leader, Leader)
    leader.note_fetch(ReplicaKey(request.replica_id, partition.replica_directory_id), now_ms, q.config.fetch_timeout_ms)
    wanted = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if wanted != q.outline.snapshot:
        q.reply(token, fetch_snapshot_response(q, ErrorCode.SNAPSHOT_NOT_FOUND))
        return
    response = fetch_snapshot_response(q, ErrorCode.NONE, wanted, partition.position)
    size = max(0, min(request.max_bytes, q.config.snapshot_max_bytes))
    q.effects.append(ReplySnapshot(token, response, wanted, partition.position, size))


def handle_fetch_snapshot_response(q: Quorum, response: FetchSnapshotResponse, now_ms: int) -> bool:
    """Write the next part; return whether the response is no failure."""
    partition = partition_of(response.topics, "name")
    if response.error_code or partition is None:
        return False
    error, current = partition.error_code, partition.current_leader
    is_gone = error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
    common = ErrorCode.NONE if is_gone else error
    if is_handled(q, common, current.leader_epoch, current.leader_id, response.node_endpoints, now_ms):
        return bool(error != ErrorCode.BROKER_NOT_AVAILABLE)
    follower = q.role
    if not isinstance(follower, Follower) or follower.leader_id != current.leader_id:
        return True
    follower.deadline_ms = now_ms + q.config.fetch_timeout_ms
    if is_gone:
        follower.snapshot = None
    elif not _write(q, follower, partition):
        follower.snapshot = None
        return False
    return True


def _write(q: Quorum, follower: Follower, partition: ResponsePartitionSnapshot) -> bool:
    fetching = follower.snapshot
    found = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    data = partition.unaligned_records
    if fetching is None or fetching.id != found or fetching.position != partition.position or not data:
        q.note(f"A part of snapshot {found} at {partition.position} does not fit")
        return False
    if not fetching.position:
        fetching.size = partition.size
    end = fetching.position + len(data)
    if partition.size != fetching.size or end > fetching.size:
        q.note(f"Snapshot {found} of {fetching.size} bytes has grown to {max(partition.size, end)}")
        return False
    q.effects.append(WriteSnapshot(found, fetching.position, data))
    fetching.position = end
    if end == fetching.size:
        fetching.is_whole = True
        q.effects.append(LoadSnapshot(found))
    return True


def snapshot_received(q: Quorum, snapshot: OffsetAndEpoch, membership: Membership | None, now_ms: int) -> None:
    """Let a whole snapshot replace the log (rule 2); without a membership its file was damaged."""
    follower = q.role
    if isinstance(follower, Follower) and follower.snapshot is not None and follower.snapshot.id == snapshot:
        follower.snapshot = None
    if membership is None:
        q.note(f"Snapshot {snapshot} cannot be read; it is fetched again")
    elif (
        isinstance(follower, Leader | Candidate)
        or q.outline.end.is_up_to_date_with(snapshot)
        or snapshot.offset < q.high_watermark
    ):
        q.note(f"Snapshot {snapshot} came late: the log ends at {q.outline.end}")
    else:
        q.outline.replace(snapshot, membership)
        q.effects.append(ReplaceLog(snapshot))
        q.committed(snapshot.offset, now_ms)
