"""The current leader of a partition, which a client that asked the wrong broker gets beside the error (KIP-951).

Source: Kafka's KafkaApis.getCurrentLeader (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metadata.metadata_cache import Node

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.common.topic_partition import TopicPartition


def current_leader(services: Services, request: Request, tp: TopicPartition) -> tuple[int, int, Node | None]:
    """(leader id, leader epoch, its address for this client); -1, -1 and None when the leader is unknown.

    The replica's own role takes precedence: it learns of a new leader before the metadata cache does.
    """
    snapshot = services.metadata_cache.snapshot
    partition = services.replica_manager.find(tp)
    if partition is not None and partition.leader_epoch >= 0:
        leader_id, leader_epoch = partition.leader_id, partition.leader_epoch
    else:
        known = snapshot.partition(tp)
        if known is None:
            return -1, -1, None
        leader_id, leader_epoch = known.leader, known.leader_epoch
    if leader_id < 0:
        # Why not the epoch, which Kafka sends: librdkafka reserves memory for a leader wherever the field is sent. It
        # fills in only known leaders and reads the uninitialized rest (its issue 5280; it crashed a stress run).
        # Without the leader, no client can use the epoch.
        return -1, -1, None
    return leader_id, leader_epoch, snapshot.node(leader_id, request.listener_name)
