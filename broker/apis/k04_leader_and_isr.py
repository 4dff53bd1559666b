"""LeaderAndIsr: v7, accepted from the controller, not advertised

Behaviour: the controller says which partitions this broker leads and follows (`replication/leadership.py`). FULL is the
first push after a registration and names everything; INCREMENTAL only what changed. Configs that the new state depends
on come along as metadata records in tag 10000 and are applied first (see `push_tags.py`).

Errors: those of every push (`push_gate.py`) for the whole; UNKNOWN_TOPIC_OR_PARTITION, STALE_CONTROLLER_EPOCH,
KAFKA_STORAGE_ERROR for a partition.

Different from Apache Kafka: 4.x removed this request; it is the push of 3.9, with tagged fields of our own, without
which it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api, nodes_only
from barnabas.broker.apis.push import admits, apply_records
from barnabas.broker.replication.leadership import PartitionErrors, TopicState
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


def handle(services: Services, request: Request) -> Answer:
    """Apply configs, then the partitions' states."""
    message: LeaderAndIsrRequest = request.message
    return Reply(services.push_gate.obey(message, lambda: _carry_out(services, message), LeaderAndIsrResponse))


def _carry_out(services: Services, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    apply_records(services, message)
    offset = offset_of(message)
    if offset is not None:
        services.metadata_cache.expect_offset(offset)
    topics: list[TopicState] = [(t.topic_name, t.topic_id, t.partition_states) for t in message.topic_states]
    leaders = {leader.broker_id: (leader.host_name, leader.port) for leader in message.live_leaders}
    errors = services.leadership.apply(topics, is_full=message.type == FULL, leaders=leaders)
    return _response(topics, errors)


def _response(topics: list[TopicState], errors: PartitionErrors) -> LeaderAndIsrResponse:
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {name: [] for name, _, _ in topics}
    for tp, error in errors.items():
        by_topic[tp.topic].append(LeaderAndIsrPartitionError(partition_index=tp.partition, error_code=error))
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=by_topic[name]) for name, topic_id, _ in topics
        ]
    )


API = Api(
    4,
    "LeaderAndIsr",
    (7, 7),
    handle,
    operation="CLUSTER_ACTION",
    resource="CLUSTER",
    advertised=False,
    nodes_only=nodes_only,
    admits=admits,
)
