"""ConsumerGroupHeartbeat: v0-v1

Behaviour: a member of a consumer group (KIP-848) joins (epoch 0), renews its session and reports the partitions it
owns, changes its subscription, leaves (epoch -1), or leaves temporarily (-2: a static member keeps its partitions). A
field that is not set (null, -1) is unchanged. The response has the member's epoch and, if it changed, its assignment;
it is sent when the change is committed.

Version notes: v0 the coordinator chooses the member id; v1 the member chooses it, and may subscribe by a regular
expression (RE2 syntax), which the coordinator resolves.

Errors: INVALID_REQUEST, UNSUPPORTED_VERSION (the protocol is off), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, GROUP_MAX_SIZE_REACHED.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
    HeartbeatResult,
)
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.common.ids import random_uuid, uuid_to_string
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.requests.request import Request

MEMBER_CHOOSES_ID_FROM = 1


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the coordinator answers."""
    message: ConsumerGroupHeartbeatRequest = request.message
    coordinator = services.group_coordinator
    try:
        if not coordinator.are_consumer_groups_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.access is not None:
            _authorize(message, request.access)
        check(message, request.version, coordinator.consumer_assignors)
    except ApiError as error:
        return Reply(response(error))
    deferred = Deferred()
    coordinator.consumer_heartbeat(
        message.group_id, _heartbeat(message, request), lambda result: deferred.complete(response(result))
    )
    return Park(deferred)


def _authorize(message: ConsumerGroupHeartbeatRequest, access: Access) -> None:
    """Raise ApiError unless the client may read the group and describe every topic that it names."""
    access.require(rights.CONSUMER_HEARTBEAT, message.group_id)
    names = set(message.subscribed_topic_names or ())
    if len(access.allowed(rights.CONSUMER_HEARTBEAT_TOPIC, names)) < len(names):
        raise ApiError(rights.CONSUMER_HEARTBEAT_TOPIC.error)


def check(message: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]) -> None:
    """Raise ApiError for a request that contradicts itself."""
    epoch = message.member_epoch
    needs_id = version >= MEMBER_CHOOSES_ID_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    for name, value in (
        ("MemberId", message.member_id if needs_id else None),
        ("GroupId", message.group_id),
        ("InstanceId", message.instance_id),
        ("RackId", message.rack_id),
    ):
        if value is not None and not value.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(message)
    elif epoch == STATIC_LEAVE_EPOCH and message.instance_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(message: ConsumerGroupHeartbeatRequest) -> None:
    if message.rebalance_timeout_ms == -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if message.topic_partitions is None or message.topic_partitions:
        raise ApiError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def _heartbeat(message: ConsumerGroupHeartbeatRequest, request: Request) -> Heartbeat:
    names, owned = message.subscribed_topic_names, message.topic_partitions
    access = request.access
    return Heartbeat(
        member_id=message.member_id or uuid_to_string(random_uuid()),
        epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=None if owned is None else {topic.topic_id: frozenset(topic.partitions) for topic in owned},
        client_id=request.client_id or "",
        client_host=request.client_host,
        can_describe=None if access is None else partial(access.allows, rights.CONSUMER_REGEX_TOPIC),
    )


def response(result: HeartbeatResult | ApiError) -> ConsumerGroupHeartbeatResponse:
    """Build the response."""
    if isinstance(result, ApiError):
        return ConsumerGroupHeartbeatResponse(error_code=result.code, error_message=result.own_message)
    message = ConsumerGroupHeartbeatResponse(
        member_id=result.member_id, member_epoch=result.epoch, heartbeat_interval_ms=result.heartbeat_interval_ms
    )
    if result.assigned is not None:
        message.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in result.assigned.items()
            ]
        )
    return message


API = Api(68, "ConsumerGroupHeartbeat", (0, 1), handle)
