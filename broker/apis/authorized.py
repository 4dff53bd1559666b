"""The *authorized operations* fields: bit sets of AclOperation codes (KIP-430).

Without an authorizer nothing is denied, so each resource allows every operation that applies to it.
Source: AclEntry.supportedOperations, Utils.to32BitField, AuthHelper.authorizedOperations (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization.access import OPERATIONS
from barnabas.security.values import CLUSTER_NAME, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.authorization.row import Row
    from barnabas.broker.requests.request import Request

NOT_REQUESTED: Final = -(1 << 31)
NOTHING: Final = 0  # a client that may not even describe the resource

_ALL: Final = {resource: sum(1 << operation for operation in some) for resource, some in OPERATIONS.items()}
TOPIC_OPERATIONS: Final = _ALL[ResourceType.TOPIC]
GROUP_OPERATIONS: Final = _ALL[ResourceType.GROUP]
CLUSTER_OPERATIONS: Final = _ALL[ResourceType.CLUSTER]


def operations(request: Request, resource: ResourceType, name: str) -> int:
    """Return the operations that a client may do on a topic or group that it may describe."""
    access = request.access
    return _ALL[resource] if access is None else access.operations(resource, name)


def cluster_operations(request: Request, describe: Row) -> int:
    """Return the operations that a client may do on the cluster; none without the right to describe it."""
    access = request.access
    if access is None:
        return CLUSTER_OPERATIONS
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME) if access.allows(describe) else NOTHING
