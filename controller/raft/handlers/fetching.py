"""Fetch: the leader answers its replicas, and they append what it sends.

Rules
1. A fetch says where the replica's durable log ends. It counts for the high watermark only if that end is in ours.
2. A fetch waits while there are neither new records nor a higher high watermark for it (KIP-1166). One fetch of a
   replica waits at a time; a second one answers the first. At most PARKED_MAX wait: one more answers the one that waits
   for longest. Each input of the replica looks at all of them, and those of closed connections are among them.
3. A follower appends batches that begin at its log's end, of epochs that do not go back and are not above its own. The
   same holds for the epoch of a snapshot.
4. A follower never truncates what it knows to be committed.

Source: KafkaRaftClient (Kafka 4.3); KIP-595, KIP-630, KIP-1166.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.common.ids import METADATA_TOPIC_ID
from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.effects import Append, Flush, Truncate
from barnabas.controller.raft.handlers.common import cluster_error, is_handled, leader_error
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.log_outline import OffsetAndEpoch, Validity
from barnabas.controller.raft.messages import TOPIC, fetch_response
from barnabas.controller.raft.quorum import ParkedFetch, Quorum
from barnabas.controller.raft.roles import FetchingSnapshot, Follower
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

PARKED_MAX: Final = 1_000


def handle_fetch(q: Quorum, request: FetchRequest, token: object, now_ms: int) -> None:
    """Answer a replica, or let it wait (rule 2)."""
    partition = _partition_of(request.topics)
    if error := cluster_error(q, request.cluster_id, partition):
        q.reply(token, FetchResponse(error_code=error))
        return
    key = ReplicaKey(request.replica_state.replica_id, partition.replica_directory_id)
    is_valid = 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch and partition.fetch_offset >= 0
    if not is_valid or request.max_wait_ms < 0 or key.id == q.key.id:
        q.reply(token, fetch_response(q, ErrorCode.INVALID_REQUEST))
    elif error := leader_error(q, partition.current_leader_epoch):
        q.reply(token, fetch_response(q, error))
    else:
        _answer_replica(q, partition, key, request.max_wait_ms, token, now_ms)


def _answer_replica(
    q: Quorum, partition: FetchPartition, key: ReplicaKey, max_wait_ms: int, token: object, now_ms: int
) -> None:
    leader = q.role
    assert isinstance(leader, Leader)
    offset = partition.fetch_offset
    if offset == 0 and q.outline.snapshot is not None:
        validity, position = Validity.SNAPSHOT, q.outline.snapshot
    else:
        validity, position = q.outline.validate(offset, partition.last_fetched_epoch)
    if validity is Validity.DIVERGING:
        q.reply(token, fetch_response(q, ErrorCode.NONE, high_watermark=leader.high_watermark, diverging=position))
    elif validity is Validity.SNAPSHOT:
        q.reply(token, fetch_response(q, ErrorCode.NONE, high_watermark=leader.high_watermark, snapshot_id=position))
    else:
        if key.id >= 0:
            leader.replica(key).note_fetch(offset, q.outline.end_offset, now_ms)
            leader.note_fetch(key, now_ms, q.config.fetch_timeout_ms)
            if leader.is_voter(key) and leader.advance_high_watermark():
                q.committed(leader.high_watermark, now_ms)
        parked = ParkedFetch(token, key, offset, partition.high_watermark, now_ms + max_wait_ms)
        for earlier in [found for found in q.parked if found.key == key and key.id >= 0]:
            q.parked.remove(earlier)
            _answer_parked(q, earlier)
        if _is_due(q, parked, now_ms):
            _answer_parked(q, parked)
        else:
            if len(q.parked) >= PARKED_MAX:
                _answer_parked(q, q.parked.pop(0))
            q.parked.append(parked)


def answer_due_fetches(q: Quorum, now_ms: int) -> None:
    """Answer the fetches that have waited enough, all of them if this replica leads no more."""
    due = [found for found in q.parked if _is_due(q, found, now_ms)]
    if due:
        q.parked = [found for found in q.parked if not _is_due(q, found, now_ms)]
        for found in due:
            _answer_parked(q, found)


def _is_due(q: Quorum, parked: ParkedFetch, now_ms: int) -> bool:
    leader = q.role
    return (
        not isinstance(leader, Leader)
        or parked.offset < q.outline.end_offset
        or parked.high_watermark < leader.high_watermark
        or parked.deadline_ms <= now_ms
    )


def _answer_parked(q: Quorum, parked: ParkedFetch) -> None:
    leader = q.role
    if not isinstance(leader, Leader):
        q.reply(parked.token, fetch_response(q, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    read = parked.offset if q.outline.start_offset <= parked.offset < q.outline.end_offset else None
    q.reply(parked.token, fetch_response(q, ErrorCode.NONE, high_watermark=leader.high_watermark), read)


def handle_fetch_response(
    q: Quorum,
    response: FetchResponse,
    decode: Callable[[Any], Sequence[Batch]],
    now_ms: int,
) -> bool:
    """Append, truncate or begin with a snapshot, as the leader says; return whether the response is no failure."""
    partition = _partition_of(response.responses)
    if response.error_code or partition is None:
        return False
    current = partition.current_leader
    error = partition.error_code
    if is_handled(q, error, current.leader_epoch, current.leader_id, response.node_endpoints, now_ms):
        return not error  # Why a pause after each error: a replica that looks for the leader would ask without end
    follower = q.role
    if not isinstance(follower, Follower) or follower.leader_id != current.leader_id:
        return True
    if not _apply(q, follower, partition, decode, now_ms):
        return False
    follower.deadline_ms = now_ms + q.config.fetch_timeout_ms
    follower.has_fetched = True
    return True


def _apply(
    q: Quorum, follower: Follower, partition: PartitionData, decode: Callable[[Any], Sequence[Batch]], now_ms: int
) -> bool:
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        return _truncate(q, OffsetAndEpoch(diverging.end_offset, diverging.epoch))
    if snapshot.end_offset >= 0 and snapshot.epoch >= 0:
        wanted = OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
        if wanted.offset <= q.high_watermark:
            q.note(f"The leader offers snapshot {wanted}, which is committed here")
            return False
        if wanted.epoch > follower.epoch:  # Why: as for batches (rule 3); its epoch would become ours
            q.note(f"The leader of epoch {follower.epoch} offers snapshot {wanted}, of a later epoch")
            return False
        follower.snapshot = FetchingSnapshot(wanted)
        return True
    if partition.records is not None and len(partition.records) and not _append(q, follower, partition.records, decode):
        return False
    q.committed(min(partition.high_watermark, q.outline.end_offset), now_ms)
    return True


def _truncate(q: Quorum, diverging: OffsetAndEpoch) -> bool:
    offset = q.outline.truncation_for(diverging)
    if offset < max(q.high_watermark, q.outline.start_offset):
        q.note(f"The leader asks to truncate to {offset}; everything below {q.high_watermark} is committed (rule 4)")
        return False
    if offset < q.outline.end_offset:
        q.outline.truncate(offset)
        q.effects.append(Truncate(offset))
    return True


def _append(q: Quorum, follower: Follower, records: Any, decode: Callable[[Any], Sequence[Batch]]) -> bool:
    try:
        batches = decode(records)
    except MalformedMessageError as error:
        q.note(f"Records of leader {follower.leader_id} are damaged: {error}")
        return False
    accepted = []
    for batch in batches:
        if batch.base_offset != q.outline.end_offset or not q.outline.last_epoch <= batch.epoch <= follower.epoch:
            q.note(f"Leader {follower.leader_id} sent a batch {batch[:3]} for a log that ends at {q.outline.end}")
            break
        q.outline.append(batch)
        accepted.append(batch)
    if accepted:
        q.effects += (Append(tuple(accepted)), Flush())
    return len(accepted) == len(batches)


def _partition_of(topics: Any) -> Any:
    """Return the metadata partition of a Fetch message, which names the topic by its id (by its name before v13)."""
    if len(topics) != 1 or topics[0].topic not in ("", TOPIC):
        return None
    if topics[0].topic != TOPIC and topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    named = topics[0]
    if len(named.partitions) != 1:
        return None
    partition = named.partitions[0]
    index = partition.partition if isinstance(partition, FetchPartition) else partition.partition_index
    return partition if index == 0 else None
