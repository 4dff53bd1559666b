"""ConsumerGroupDescribe: v0-v1

Behaviour: returns the state, epochs and members of consumer groups (KIP-848). Each member has its current assignment
(with partitions it has yet to revoke) and its target assignment. Deleted topics are left out.

Version notes: v1 the protocol of each member: 0 classic, 1 consumer.

Errors per group: UNSUPPORTED_VERSION (the protocol is disabled), INVALID_GROUP_ID (an empty one), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND (also for a group of another kind).

Different from Apache Kafka: a group that is named twice is described once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.coordinators.consumer.group import ConsumerGroup
    from barnabas.broker.coordinators.consumer.values import Member as GroupMember
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: ConsumerGroupDescribeRequest = request.message
    groups = [_describe(services, request, group_id) for group_id in dict.fromkeys(message.group_ids)]
    if message.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(request, ResourceType.GROUP, group.group_id)
    if request.access is not None:
        groups = _without_hidden_topics(groups, request.access)
    return Reply(ConsumerGroupDescribeResponse(groups=groups))


def _without_hidden_topics(groups: list[DescribedGroup], access: Access) -> list[DescribedGroup]:
    """Refuse the groups in whose assignments are topics that the client may not describe."""
    topics = {group.group_id: _topics(group) for group in groups}
    allowed = access.allowed(rights.CONSUMER_GROUP_DESCRIBE_TOPIC, set().union(*topics.values()))
    return [
        group
        if topics[group.group_id] <= allowed
        else DescribedGroup(
            group_id=group.group_id,
            error_code=rights.CONSUMER_GROUP_DESCRIBE_TOPIC.error,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
        for group in groups
    ]


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _describe(services: Services, request: Request, group_id: str) -> DescribedGroup:
    if request.access is not None and not request.access.allows(rights.CONSUMER_GROUP_DESCRIBE, group_id):
        return DescribedGroup(group_id=group_id, error_code=rights.CONSUMER_GROUP_DESCRIBE.error)
    coordinator, snapshot = services.group_coordinator, services.metadata_cache.snapshot
    try:
        if not coordinator.are_consumer_groups_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        default = coordinator.consumer_assignors[0]
        return coordinator.describe_consumer_group(group_id, lambda group: describe(group, default, snapshot))
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.own_message)


def describe(group: ConsumerGroup, default_assignor: str, snapshot: MetadataSnapshot) -> DescribedGroup:
    """Build the description of a group."""
    members = group.members.values()
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(members, default_assignor),
        members=[_member(member, group, snapshot) for member in members],
    )


def _member(member: GroupMember, group: ConsumerGroup, snapshot: MetadataSnapshot) -> Member:
    held: dict[bytes, list[int]] = {}
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(held, snapshot),
        target_assignment=_assignment(group.target.get(member.member_id, {}), snapshot),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(assignment: Mapping[bytes, Iterable[int]], snapshot: MetadataSnapshot) -> Assignment:
    names = snapshot.topic_names
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if topic_id in names
        ]
    )


API = Api(69, "ConsumerGroupDescribe", (0, 1), handle)
