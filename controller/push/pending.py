"""Pending: the changes that a broker has not received yet.

Only names are pending (partitions, topics, configs, ACLs). The values come from the newest committed image when the
requests are built (requests.py). So consecutive changes coalesce, and a pending set never grows beyond the cluster. A
push that is sent twice carries the same or newer values.

Threads: none. The holder of the sender's lock owns a `Pending`.

Source: ControllerChannelManager, AbstractControllerBrokerRequestBatch (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.controller.image import Image, PartitionKey, Topic
from barnabas.controller.image_editor import Delta
from barnabas.protocol.push_tags import EPOCH_DURING_DELETE
from barnabas.security.image import Change

MAX_REMEMBERED_DELETIONS: Final = 10_000  # beyond this a FULL push is shorter


class Stop(NamedTuple):
    """A replica that a broker must stop and delete."""

    topic: str
    leader_epoch: int


@dataclass(slots=True)
class Pending:
    """The changes that one broker has not received yet."""

    is_full: bool = False  # everything is pending
    has_metadata: bool = False  # something changed, if only the offset
    has_brokers: bool = False  # the live brokers changed
    has_controllers: bool = False  # the registered controllers changed
    leader_and_isr: set[PartitionKey] = field(default_factory=set)
    new: set[PartitionKey] = field(default_factory=set)  # the part of leader_and_isr that the broker has never received
    metadata: set[PartitionKey] = field(default_factory=set)
    deleted: dict[bytes, Topic] = field(default_factory=dict)  # by topic id
    stops: dict[PartitionKey, Stop] = field(default_factory=dict)
    configs: set[tuple[int, str, str]] = field(default_factory=set)  # (resource type, resource name, key)
    has_features: bool = False
    security: set[Change] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything is pending."""
        return bool(
            self.is_full
            or self.has_metadata
            or self.has_brokers
            or self.has_controllers
            or self.leader_and_isr
            or self.metadata
            or self.deleted
            or self.stops
            or self.configs
            or self.has_features
            or self.security
        )

    def merge(self, other: Pending) -> None:
        """Add other pending changes: newer ones, or those of a push that failed."""
        self.is_full |= other.is_full
        self.has_metadata |= other.has_metadata
        self.has_brokers |= other.has_brokers
        self.has_controllers |= other.has_controllers
        self.has_features |= other.has_features
        self.leader_and_isr |= other.leader_and_isr
        self.new |= other.new
        self.metadata |= other.metadata
        self.configs |= other.configs
        self.security |= other.security
        self.deleted.update(other.deleted)
        self.stops.update(other.stops)
        if len(self.deleted) + len(self.stops) > MAX_REMEMBERED_DELETIONS:
            self.is_full = True
            self.deleted.clear()
            self.stops.clear()


def pending_for(
    broker_id: int, image: Image, delta: Delta, affected: set[PartitionKey], deleted: Mapping[bytes, Topic]
) -> Pending:
    """Return what a change makes pending for one broker.

    `affected` is the result of `affected_by_brokers`, which is the same for all brokers. `deleted` has the topics that
    this change or another one of the same commit deletes.
    """
    pending = Pending(
        has_metadata=bool(delta),
        has_brokers=bool(delta.brokers),
        has_controllers=delta.has_controllers,
        metadata=delta.partitions | affected,
        deleted=dict(delta.deleted_topics),
        configs=set(delta.configs),
        has_features=delta.has_features,
        security=set(delta.security),
    )
    for key in delta.partitions:
        _add_partition(pending, broker_id, image, delta, key)
    for topic in delta.deleted_topics.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                pending.stops[PartitionKey(topic.id, index)] = Stop(topic.name, EPOCH_DURING_DELETE)
    if deleted:  # Why: a replica that was removed just before the topic is in neither the topic nor the image
        for key, before in delta.previous.items():
            if key.topic_id in deleted and broker_id in before.replicas:
                pending.stops[key] = Stop(deleted[key.topic_id].name, EPOCH_DURING_DELETE)
    return pending


def _add_partition(pending: Pending, broker_id: int, image: Image, delta: Delta, key: PartitionKey) -> None:
    before, after = delta.previous.get(key), image.partition(key)
    if after is None:
        return
    was_replica = before is not None and broker_id in before.replicas
    if broker_id in after.replicas:
        pending.leader_and_isr.add(key)
        if not was_replica:
            pending.new.add(key)
    elif was_replica:
        pending.stops[key] = Stop(image.topics[key.topic_id].name, after.leader_epoch)


def affected_by_brokers(image: Image, delta: Delta) -> set[PartitionKey]:
    """Return the partitions whose offline replicas may differ because a broker changed."""
    if not delta.brokers:
        return set()
    return {
        PartitionKey(topic.id, index)
        for topic, index, partition in image.each_partition()
        if not delta.brokers.isdisjoint(partition.replicas)
    }
