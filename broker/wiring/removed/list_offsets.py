"""ListOffsets v0: up to `max_num_offsets` offsets at which segments begin, newest first.

Behaviour
- -1 requests the end and the starts of segments before it, -2 the log's start. Any other time requests the starts of
  the segments whose files were not written after it, to the precision of a segment.
- A consumer does not see past the high watermark: it gets that in place of higher offsets.
- All answers of a request together hold at most `OFFSETS_MAX` offsets; a partition beyond gets INVALID_REQUEST.

Errors: those of ListOffsets v1; UNSUPPORTED_VERSION for other negative times.
Source: UnifiedLog.legacyFetchOffsetsBefore, Partition.legacyFetchOffsetsForTimestamp (Kafka 3.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.storage.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.limits import ELEMENTS_MAX
from barnabas.protocol.removed.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.log.log import Log

CONSUMER_ID: Final = -1
DEBUGGING_ID: Final = -2
#: Why a bound: a request may name a partition of many segments many times.
OFFSETS_MAX: Final = ELEMENTS_MAX


def handle(_api: Api, services: Services, request: Request) -> Reply:
    """Look up each partition's offsets in its log."""
    message: ListOffsetsRequest = request.message
    access = request.access
    left = OFFSETS_MAX
    topics = []
    for topic in message.topics:
        is_allowed = access is None or access.allows(rights.LIST_OFFSETS_TOPIC, topic.name)
        answers = []
        for partition in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            try:
                if not is_allowed:
                    raise ApiError(rights.LIST_OFFSETS_TOPIC.error)
                tp = TopicPartition(topic.name, partition.partition_index)
                answer.old_style_offsets = _look_up(services, message.replica_id, tp, partition, left)
            except ApiError as error:
                answer.error_code = _lowered(error.code)
            left -= len(answer.old_style_offsets)
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return Reply(ListOffsetsResponse(topics=topics))


def _lowered(code: ErrorCode) -> ErrorCode:
    """Return a code that clients of v0 know."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.KAFKA_STORAGE_ERROR else code


def _look_up(
    services: Services, replica_id: int, tp: TopicPartition, wanted: ListOffsetsPartition, left: int
) -> list[int]:
    if wanted.timestamp < EARLIEST_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.replica_manager.partition(tp)
    log = partition.log_for(NO_EPOCH, leader_only=replica_id != DEBUGGING_ID)
    offsets = offsets_before(log, wanted.timestamp, wanted.max_num_offsets, services.clock.wall_ms())
    if replica_id == CONSUMER_ID:
        high_watermark = log.high_watermark
        visible = [offset for offset in offsets if offset <= high_watermark]
        if len(visible) < len(offsets):
            offsets = [high_watermark, *visible]
    if len(offsets) > left:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {OFFSETS_MAX} offsets in one answer")
    return offsets


def offsets_before(log: Log, timestamp: int, count_max: int, now_ms: int) -> list[int]:
    """Return the starts of segments not written after a time, and the end; newest first, at most `count_max`."""
    segments = log.segments.all
    start = log.log_start_offset
    known = [(max(segment.base_offset, start), segment.last_modified_ms) for segment in segments]
    if segments[-1].size > 0:
        known.append((log.log_end_offset, now_ms))
    if timestamp == LATEST_TIMESTAMP:
        last = len(known) - 1
    elif timestamp == EARLIEST_TIMESTAMP:
        last = 0
    else:
        last = max((index for index, (_, modified_ms) in enumerate(known) if modified_ms <= timestamp), default=-1)
    found = [offset for offset, _ in known[: last + 1]]
    return sorted(found[max(0, len(found) - max(0, count_max)) :], reverse=True)
