"""OffsetForLeaderEpoch: v2-v4

Behaviour: for each partition, the greatest epoch not above the one asked for, and the offset (exclusive) where it ends;
both -1 when the log knows no such epoch. Followers truncate by it, consumers find out that their log was truncated.

Version notes: v3: replica_id. v4: flexible.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api
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
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Answer each partition from its leader epoch history."""
    message: OffsetForLeaderEpochRequest = request.message
    return Reply(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[_answer(services, topic.topic, asked) for asked in topic.partitions],
                )
                for topic in message.topics
            ]
        )
    )


def _answer(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.replica_manager.partition(TopicPartition(topic, asked.partition))
        epoch, end_offset = partition.last_offset_for_leader_epoch(
            asked.leader_epoch, asked.current_leader_epoch, leader_only=True
        )
    except ApiError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset)


API = Api(23, "OffsetForLeaderEpoch", (2, 4), handle, operation="DESCRIBE", resource="TOPIC")
