"""OffsetDelete: v0

Behaviour: deletes offsets of a group, in topics that no member is subscribed to; answers when that is written.

Errors: of the group INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (it has members that are not consumers),
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; of a partition UNKNOWN_TOPIC_OR_PARTITION,
GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.groups.group_offsets import DeletedOffsets
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Park:
    """Park until the deletion is written."""
    message: OffsetDeleteRequest = request.message
    snapshot = services.metadata_cache.snapshot
    access = request.access
    refused = {
        topic.name
        for topic in message.topics
        if access is not None and not access.allows(rights.OFFSET_DELETE_TOPIC, topic.name)
    }
    known = {
        topic.name: {
            p.partition_index
            for p in topic.partitions
            if snapshot.partition(TopicPartition(topic.name, p.partition_index)) is not None
        }
        for topic in message.topics
        if topic.name not in refused
    }
    deferred = Deferred()
    services.group_coordinator.delete_offsets(
        message.group_id,
        {name: partitions for name, partitions in known.items() if partitions},
        lambda deleted: deferred.complete(response(message, known, refused, deleted)),
    )
    return Park(deferred)


def response(
    message: OffsetDeleteRequest,
    known: Mapping[str, set[int]],
    refused: Set[str],
    deleted: DeletedOffsets,
) -> OffsetDeleteResponse:
    """Build the response; an error of the group stands alone."""
    if deleted.error:
        return OffsetDeleteResponse(error_code=deleted.error)
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=p.partition_index,
                    error_code=_error(topic.name, p.partition_index, known, refused, deleted),
                )
                for p in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return OffsetDeleteResponse(topics=topics)


def _error(
    topic: str, partition: int, known: Mapping[str, set[int]], refused: Set[str], deleted: DeletedOffsets
) -> ErrorCode:
    if topic in refused:
        return rights.OFFSET_DELETE_TOPIC.error
    if partition not in known[topic]:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return deleted.errors.get(topic, ErrorCode.NONE)


API = Api(47, "OffsetDelete", (0, 0), handle)
