"""DescribeTopicPartitions: v0

Behaviour: describes topics like Metadata, in order of their names and in pages. A page has at most
min(max.request.partition.size.limit, response_partition_limit) partitions; a cursor shows where the next one starts.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for a cursor outside the requested list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import NOT_REQUESTED, operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Answer with one page from one snapshot of the cache."""
    message: DescribeTopicPartitionsRequest = request.message
    snapshot = services.metadata_cache.snapshot
    cursor = message.cursor
    is_all = not message.topics
    first = "" if cursor is None else cursor.topic_name
    requested = snapshot.topics if is_all else {topic.name for topic in message.topics}
    names = sorted(name for name in requested if name >= first)
    _check_cursor(cursor, names, is_all=is_all)
    hidden: list[str] = []
    if request.access is not None:
        right = rights.DESCRIBE_ALL_TOPICS if is_all else rights.DESCRIBE_TOPIC
        allowed = request.access.allowed(right, names)
        hidden = [] if is_all else [name for name in names if name not in allowed]
        names = [name for name in names if name in allowed]
    limit = services.config.max_request_partition_size_limit
    remaining = max(min(limit, message.response_partition_limit), 1)
    alive = {node.id for node in snapshot.nodes(request.listener_name)}
    response = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
    for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = snapshot.topics.get(name)
        if topic is None:
            response.topics.append(_missing(request, name))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        indexes = sorted(topic.partitions)
        page = indexes[start : start + remaining]
        response.topics.append(_described(request, topic, page, alive))
        if start + len(page) < len(indexes):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(page))
            break
        remaining -= len(page)
    response.topics += [_hidden(name) for name in hidden]
    return Reply(response)


def _check_cursor(cursor: Cursor | None, names: list[str], *, is_all: bool) -> None:
    if cursor is None:
        return
    if not is_all and cursor.topic_name not in names:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
        )
    if cursor.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=rights.DESCRIBE_TOPIC.error,
        name=name,
        partitions=[],
        topic_authorized_operations=NOT_REQUESTED,
    )


def _missing(request: Request, name: str) -> DescribeTopicPartitionsResponseTopic:
    is_legal = invalid_reason(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations(request, ResourceType.TOPIC, name),
    )


def _described(
    request: Request, topic: TopicInfo, page: list[int], alive: set[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(topic.partitions[index], alive) for index in page],
        topic_authorized_operations=operations(request, ResourceType.TOPIC, topic.name),
    )


def _partition(p: PartitionInfo, alive: set[int]) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=p.partition,
        leader_id=p.leader if p.leader in alive else -1,
        leader_epoch=p.leader_epoch,
        replica_nodes=list(p.replicas),
        isr_nodes=list(p.isr),
        eligible_leader_replicas=list(p.elr),
        last_known_elr=list(p.last_known_elr),
        offline_replicas=p.offline_for(alive),
    )


API = Api(75, "DescribeTopicPartitions", (0, 0), handle)
