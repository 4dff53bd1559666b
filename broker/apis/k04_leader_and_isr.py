"""LeaderAndIsr: v0-v7, accepted from the controller, not advertised

Behaviour: the controller says which partitions this broker leads and follows (`replication/leadership.py`). FULL is the
first push after a registration and names everything; INCREMENTAL only what changed. Configs that the new state depends
on come along as metadata records in tag 10000 and are applied first (see `push.py`).

Errors: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH for the whole; UNKNOWN_TOPIC_OR_PARTITION, STALE_CONTROLLER_EPOCH,
KAFKA_STORAGE_ERROR for a partition.

Different from Apache Kafka: 4.x removed this request; it is the push of 3.9, with two tagged fields of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.apis.push import apply_records
from barnabas.broker.replication.leadership import PartitionErrors, TopicState
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.push_tags import FULL, offset_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request

TOPIC_IDS_FROM = 5
GROUPED_FROM = 2


def handle(services: Services, request: Request) -> Answer:
    """Check the epochs, apply configs, then the partitions' states."""
    message: LeaderAndIsrRequest = request.message
    error = services.leadership.check_epochs(message.broker_epoch, message.controller_epoch)
    if error:
        return Reply(LeaderAndIsrResponse(error_code=error))
    apply_records(services, message)
    offset = offset_of(message)
    if offset is not None:
        services.metadata_cache.expect_offset(offset)
    topics = _topics(message, request.version)
    leaders = {leader.broker_id: (leader.host_name, leader.port) for leader in message.live_leaders}
    errors = services.leadership.apply(topics, is_full=message.type == FULL, leaders=leaders)
    return Reply(_response(topics, errors, request.version))


def _topics(message: LeaderAndIsrRequest, version: int) -> list[TopicState]:
    if version >= GROUPED_FROM:
        return [(t.topic_name, t.topic_id, t.partition_states) for t in message.topic_states]
    return [(state.topic_name, ZERO_UUID, [state]) for state in message.ungrouped_partition_states]


def _response(topics: list[TopicState], errors: PartitionErrors, version: int) -> LeaderAndIsrResponse:
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {name: [] for name, _, _ in topics}
    for tp, error in errors.items():
        by_topic[tp.topic].append(
            LeaderAndIsrPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=error)
        )
    if version < TOPIC_IDS_FROM:
        return LeaderAndIsrResponse(partition_errors=[e for found in by_topic.values() for e in found])
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=by_topic[name]) for name, topic_id, _ in topics
        ]
    )


API = Api(4, "LeaderAndIsr", (0, 7), handle, operation="CLUSTER_ACTION", resource="CLUSTER", advertised=False)
