"""ListOffsets: v1-v11

Behaviour
- Each partition requests the first offset at or after a timestamp, or a special one: -1 the end that the isolation
  allows, -2 the log's start, -3 the record with the largest timestamp, -4 the start of the records on this broker's
  disk, -5 and -6 the bounds of tiered storage (not built: offset -1).
- Consumers (replica_id -1) see up to HW or LSO, brokers up to LEO; replica_id -2 may query a follower.

Version notes
- v2: isolation_level. v4 (KIP-320): current_leader_epoch. v7 (KIP-734): -3. v8 (KIP-405): -4. v9 (KIP-1005): -5.
  v10 (KIP-1075): timeout_ms, for tiered storage. v11 (KIP-1023): -6.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5), INVALID_REQUEST for a partition named twice, UNSUPPORTED_VERSION
for a special timestamp that the version does not know, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.replication.offset_queries import offset_for_timestamp
from barnabas.broker.replication.reading import visible_end
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.storage.log.log_types import NO_EPOCH, FetchIsolation
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

CONSUMER_ID = -1
DEBUGGING_ID = -2
OFFSET_NOT_AVAILABLE_FROM = 5
LEADER_EPOCH_FROM = 4
# The first version that knows each special timestamp.
SPECIAL_FROM = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def handle(services: Services, request: Request) -> Answer:
    """Look up each partition's offset in its log."""
    message: ListOffsetsRequest = request.message
    counts = Counter((topic.name, p.partition_index) for topic in message.topics for p in topic.partitions)
    refused: set[TopicPartition] = set()
    allowed = _allowed(request, message)
    topics = []
    for topic in message.topics:
        partitions = []
        if allowed is not None and topic.name not in allowed:
            partitions = [_failed(p, rights.LIST_OFFSETS_TOPIC.error) for p in topic.partitions]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
            continue
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if counts[tp] > 1:
                if tp not in refused:  # Why: Kafka keeps its results in a map, so a partition gets one
                    refused.add(tp)
                    partitions.append(_failed(partition, ErrorCode.INVALID_REQUEST))
                continue
            try:
                partitions.append(_look_up(services, request.version, message, tp, partition))
            except ApiError as error:
                partitions.append(_failed(partition, _downgraded(error.code, request.version)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return Reply(ListOffsetsResponse(topics=topics))


def _allowed(request: Request, message: ListOffsetsRequest) -> set[str] | None:
    """Return the topics that the client may ask about; None for all."""
    access = request.access
    if access is None:
        return None
    if message.replica_id >= 0:
        return None if access.allows(rights.LIST_OFFSETS_AS_REPLICA) else set()
    return access.allowed(rights.LIST_OFFSETS_TOPIC, [topic.name for topic in message.topics])


def _downgraded(error: ErrorCode, version: int) -> ErrorCode:
    if error == ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_FROM:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error


def _look_up(
    services: Services, version: int, message: ListOffsetsRequest, tp: TopicPartition, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if wanted.timestamp < 0 and version < SPECIAL_FROM.get(wanted.timestamp, 1 << 15):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    is_client = message.replica_id == CONSUMER_ID
    isolation = FetchIsolation.LOG_END
    if is_client:
        isolation = FetchIsolation.TXN_COMMITTED if message.isolation_level == 1 else FetchIsolation.HIGH_WATERMARK
    found = offset_for_timestamp(
        services.replica_manager.partition(tp),
        wanted.timestamp,
        lambda log: visible_end(log, isolation),
        current_leader_epoch=wanted.current_leader_epoch,
        leader_only=message.replica_id != DEBUGGING_ID,
        is_client=is_client,
    )
    if found is None:
        return _failed(wanted, ErrorCode.NONE)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= LEADER_EPOCH_FROM else NO_EPOCH,
    )


def _failed(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=error, timestamp=-1, offset=-1
    )


def _is_from_follower(request: Request) -> bool:
    message: ListOffsetsRequest = request.message
    return message.replica_id >= 0


API = Api(2, "ListOffsets", (1, 11), handle, nodes_only=_is_from_follower)
