"""OffsetForLeaderEpoch: v2-v4

Behaviour: for each partition, the greatest epoch not above the requested one, and the offset (exclusive) where it ends;
both -1 when the log has no such epoch. Followers truncate by it. Consumers detect with it that a log was truncated.

Version notes: v3: replica_id. v4: flexible.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError
from barnabas.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


REPLICA_ID_FROM = 3


def handle(services: Services, request: Request) -> Answer:
    """Look up each partition's epoch in its leader epoch history."""
    message: OffsetForLeaderEpochRequest = request.message
    allowed = None
    if request.access is not None and not request.access.allows(rights.EPOCHS_OF_ANY_TOPIC):
        allowed = request.access.allowed(rights.EPOCHS_OF_TOPIC, [topic.topic for topic in message.topics])
    return Reply(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        _look_up(services, topic.topic, wanted)
                        if allowed is None or topic.topic in allowed
                        else EpochEndOffset(partition=wanted.partition, error_code=rights.EPOCHS_OF_TOPIC.error)
                        for wanted in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )
    )


def _look_up(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.replica_manager.partition(TopicPartition(topic, wanted.partition))
        log = partition.log_for(wanted.current_leader_epoch, leader_only=True)
        epoch, end_offset = log.end_offset_for_epoch(wanted.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset)


def _is_from_follower(request: Request) -> bool:
    message: OffsetForLeaderEpochRequest = request.message
    return request.version >= REPLICA_ID_FROM and message.replica_id >= 0


API = Api(
    23,
    "OffsetForLeaderEpoch",
    (2, 4),
    handle,
    nodes_only=_is_from_follower,
)
