"""A row of THE table of rights: which right a request needs, when, and what is answered without it.

Rows are asked in order. `Answer` says what a missing right does:

| answer | without the right |
|---|---|
| REQUEST | the whole request is refused with `error` |
| ITEM | one topic, group, transactional id or config resource of the request gets `error` |
| LEFT_OUT | the item is left out of a list, as if it did not exist |
| NEXT | the next row is asked; with the right, the rows after this one are not asked |

The dispatcher asks the rows with `asks`, which returns the name of the resource, or None if the row does not apply to a
request. The API itself asks the others.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.security.values import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from barnabas.protocol.api_keys import ApiKey


class Answer(Enum):
    """What happens without a right (see the module)."""

    REQUEST = "the request is refused"
    ITEM = "the item is refused"
    LEFT_OUT = "the item is left out"
    NEXT = "the next right is asked for"


Asks = Callable[[Any], str | None]  # called with a Request, which imports this module


class Row(NamedTuple):
    """A right that an API needs."""

    key: ApiKey
    condition: str  # when the row applies, in words; "" always
    operation: AclOperation
    resource: ResourceType
    answer: Answer
    error: ErrorCode = ErrorCode.NONE
    asks: Asks | None = None
    is_any: bool = False  # the right to any one resource of the type is enough
    is_logged: bool = True  # whether a refusal is logged; not for rights that filter lists or have an alternative


#: The error for a missing right, by resource type.
ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def the_cluster(_request: object) -> str:
    """Return the name of the cluster resource: the `asks` of a row that always applies."""
    return CLUSTER_NAME
