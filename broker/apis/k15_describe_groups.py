"""DescribeGroups: v0-v6

Behaviour: returns the state, protocol and members of groups. Subscriptions are included for Stable groups only, since
those of other groups are about to change.

Version notes: v1 throttle time; v3 authorized operations (KIP-430); v4 group.instance.id (KIP-345); v5 flexible; v6
GROUP_ID_NOT_FOUND with a message for a group that does not exist or is of another kind; earlier versions return a Dead
group without an error.

Errors per group: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND (v6).

Different from Apache Kafka: a group that is named twice is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

AUTHORIZED_OPERATIONS_FROM = 3
INSTANCE_ID_FROM = 4
NOT_FOUND_FROM = 6


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: DescribeGroupsRequest = request.message
    version = request.version
    access = request.access
    groups = [
        DescribedGroup(group_id=group_id, error_code=rights.DESCRIBE_GROUP.error)
        if access is not None and not access.allows(rights.DESCRIBE_GROUP, group_id)
        else _describe(services, group_id, version)
        for group_id in dict.fromkeys(message.groups)
    ]
    if version >= AUTHORIZED_OPERATIONS_FROM and message.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(request, ResourceType.GROUP, group.group_id)
    return Reply(DescribeGroupsResponse(groups=groups))


def _describe(services: Services, group_id: str, version: int) -> DescribedGroup:
    error, described = services.group_coordinator.describe(group_id, lambda group: describe(group, version))
    if described is not None:
        return described
    if error != ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=error)
    dead = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_FROM:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        is_modern = services.group_coordinator.is_modern_group(group_id)
        dead.error_message = f"Group {group_id} {'is not a classic group' if is_modern else 'not found'}."
    return dead


def describe(group: Group, version: int) -> DescribedGroup:
    """Build the description of a group."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            _member(member, group.protocol_name if is_stable else None, version)
            for member in group.members.by_id.values()
        ],
    )


def _member(member: Member, protocol_name: str | None, version: int) -> DescribedGroupMember:
    row = DescribedGroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name) if protocol_name is not None else b"",
        member_assignment=member.assignment,
    )
    if version >= INSTANCE_ID_FROM:
        row.group_instance_id = member.instance_id
    return row


API = Api(15, "DescribeGroups", (0, 6), handle)
