"""StreamsGroupDescribe: v0

Behaviour: returns the state, epochs, topology and members of streams groups (KIP-1071), with their current and target
tasks. Once the topology fits the topics that exist, its internal topics have their partition counts.

Errors per group: UNSUPPORTED_VERSION (streams.version is 0, or the protocol is not configured), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID (an empty name), GROUP_ID_NOT_FOUND (also for a group of another kind).

Different from Apache Kafka: a group that is named twice is described once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k89_streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.coordinators.streams_groups import values as v
    from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: StreamsGroupDescribeRequest = request.message
    groups = [_describe(services, request, group_id) for group_id in dict.fromkeys(message.group_ids)]
    if message.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(request, ResourceType.GROUP, group.group_id)
    if request.access is not None:
        groups = _without_hidden_topics(groups, request.access)
    return Reply(StreamsGroupDescribeResponse(groups=groups))


def _without_hidden_topics(groups: list[DescribedGroup], access: Access) -> list[DescribedGroup]:
    """Refuse the groups in whose topologies are topics that the client may not describe."""
    topics = {group.group_id: _topics(group) for group in groups}
    allowed = access.allowed(rights.STREAMS_GROUP_DESCRIBE_TOPIC, set().union(*topics.values()))
    return [
        group
        if topics[group.group_id] <= allowed
        else DescribedGroup(
            group_id=group.group_id,
            error_code=rights.STREAMS_GROUP_DESCRIBE_TOPIC.error,
            error_message="The described group uses topics that the client is not authorized to describe.",
        )
        for group in groups
    ]


def _topics(group: DescribedGroup) -> set[str]:
    subtopologies: Iterable[Subtopology] = () if group.topology is None else group.topology.subtopologies or ()
    return {
        name
        for found in subtopologies
        for name in (
            *found.source_topics, *found.repartition_sink_topics,
            *(topic.name for topic in found.repartition_source_topics),
            *(topic.name for topic in found.state_changelog_topics),
        )
    }  # fmt: skip


def _describe(services: Services, request: Request, group_id: str) -> DescribedGroup:
    streams_groups = services.streams_groups
    try:
        if not streams_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.access is not None and not request.access.allows(rights.STREAMS_GROUP_DESCRIBE, group_id):
            return DescribedGroup(group_id=group_id, error_code=rights.STREAMS_GROUP_DESCRIBE.error)
        return streams_groups.describe(group_id, describe)
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.own_message)


def describe(group: StreamsGroup) -> DescribedGroup:
    """Build the description of a group."""
    configured = group.configured
    topology = configured.topology if configured is not None and configured.is_ready else group.topology
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if topology is None else _topology(topology),
        members=[_member(member, group.target_of(member.member_id)) for member in group.members.values()],
    )


def _topology(topology: v.Topology) -> Topology:
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=id_,
                source_topics=sorted(found.source_topics),
                repartition_sink_topics=sorted(found.repartition_sinks),
                state_changelog_topics=_infos(found.changelogs),
                repartition_source_topics=_infos(found.repartition_sources),
            )
            for id_, found in sorted(topology.subtopologies.items())
        ],
    )


def _infos(topics: Iterable[v.InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: v.Member, target: v.Tasks) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_assignment(member.assigned.without_epochs()),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: v.Tasks) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: v.Partitions) -> list[TaskIds]:
    return [TaskIds(subtopology_id=id_, partitions=sorted(found)) for id_, found in sorted(tasks.items())]


API = Api(89, "StreamsGroupDescribe", (0, 0), handle)
