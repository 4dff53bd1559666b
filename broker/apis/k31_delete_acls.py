"""DeleteAcls: v1-v3

Behaviour: removes the ACLs that filters select. Forwarded to the controller; the response is sent when this broker has
the change.

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
    from barnabas.protocol.messages.k31_delete_acls import DeleteAclsRequest


def handle(services: Services, request: Request) -> Answer:
    """Forward to the controller."""
    message: DeleteAclsRequest = request.message
    codes = (
        code
        for acl in message.filters
        for code in (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    )
    return closes_at_zero(request, codes) or forward(services, request)


API = Api(31, "DeleteAcls", (1, 3), handle)
