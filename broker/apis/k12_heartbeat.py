"""Heartbeat: v0-v4

Behaviour: renews a member's session. The error says what the member must do: nothing (NONE), join again
(REBALANCE_IN_PROGRESS), or start again as a new member.

Version notes: v1 throttle time; v3 group.instance.id (KIP-345); v4 flexible.

Errors: INVALID_GROUP_ID (empty), NOT_COORDINATOR, UNKNOWN_MEMBER_ID (member or group unknown), FENCED_INSTANCE_ID
(another member has the instance id), ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS. While the coordinator loads, every
heartbeat is accepted (NONE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Reply:
    """Reply at once: heartbeats never wait."""
    message: HeartbeatRequest = request.message
    error = services.group_coordinator.heartbeat(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id
    )
    return Reply(HeartbeatResponse(error_code=error))


API = Api(12, "Heartbeat", (0, 4), handle)
