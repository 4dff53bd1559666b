"""Who leads a partition now: what a client that asked the wrong broker is told beside the error (KIP-951).

Source: Kafka's KafkaApis.getCurrentLeader (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metadata_cache import Node

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request
    from barnabas.common.topic_partition import TopicPartition


def current_leader(services: Services, request: Request, tp: TopicPartition) -> tuple[int, int, Node | None]:
    """(leader id, leader epoch, its address for this client); -1 where nobody knows.

    The replica's own role counts first: it learns of a new leader before the metadata cache does.
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
        # Why not its epoch, which Kafka tells: librdkafka reserves room for a leader wherever the field is sent, fills
        # in only those that there are, and reads what is left over (its issue 5280; a stress run ended there).
        # Nobody can use the epoch without the leader.
        return -1, -1, None
    return leader_id, leader_epoch, snapshot.node(leader_id, request.listener_name)
