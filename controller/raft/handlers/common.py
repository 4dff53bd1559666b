"""The common part of all requests and responses: which are refused, and which leader they name.

Source: KafkaRaftClient (Kafka 4.3): validateVoterOnlyRequest, validateLeaderOnlyRequest, maybeHandleCommonResponse.
"""

from __future__ import annotations

from typing import Any

from barnabas.common.ids import ZERO_UUID
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.messages import TOPIC, listener_of
from barnabas.controller.raft.quorum import Quorum
from barnabas.controller.raft.voter_set import Listener
from barnabas.protocol.errors import ErrorCode


def partition_of(topics: list[Any], name: str) -> Any:
    """Return the one partition of the metadata topic in a message; None if it has another or several.

    `name` is the attribute with the topic's name.
    """
    if len(topics) != 1 or len(topics[0].partitions) != 1 or getattr(topics[0], name) != TOPIC:
        return None
    partition = topics[0].partitions[0]
    index = getattr(partition, "partition_index", None)
    if index is None:
        index = getattr(partition, "index", None)
    return partition if (partition.partition if index is None else index) == 0 else None


def cluster_error(q: Quorum, cluster_id: str | None, partition: Any) -> ErrorCode:
    """Return the error of a request from another cluster or for another partition."""
    if cluster_id is not None and cluster_id != q.config.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.NONE


def voter_error(q: Quorum, sender_id: int, epoch: int, now_ms: int) -> ErrorCode:
    """Return the error of a request that only a voter sends."""
    if epoch < q.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not q.epochs.admits(epoch, q.epoch, now_ms):
        q.note(f"A request of controller {sender_id} with epoch {epoch} is refused: the epoch here is {q.epoch}")
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE


def leader_error(q: Quorum, epoch: int) -> ErrorCode:
    """Return the error of a request that only the leader answers."""
    if epoch < q.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > q.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(q.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_for_this_replica(q: Quorum, voter_id: int, directory_id: bytes) -> bool:
    """Return whether a request names this replica; versions without the fields name every replica."""
    return voter_id in (-1, q.key.id) and directory_id in (ZERO_UUID, q.key.directory_id)


def listeners_named(q: Quorum, endpoints: list[Any]) -> tuple[Listener, ...]:
    """Return the controllers' listener among those that a leader names; no other one is of use here."""
    name = q.config.listener_name
    found = next((endpoint for endpoint in endpoints if endpoint.name == name), None)
    return () if found is None else (Listener(name, found.host, found.port),)


def is_handled(q: Quorum, error: int, epoch: int, leader_id: int, node_endpoints: list[Any], now_ms: int) -> bool:
    """Apply what a response says of epoch and leader; return whether there is nothing else to do with it."""
    if epoch < q.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if not q.epochs.learns(epoch, q.epoch, now_ms):
        q.note(f"A response with epoch {epoch} is ignored: the epoch here is {q.epoch}")
        return True
    leader = None if leader_id < 0 else leader_id
    endpoints = listener_of(q, node_endpoints, leader)
    if epoch > q.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        q.maybe_transition(epoch, leader, endpoints, now_ms)
        return True
    if leader is not None and q.role.leader_id is None:
        q.maybe_transition(epoch, leader, endpoints, now_ms)
    # Why not INVALID_VOTER_KEY: a voter whose disk was lost answers so until it is removed.
    if error and error != ErrorCode.INVALID_VOTER_KEY:
        q.note(f"A response has error {error}")
    return error != 0
