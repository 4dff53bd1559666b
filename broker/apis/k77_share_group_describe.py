"""ShareGroupDescribe: v1

Behaviour: returns the state, epochs and members of share groups (KIP-932), with their current assignments. Deleted
topics are left out.

Errors per group: UNSUPPORTED_VERSION (share.version is 0), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
INVALID_GROUP_ID (an empty name), GROUP_ID_NOT_FOUND (also for a group of another kind).

Different from Apache Kafka: a group that is named twice is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.authorized import operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k77_share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.coordinators.share_groups.group import ShareGroup
    from barnabas.broker.coordinators.share_groups.values import Member as GroupMember
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request

ASSIGNOR: Final = "simple"  # the only one


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: ShareGroupDescribeRequest = request.message
    groups = [_describe(services, request, group_id) for group_id in dict.fromkeys(message.group_ids)]
    if message.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(request, ResourceType.GROUP, group.group_id)
    if request.access is not None:
        groups = _without_hidden_topics(groups, request.access)
    return Reply(ShareGroupDescribeResponse(groups=groups))


def _without_hidden_topics(groups: list[DescribedGroup], access: Access) -> list[DescribedGroup]:
    """Refuse the groups in whose assignments are topics that the client may not describe."""
    topics = {group.group_id: _topics(group) for group in groups}
    allowed = access.allowed(rights.SHARE_GROUP_DESCRIBE_TOPIC, set().union(*topics.values()))
    return [
        group
        if topics[group.group_id] <= allowed
        else DescribedGroup(
            group_id=group.group_id,
            error_code=rights.SHARE_GROUP_DESCRIBE_TOPIC.error,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
        for group in groups
    ]


def _topics(group: DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}


def _describe(services: Services, request: Request, group_id: str) -> DescribedGroup:
    share_groups, snapshot = services.share_groups, services.metadata_cache.snapshot
    try:
        if not share_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.access is not None:
            request.access.require(rights.SHARE_GROUP_DESCRIBE, group_id)
        return share_groups.describe(group_id, lambda group: describe(group, snapshot))
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.own_message)


def describe(group: ShareGroup, snapshot: MetadataSnapshot) -> DescribedGroup:
    """Build the description of a group."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(member, snapshot) for member in group.members.values()],
    )


def _member(member: GroupMember, snapshot: MetadataSnapshot) -> Member:
    names = snapshot.topic_names
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                if topic_id in names
            ]
        ),
    )


API = Api(77, "ShareGroupDescribe", (1, 1), handle)
