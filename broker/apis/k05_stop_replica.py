"""StopReplica: v0-v4, accepted from the controller, not advertised

Behaviour: this broker gives up replicas, and deletes their logs where told so: the topic was deleted, or the replica
reassigned.

Version notes: v3: per-partition leader epoch and delete flag; before, one flag for all.

Errors: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH for the whole; FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR for a
partition.

Different from Apache Kafka: 4.x removed this request; it is the push of 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request

Stop = tuple[TopicPartition, int, bool]


def handle(services: Services, request: Request) -> Answer:
    """Check the epochs, then stop each replica."""
    message: StopReplicaRequest = request.message
    error = services.leadership.check_epochs(message.broker_epoch, message.controller_epoch)
    if error:
        return Reply(StopReplicaResponse(error_code=error))
    errors = services.leadership.stop(_stops(message, request.version))
    return Reply(
        StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                for tp, code in errors.items()
            ]
        )
    )


def _stops(message: StopReplicaRequest, version: int) -> list[Stop]:
    if version >= 3:
        return [
            (TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition)
            for topic in message.topic_states
            for state in topic.partition_states
        ]
    if version >= 1:
        return [
            (TopicPartition(topic.name, index), -1, message.delete_partitions)
            for topic in message.topics
            for index in topic.partition_indexes
        ]
    return [
        (TopicPartition(p.topic_name, p.partition_index), -1, message.delete_partitions)
        for p in message.ungrouped_partitions
    ]


API = Api(5, "StopReplica", (0, 4), handle, operation="CLUSTER_ACTION", resource="CLUSTER", advertised=False)
