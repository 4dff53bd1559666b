"""ShareGroupHeartbeat: v1

Behaviour: a member of a share group (KIP-932) joins (epoch 0), renews its session, changes its subscription, or leaves
(epoch -1). A field that is null is unchanged. The response has the member's epoch and, if it changed, its assignment;
it is sent when the change is committed. Partitions are assigned once their state is initialised at the share
coordinators, so a new group's members get theirs with a later heartbeat.

Errors: INVALID_REQUEST, UNSUPPORTED_VERSION (share.version is 0), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND (also for a group of another kind), UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.share_groups.values import JOIN_EPOCH, LEAVE_EPOCH, Heartbeat, HeartbeatResult
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k76_share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.requests.request import Request

MEMBER_ID_CHARS_MAX: Final = 36  # of a UUID as people write it


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the coordinator answers."""
    message: ShareGroupHeartbeatRequest = request.message
    try:
        if not services.share_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.access is not None:
            _authorize(message, request.access)
        check(message)
    except ApiError as error:
        return Reply(response(error))
    deferred = Deferred()
    services.share_groups.heartbeat(
        message.group_id, _heartbeat(message, request), lambda result: deferred.complete(response(result))
    )
    return Park(deferred)


def _authorize(message: ShareGroupHeartbeatRequest, access: Access) -> None:
    """Raise ApiError unless the client may read the group and describe every topic that it names."""
    access.require(rights.SHARE_HEARTBEAT, message.group_id)
    names = set(message.subscribed_topic_names or ())
    if len(access.allowed(rights.SHARE_HEARTBEAT_TOPIC, names)) < len(names):
        raise ApiError(rights.SHARE_HEARTBEAT_TOPIC.error)


def check(message: ShareGroupHeartbeatRequest) -> None:
    """Raise ApiError for a request that contradicts itself."""
    if not 0 < len(message.member_id) <= MEMBER_ID_CHARS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    for name, value in (("MemberId", message.member_id), ("GroupId", message.group_id), ("RackId", message.rack_id)):
        if value is not None and not value.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if message.member_epoch == JOIN_EPOCH and not message.subscribed_topic_names:
        raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if message.member_epoch < LEAVE_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _heartbeat(message: ShareGroupHeartbeatRequest, request: Request) -> Heartbeat:
    names = message.subscribed_topic_names
    return Heartbeat(
        member_id=message.member_id,
        epoch=message.member_epoch,
        rack_id=message.rack_id,
        topic_names=None if names is None else frozenset(names),
        client_id=request.client_id or "",
        client_host=request.client_host,
    )


def response(result: HeartbeatResult | ApiError) -> ShareGroupHeartbeatResponse:
    """Build the response."""
    if isinstance(result, ApiError):
        return ShareGroupHeartbeatResponse(error_code=result.code, error_message=result.own_message)
    message = ShareGroupHeartbeatResponse(
        member_id=result.member_id, member_epoch=result.epoch, heartbeat_interval_ms=result.heartbeat_interval_ms
    )
    if result.assigned is not None:
        message.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in result.assigned.items()
            ]
        )
    return message


API = Api(76, "ShareGroupHeartbeat", (1, 1), handle)
