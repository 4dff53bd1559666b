"""CreateAcls: v1-v3

Behaviour: adds ACLs. Forwarded to the controller; the response is sent when this broker has the ACLs.

Version notes: v2 flexible; v3 (KIP-373) adds resources of type USER.

Errors: those of the controller (SECURITY_DISABLED, INVALID_REQUEST, POLICY_VIOLATION); REQUEST_TIMED_OUT. A code 0
closes the connection, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.security_requests import closes_at_zero, forward
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.messages.k30_create_acls import CreateAclsRequest


def handle(services: Services, request: Request) -> Answer:
    """Forward to the controller."""
    message: CreateAclsRequest = request.message
    codes = (
        code
        for acl in message.creations
        for code in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    )
    return closes_at_zero(request, codes) or forward(services, request)


API = Api(30, "CreateAcls", (1, 3), handle)
