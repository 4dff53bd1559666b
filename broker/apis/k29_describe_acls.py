"""DescribeAcls: v1-v3

Behaviour: lists the ACLs that a filter selects, by pattern. This broker answers from what the controller pushed to it.

Version notes: v2 flexible; v3 (KIP-373) adds resources of type USER.

Errors: SECURITY_DISABLED without an authorizer. A filter with a code that this release does not know selects nothing.
One with a code 0 closes the connection, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.security_requests import closes_at_zero
from barnabas.broker.requests.answers import Close, Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.security.acls.filters import AclFilter
from barnabas.security.values import PatternType, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.security.image import SecurityImage


def handle(services: Services, request: Request) -> Reply | Close:
    """Return the selected ACLs."""
    return answer(request, services.config, services.security.image)


def answer(request: Request, config: Config, image: SecurityImage) -> Reply | Close:
    """Return the selected ACLs of an image; also for controllers."""
    message: DescribeAclsRequest = request.message
    codes = (message.resource_type_filter, message.pattern_type_filter, message.operation, message.permission_type)
    closing = closes_at_zero(request, codes)
    if closing is not None:
        return closing
    if not config.authorizer_class_name:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = AclFilter.of_request(message)
    resources: dict[tuple[ResourceType, str, PatternType], DescribeAclsResource] = {}
    for acl in image.acls.values():
        if wanted.matches(acl):
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = DescribeAclsResource(
                    resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
            )
    return Reply(DescribeAclsResponse(resources=list(resources.values())))


API = Api(29, "DescribeAcls", (1, 3), handle)
