"""StopReplica: v4, accepted from the controller, not advertised

Behaviour: this broker stops the named replicas, and deletes their logs where the request says so. A log is deleted only
if a record in tag 10000 (see `push_tags.py`) names its topic id. A RemoveTopicRecord means that the topic was deleted.
A PartitionRecord without this broker means that the replica was reassigned. Replicas of other topic ids stay untouched.

Errors: those of every push (`push_gate.py`) for the request; FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR for a partition.

Different from Apache Kafka: 4.x removed this request. This is the request of 3.9 with our own tagged fields, and it is
refused without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.push import push_api
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


def carry_out(services: Services, message: StopReplicaRequest) -> StopReplicaResponse:
    """Stop each replica."""
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
    """Return the topics and replicas that the push deletes."""
    records = records_of(message)
    return Deletions(
        topics=frozenset(r.topic_id for r in records if isinstance(r, RemoveTopicRecord)),
        replicas=frozenset(
            (r.topic_id, r.partition_id)
            for r in records
            if isinstance(r, PartitionRecord) and broker_id not in r.replicas
        ),
    )


API = push_api(StopReplicaRequest, StopReplicaResponse, carry_out)
