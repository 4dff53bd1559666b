"""LeaveGroup: v0-v5

Behaviour: members leave, so that the others need not wait until their sessions expire. An administrator may remove
static members by instance id.

Version notes: v0-v2 one member, whose error is the response's; v1 throttle time; v3 many members, each with its error
(KIP-345); v4 flexible; v5 reason (KIP-800).

Errors: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; per member UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic.events import Leave, LeaveResult, LeavingMember
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

MANY_MEMBERS_FROM = 3


def handle(services: Services, request: Request) -> Park:
    """Park until the change is written, if it must be written at all."""
    message: LeaveGroupRequest = request.message
    version = request.version
    deferred = Deferred()
    event = Leave(_members(message, version), lambda result: deferred.complete(response(result, version)))
    services.group_coordinator.leave(message.group_id, event)
    return Park(deferred)


def _members(message: LeaveGroupRequest, version: int) -> tuple[LeavingMember, ...]:
    if version < MANY_MEMBERS_FROM:
        return (LeavingMember(message.member_id),)
    return tuple(LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in message.members)


def response(result: LeaveResult, version: int) -> LeaveGroupResponse:
    """Build the response of this version."""
    if version < MANY_MEMBERS_FROM:
        error = result.error or (result.members[0].error if result.members else result.error)
        return LeaveGroupResponse(error_code=error)
    members = [
        MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error)
        for member in result.members
    ]
    return LeaveGroupResponse(error_code=result.error, members=members)


API = Api(13, "LeaveGroup", (0, 5), handle)
