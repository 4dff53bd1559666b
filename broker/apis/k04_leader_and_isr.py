"""LeaderAndIsr: v7, accepted from the controller, not advertised

Behaviour: the controller assigns the partitions that this broker leads and follows (`replication/leadership.py`). The
first push after a registration is FULL and names all of them. Later pushes are INCREMENTAL and name only the changed
ones. Configs that the new state depends on are metadata records in tag 10000 (see `push_tags.py`), applied first. Only
leaderships that are over end before: a lower min.insync.replicas would let such a leader acknowledge records that the
next one lacks.

Errors: those of every push (`push_gate.py`) for the request; UNKNOWN_TOPIC_OR_PARTITION, STALE_CONTROLLER_EPOCH,
KAFKA_STORAGE_ERROR for a partition.

Different from Apache Kafka: 4.x removed this request. This is the request of 3.9 with our own tagged fields, and it is
refused without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.push import apply_records, push_api
from barnabas.broker.replication.leadership import PartitionErrors, TopicState
from barnabas.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.push_tags import FULL, offset_of, records_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services


def carry_out(services: Services, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """End the leaderships that are over, apply the configs, then the state of each partition."""
    topics: list[TopicState] = [(t.topic_name, t.topic_id, t.partition_states) for t in message.topic_states]
    records = records_of(message)
    if records:
        services.leadership.end_leaderships(topics)
    apply_records(services, message, records)
    offset = offset_of(message)
    if offset is not None:
        services.metadata_cache.expect_offset(offset)
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


API = push_api(LeaderAndIsrRequest, LeaderAndIsrResponse, carry_out)
