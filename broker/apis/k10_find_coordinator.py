"""FindCoordinator: v0-v6

Behaviour: returns the broker that coordinates a group, a transactional id or a share partition: the leader of its
partition of __consumer_offsets, __transaction_state or __share_group_state, with its address on the request's listener.
The first request creates the topic.

Version notes: v1 key type, throttle time, error message; v3 flexible; v4 many keys (KIP-699); v5 adds
TRANSACTION_ABORTABLE; v6 share partitions
(KIP-932), which only brokers ask for.

Errors: COORDINATOR_NOT_AVAILABLE (the topic does not exist yet, or the partition has no live leader),
INVALID_REQUEST (an unknown key type; a share partition before v6, or one that is not `group:topic id:partition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.share_state.values import is_coordinator_key
from barnabas.broker.metadata.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    Node,
)
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

MESSAGE_FROM = 1
MANY_KEYS_FROM = 4
GROUP_KEY_TYPE = 0
NO_NODE = Node(-1, "", -1, None)
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2
SHARE_FROM = 6
RIGHTS = {GROUP_KEY_TYPE: rights.FIND_GROUP, TRANSACTION_KEY_TYPE: rights.FIND_TRANSACTION}
TOPICS = {
    GROUP_KEY_TYPE: GROUP_METADATA_TOPIC,
    TRANSACTION_KEY_TYPE: TRANSACTION_STATE_TOPIC,
    SHARE_KEY_TYPE: SHARE_GROUP_STATE_TOPIC,
}


class Found(NamedTuple):
    """The coordinator of a key, or the reason why there is none."""

    error: ErrorCode
    node: Node = NO_NODE
    message: str | None = None


def handle(services: Services, request: Request) -> Reply:
    """Reply at once; the client retries while the topic is being created."""
    message: FindCoordinatorRequest = request.message
    version = request.version
    if version >= MANY_KEYS_FROM:
        keys = message.coordinator_keys
        found = [_find(services, request, message.key_type, key) for key in keys]
        return Reply(many(keys, found))
    return Reply(one(_find(services, request, message.key_type, message.key), version))


def _find(services: Services, request: Request, key_type: int, key: str) -> Found:
    right = RIGHTS.get(key_type)
    if right is not None and request.access is not None and not request.access.allows(right, key):
        return Found(right.error)
    topic = TOPICS.get(key_type)
    if topic is None:
        return Found(ErrorCode.INVALID_REQUEST, message=f"Unknown coordinator type {key_type}.")
    if key_type == SHARE_KEY_TYPE and (request.version < SHARE_FROM or not is_coordinator_key(key)):
        return Found(ErrorCode.INVALID_REQUEST)
    snapshot = services.metadata_cache.snapshot
    if snapshot.partition_count(topic) is None:
        services.auto_topic_creation.create_internal(topic)
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    info = snapshot.partition(TopicPartition(topic, _partition_for(services, key_type, key)))
    node = None if info is None else snapshot.node(info.leader, request.listener_name)
    if node is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, node)


def _partition_for(services: Services, key_type: int, key: str) -> int:
    if key_type == SHARE_KEY_TYPE:
        return services.share_coordinator.partition_for(key)
    is_group = key_type == GROUP_KEY_TYPE
    return (services.group_coordinator if is_group else services.transaction_coordinator).partition_for(key)


def one(found: Found, version: int) -> FindCoordinatorResponse:
    """Build the response of v0-v3."""
    error, node = found.error, found.node
    response = FindCoordinatorResponse(error_code=error, node_id=node.id, host=node.host, port=node.port)
    if version >= MESSAGE_FROM:
        # "NONE" is Kafka's message for success here.
        response.error_message = (found.message or error.message) if error else "NONE"
    return response


def many(keys: list[str], found: list[Found]) -> FindCoordinatorResponse:
    """Build the response since v4."""
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=each.node.id, host=each.node.host, port=each.node.port, error_code=each.error,
                error_message=each.message or "",
            )
            for key, each in zip(keys, found, strict=True)
        ]
    )  # fmt: skip


API = Api(10, "FindCoordinator", (0, 6), handle)
