"""DeleteRecords: v0-v2

Behaviour: the leader moves the log's start of each partition up to an offset (-1: the high watermark). The response
names the low watermark once every live replica has followed (`DelayedDeleteRecords`).

Version notes: v1: throttling. v2: flexible.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only
compacted), INVALID_TOPIC_EXCEPTION (an internal topic), REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.delayed.delayed_delete_records import (
    NO_LOW_WATERMARK,
    DelayedDeleteRecords,
    LowWatermarks,
)
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Park
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Delete on the leader, then wait for the followers."""
    message: DeleteRecordsRequest = request.message
    results: LowWatermarks = {}
    pending: dict[TopicPartition, int] = {}
    access = request.access
    for topic in message.topics:
        is_allowed = access is None or access.allows(rights.DELETE_RECORDS_TOPIC, topic.name)
        for wanted in topic.partitions:
            tp = TopicPartition(topic.name, wanted.partition_index)
            if not is_allowed:
                results[tp] = (rights.DELETE_RECORDS_TOPIC.error, NO_LOW_WATERMARK)
                continue
            try:
                low_watermark, requested = _delete(services, tp, wanted.offset)
            except ApiError as error:
                results[tp] = (error.code, NO_LOW_WATERMARK)
                continue
            request.moved.append(tp)
            if low_watermark >= requested:
                results[tp] = (ErrorCode.NONE, low_watermark)
            else:
                pending[tp] = requested

    def respond(late: LowWatermarks) -> DeleteRecordsResponse:
        return _response(message, {**results, **late})

    if not pending:
        return Reply(respond({}))
    operation = DelayedDeleteRecords(services.replica_manager.hosted, pending, message.timeout_ms, respond)
    return Park(operation, services.purgatories.delete_records, list(pending))


def _delete(services: Services, tp: TopicPartition, offset: int) -> tuple[int, int]:
    """Delete on the leader; returns the low watermark, and the offset that it must reach. Raises ApiError."""
    if services.metadata_cache.snapshot.partition(tp) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    deleted = services.replica_manager.partition(tp).delete_records_on_leader(offset)
    return deleted.low_watermark, deleted.requested_offset


def _response(message: DeleteRecordsRequest, results: LowWatermarks) -> DeleteRecordsResponse:
    topics = []
    for topic in message.topics:
        partitions = []
        for wanted in topic.partitions:
            error, low_watermark = results[TopicPartition(topic.name, wanted.partition_index)]
            partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


API = Api(21, "DeleteRecords", (0, 2), handle)
