"""OffsetDelete: v0

Behaviour: deletes offsets of a group, in topics that no member is subscribed to; answers when that is written.

Errors: of the group INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (it has members that are not consumers),
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; of a partition UNKNOWN_TOPIC_OR_PARTITION,
GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from collections.abc import Mapping

    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.groups.group_offsets import DeletedOffsets
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Park:
    """Park until the deletion is written."""
    message: OffsetDeleteRequest = request.message
    snapshot = services.metadata_cache.snapshot
    known = {
        topic.name: {
            p.partition_index
            for p in topic.partitions
            if snapshot.partition(TopicPartition(topic.name, p.partition_index)) is not None
        }
        for topic in message.topics
    }
    deferred = Deferred()
    services.group_coordinator.delete_offsets(
        message.group_id,
        {name: partitions for name, partitions in known.items() if partitions},
        lambda deleted: deferred.complete(response(message, known, deleted)),
    )
    return Park(deferred)


def response(
    message: OffsetDeleteRequest,
    known: Mapping[str, set[int]],
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
                    error_code=deleted.errors.get(topic.name, ErrorCode.NONE)
                    if p.partition_index in known[topic.name]
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for p in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return OffsetDeleteResponse(topics=topics)


API = Api(47, "OffsetDelete", (0, 0), handle, operation="DELETE", resource="GROUP")
