"""Forged pushes (LeaderAndIsr, StopReplica, UpdateMetadata), for tests in which brokers must refuse them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from barnabas.cluster import CONTROLLER_ID
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.metadata_records.topics import RemoveTopicRecord
from barnabas.protocol.push_tags import FULL, Receiver, set_offset, set_receiver, set_records
from barnabas.protocol.schema import Message

Push: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
LEADER_AND_ISR_VERSION, STOP_REPLICA_VERSION, UPDATE_METADATA_VERSION = 7, 4, 8


def forged_pushes(topic: str, partitions: int, *, controller_epoch: int, broker_epoch: int) -> list[tuple[Push, int]]:
    """An empty FULL LeaderAndIsr, a deletion of the topic, an empty FULL UpdateMetadata, each with its version.

    They have no tags of ours; `add_forged_tags` adds some.
    """
    head = {
        "controller_id": CONTROLLER_ID,
        "is_kraft_controller": True,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
    }
    states = [
        StopReplicaPartitionState(partition_index=partition, leader_epoch=-2, delete_partition=True)
        for partition in range(partitions)
    ]
    deleted = StopReplicaTopicState(topic_name=topic, partition_states=states)
    return [
        (LeaderAndIsrRequest(**head, type=FULL), LEADER_AND_ISR_VERSION),
        (StopReplicaRequest(**head, topic_states=[deleted]), STOP_REPLICA_VERSION),
        (UpdateMetadataRequest(**head, type=FULL), UPDATE_METADATA_VERSION),
    ]


def add_forged_tags(push: Message, receiver: Receiver, offset: int, deleted_topic_ids: Iterable[bytes] = ()) -> None:
    """Add the tags that a client can guess, and records that delete these topics."""
    set_receiver(push, receiver)
    set_offset(push, offset)
    set_records(push, [RemoveTopicRecord(topic_id=topic_id) for topic_id in deleted_topic_ids])
