"""JoinGroup: v0-v9

Behaviour: a member joins the next generation, and waits until all members have joined. The response has the generation,
the leader and the protocol. The leader's response also lists the members, for the assignment.

Version notes: v0 has no rebalance timeout, so the session timeout is used; v4 new members first get an id
(MEMBER_ID_REQUIRED, KIP-394); v5 group.instance.id (KIP-345); v6 flexible; v7 protocol type in the response, and a
missing protocol name is null instead of "" (KIP-559); v8 reason (KIP-800); v9 skip_assignment: a static leader that
returns must not assign again (KIP-814).

Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT (outside group.min/max.session.timeout.ms), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE, REBALANCE_IN_PROGRESS (superseded by
a later join of the same member).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic.events import UNKNOWN_MEMBER_ID, Join, JoinResult
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.common.ids import uuid4_text
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

NULL_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9
REASON_LENGTH_MAX = 255
NAME_CHARS_MAX = 1000  # of the name at the start of a member id: a longer id fits neither the response nor the record


def handle(services: Services, request: Request) -> Park:
    """Park until the coordinator answers."""
    message: JoinGroupRequest = request.message
    deferred = Deferred()
    services.group_coordinator.join(message.group_id, _event(message, request, deferred))
    return Park(deferred)


def _event(message: JoinGroupRequest, request: Request, deferred: Deferred) -> Join:
    version = request.version
    client_id = request.client_id or ""
    new_member_id = ""
    if message.member_id == UNKNOWN_MEMBER_ID:
        new_member_id = f"{(message.group_instance_id or client_id)[:NAME_CHARS_MAX]}-{uuid4_text()}"
    return Join(
        member_id=message.member_id,
        new_member_id=new_member_id,
        instance_id=message.group_instance_id,
        client_id=client_id,
        client_host=request.client_host,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms if version >= 1 else message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in message.protocols),
        version=version,
        reason=message.reason[:REASON_LENGTH_MAX] if message.reason else None,
        reply=lambda result: deferred.complete(response(result, version)),
    )


def response(result: JoinResult, version: int) -> JoinGroupResponse:
    """Build the response of this version."""
    protocol_name = result.protocol_name or (None if version >= NULL_PROTOCOL_FROM else "")
    message = JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_name=protocol_name,
        leader=result.leader,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
    if version >= NULL_PROTOCOL_FROM:
        message.protocol_type = result.protocol_type
    if version >= SKIP_ASSIGNMENT_FROM:
        message.skip_assignment = result.skip_assignment
    return message


API = Api(11, "JoinGroup", (0, 9), handle)
