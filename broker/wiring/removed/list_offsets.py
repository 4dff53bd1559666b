"""ListOffsets v0: up to `max_num_offsets` offsets at which segments begin, newest first.

Behaviour
- -1 requests the end and the starts of segments before it, -2 the log's start. Any other time requests the starts of
  the segments whose files were not written after it, to the precision of a segment.
- A consumer does not see past the high watermark: it gets that in place of higher offsets.
- A segment whose file was deleted meanwhile is as old as can be.
- A log is looked at once for a request, since a look costs a call of the system for each segment.
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
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.segments.segment import LogSegment

CONSUMER_ID: Final = -1
DEBUGGING_ID: Final = -2
#: Why a bound: a request may name a partition of many segments many times.
OFFSETS_MAX: Final = ELEMENTS_MAX

#: Where the segments of a log begin, and where it ends, with when each was written last.
Known = list[tuple[int, int]]


def handle(_api: Api, services: Services, request: Request) -> Reply:
    """Look up each partition's offsets in its log."""
    message: ListOffsetsRequest = request.message
    access = request.access
    left = OFFSETS_MAX
    looks: dict[TopicPartition, Known] = {}
    allowed = None if access is None else _allowed(access, message)
    topics = []
    for topic in message.topics:
        is_allowed = allowed is None or topic.name in allowed
        answers = []
        for partition in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            try:
                if not is_allowed:
                    raise ApiError(rights.LIST_OFFSETS_TOPIC.error)
                tp = TopicPartition(topic.name, partition.partition_index)
                answer.old_style_offsets = _look_up(services, message.replica_id, tp, partition, looks, left)
            except ApiError as error:
                answer.error_code = _lowered(error.code)
            left -= len(answer.old_style_offsets)
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return Reply(ListOffsetsResponse(topics=topics))


def _allowed(access: Access, message: ListOffsetsRequest) -> set[str]:
    """Return the topics that the client may ask about."""
    names = [topic.name for topic in message.topics]
    if message.replica_id >= 0:
        return set(names) if access.allows(rights.LIST_OFFSETS_AS_REPLICA) else set()
    return access.allowed(rights.LIST_OFFSETS_TOPIC, names)


def _lowered(code: ErrorCode) -> ErrorCode:
    """Return a code that clients of v0 know."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.KAFKA_STORAGE_ERROR else code


def _look_up(
    services: Services,
    replica_id: int,
    tp: TopicPartition,
    wanted: ListOffsetsPartition,
    looks: dict[TopicPartition, Known],
    left: int,
) -> list[int]:
    if wanted.timestamp < EARLIEST_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.replica_manager.partition(tp)
    log = partition.log_for(NO_EPOCH, leader_only=replica_id != DEBUGGING_ID)
    known = looks.get(tp)
    if known is None:
        known = looks[tp] = known_offsets(log, services.clock.wall_ms())
    offsets = offsets_before(known, wanted.timestamp, wanted.max_num_offsets)
    if replica_id == CONSUMER_ID:
        high_watermark = log.high_watermark
        visible = [offset for offset in offsets if offset <= high_watermark]
        if len(visible) < len(offsets):
            offsets = [high_watermark, *visible]
    if len(offsets) > left:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {OFFSETS_MAX} offsets in one answer")
    return offsets


def known_offsets(log: Log, now_ms: int) -> Known:
    """Return where a log's segments begin, with when they were written; at last its end, if that is another offset."""
    segments = log.segments.all
    start = log.log_start_offset
    known = [(max(segment.base_offset, start), _written_ms(segment)) for segment in segments]
    if segments[-1].size > 0:
        known.append((log.log_end_offset, now_ms))
    return known


def _written_ms(segment: LogSegment) -> int:
    try:
        return segment.last_modified_ms
    except FileNotFoundError:
        return 0


def offsets_before(known: Known, timestamp: int, count_max: int) -> list[int]:
    """Return the starts of segments not written after a time, and the end; newest first, at most `count_max`."""
    if timestamp == LATEST_TIMESTAMP:
        end = len(known)
    elif timestamp == EARLIEST_TIMESTAMP:
        end = 1
    else:
        end = next((end for end in range(len(known), 0, -1) if known[end - 1][1] <= timestamp), 0)
    found = known[max(0, end - max(0, count_max)) : end]
    return sorted((offset for offset, _ in found), reverse=True)
