"""DescribeProducers: v0

Behaviour: lists the producers that a replica remembers, and the first offsets of their open transactions (KIP-664):
this finds hanging transactions. Followers answer too, so that they can be compared with the leader.

Errors (each on a partition): UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
INVALID_TOPIC_EXCEPTION.

Different from Apache Kafka: a partition that is named twice is described once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.common.topic_names import invalid_reason
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.producers.producer_entry import ProducerEntry


def handle(services: Services, request: Request) -> Reply:
    """Describe the producers of each partition from its log."""
    message: DescribeProducersRequest = request.message
    wanted: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return Reply(
        DescribeProducersResponse(
            topics=[
                TopicResponse(name=name, partitions=_describe_topic(services, request, name, indexes))
                for name, indexes in wanted.items()
            ]
        )
    )


def _describe_topic(services: Services, request: Request, name: str, indexes: Iterable[int]) -> list[PartitionResponse]:
    try:
        reason = invalid_reason(name)
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if request.access is not None:
            request.access.require(rights.DESCRIBE_PRODUCERS_TOPIC, name)
    except ApiError as error:
        message = error.message or error.code.message
        return [PartitionResponse(partition_index=i, error_code=error.code, error_message=message) for i in indexes]
    return [_describe(services, TopicPartition(name, i)) for i in indexes]


def _describe(services: Services, tp: TopicPartition) -> PartitionResponse:
    try:
        log = services.replica_manager.partition(tp).log
        if log is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except ApiError as error:
        return PartitionResponse(partition_index=tp.partition, error_code=error.code, error_message=error.message)
    producers = [_state(entry) for entry in log.active_producers()]
    return PartitionResponse(partition_index=tp.partition, error_code=0, active_producers=producers)


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )


API = Api(61, "DescribeProducers", (0, 0), handle)
