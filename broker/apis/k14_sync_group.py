"""SyncGroup: v0-v5

Behaviour: a member that joined fetches its assignment; the leader sends the assignments of all members. They wait until
the leader's request is written, and are then answered together.

Version notes: v1 throttle time; v3 group.instance.id (KIP-345); v4 flexible; v5 protocol type and name, mandatory in
the request, for the client to check in the response (KIP-559).

Errors: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL (missing in v5, or not the group's), REBALANCE_IN_PROGRESS (the
group moved on), COORDINATOR_NOT_AVAILABLE (the assignment could not be written).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic.events import Sync, SyncResult
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

PROTOCOL_FROM = 5


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the coordinator answers."""
    message: SyncGroupRequest = request.message
    version = request.version
    if version >= PROTOCOL_FROM and (message.protocol_type is None or message.protocol_name is None):
        return Reply(response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), version))
    deferred = Deferred()
    event = Sync(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation_id=message.generation_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
        reply=lambda result: deferred.complete(response(result, version)),
    )
    services.group_coordinator.sync(message.group_id, event)
    return Park(deferred)


def response(result: SyncResult, version: int) -> SyncGroupResponse:
    """Build the response of this version."""
    message = SyncGroupResponse(error_code=result.error, assignment=result.assignment)
    if version >= PROTOCOL_FROM:
        message.protocol_type = result.protocol_type
        message.protocol_name = result.protocol_name
    return message


API = Api(14, "SyncGroup", (0, 5), handle)
