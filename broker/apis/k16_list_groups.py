"""ListGroups: v0-v5

Behaviour: lists the groups that this broker coordinates.

Version notes: v1 throttle time; v3 flexible; v4 filter by state, and the state in the response (KIP-518); v5 filter by
type (classic, consumer or share), and the type in the response (KIP-848).

Errors: COORDINATOR_LOAD_IN_PROGRESS while any of its partitions is being loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

STATE_FROM = 4
TYPE_FROM = 5


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: ListGroupsRequest = request.message
    version = request.version
    states = message.states_filter if version >= STATE_FROM else []
    types = {name.strip().lower() for name in message.types_filter} if version >= TYPE_FROM else set()
    error, listed = services.group_coordinator.list_groups(states)
    access = request.access
    if access is not None and access.allows(rights.LIST_ANY_GROUP):
        access = None
    groups = []
    for found in listed:
        if access is not None and not access.allows(rights.LIST_GROUP, found.group_id):
            continue
        if types and found.type not in types:
            continue
        group = ListedGroup(group_id=found.group_id, protocol_type=found.protocol_type)
        if version >= STATE_FROM:
            group.group_state = found.state
        if version >= TYPE_FROM:
            group.group_type = found.type
        groups.append(group)
    return Reply(ListGroupsResponse(error_code=error, groups=groups))


API = Api(16, "ListGroups", (0, 5), handle)
