"""StopReplica: v4, accepted from the controller, not advertised

Behaviour: this broker gives up replicas, and deletes their logs where told so. A log is deleted only if a record in tag
10000 (see `push_tags.py`) names its topic id: a RemoveTopicRecord, the topic was deleted; or a PartitionRecord without
this broker, the replica was reassigned. A replica of another topic id than those named is left alone.

Errors: those of every push (`push_gate.py`) for the whole; FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR for a partition.

Different from Apache Kafka: 4.x removed this request; it is the push of 3.9, with tagged fields of our own, without
which it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api, nodes_only
from barnabas.broker.apis.push import admits
from barnabas.broker.replication.leadership import Deletions
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from barnabas.protocol.metadata_records import PartitionRecord, RemoveTopicRecord
from barnabas.protocol.push_tags import records_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Stop each replica."""
    message: StopReplicaRequest = request.message
    return Reply(services.push_gate.obey(message, lambda: _carry_out(services, message), StopReplicaResponse))


def _carry_out(services: Services, message: StopReplicaRequest) -> StopReplicaResponse:
    stops = [
        (TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition)
        for topic in message.topic_states
        for state in topic.partition_states
    ]
    errors = services.leadership.stop(stops, _deletions(message, services.broker_id))
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            for tp, code in errors.items()
        ]
    )


def _deletions(message: StopReplicaRequest, broker_id: int) -> Deletions:
    """What the records of the push name as deleted."""
    records = records_of(message)
    return Deletions(
        topics=frozenset(r.topic_id for r in records if isinstance(r, RemoveTopicRecord)),
        replicas=frozenset(
            (r.topic_id, r.partition_id)
            for r in records
            if isinstance(r, PartitionRecord) and broker_id not in r.replicas
        ),
    )


API = Api(
    5,
    "StopReplica",
    (4, 4),
    handle,
    operation="CLUSTER_ACTION",
    resource="CLUSTER",
    advertised=False,
    nodes_only=nodes_only,
    admits=admits,
)
