"""The push: what a broker still has to be told, and the requests that tell it.

What is pending is names only (which partitions, topics, configs); values are taken from the newest committed image when
the requests are built. So changes that follow each other coalesce by themselves, a pending set is never larger than
the cluster, and a push that is sent twice says the same or newer things.

Order of a push: the live brokers, if they changed (an UpdateMetadata with nothing else: a leader that loses a follower
must not go on waiting for it, and judges by them); StopReplica for topics that exist again under another id;
LeaderAndIsr; UpdateMetadata; StopReplica for the rest. If LeaderAndIsr is FULL, all StopReplicas come before it. What
the tagged fields of each carry is in `push_tags.py`.

Threads: none; `Pending` belongs to whoever holds the sender's lock, `build` is pure.

Source: ControllerChannelManager, AbstractControllerBrokerRequestBatch (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.controller.image import Broker, ConfigKey, Delta, Endpoint, Image, Partition, PartitionKey, Topic
from barnabas.protocol.messages import k04_leader_and_isr as leader_wire
from barnabas.protocol.messages import k05_stop_replica as stop_wire
from barnabas.protocol.messages import k06_update_metadata as metadata_wire
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from barnabas.protocol.push_tags import (
    FULL,
    INCREMENTAL,
    TAG_PARTIAL,
    Receiver,
    set_offset,
    set_receiver,
    set_records,
    set_tag,
)

LEADER_AND_ISR_VERSION: Final = 7
UPDATE_METADATA_VERSION: Final = 8
STOP_REPLICA_VERSION: Final = 4

LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2

MAX_REMEMBERED_DELETIONS: Final = 10_000  # more than that and a FULL push is shorter


class Stop(NamedTuple):
    """A replica that a broker gives up, with its data."""

    topic: str
    leader_epoch: int


@dataclass(slots=True)
class Pending:
    """What one broker has not been told yet."""

    is_full: bool = False
    has_metadata: bool = False  # something changed, if only the offset
    has_brokers: bool = False  # the live brokers changed
    leader_and_isr: set[PartitionKey] = field(default_factory=set)
    new: set[PartitionKey] = field(default_factory=set)  # of leader_and_isr: never told before
    metadata: set[PartitionKey] = field(default_factory=set)
    deleted: dict[bytes, Topic] = field(default_factory=dict)
    stops: dict[PartitionKey, Stop] = field(default_factory=dict)
    configs: set[tuple[int, str, str]] = field(default_factory=set)
    has_features: bool = False

    def __bool__(self) -> bool:
        """Whether anything is pending."""
        return bool(
            self.is_full
            or self.has_metadata
            or self.has_brokers
            or self.leader_and_isr
            or self.metadata
            or self.deleted
            or self.stops
            or self.configs
            or self.has_features
        )

    def merge(self, other: Pending) -> None:
        """Add what else is pending; `other` is newer, or was taken and could not be sent."""
        self.is_full |= other.is_full
        self.has_metadata |= other.has_metadata
        self.has_brokers |= other.has_brokers
        self.has_features |= other.has_features
        self.leader_and_isr |= other.leader_and_isr
        self.new |= other.new
        self.metadata |= other.metadata
        self.configs |= other.configs
        self.deleted.update(other.deleted)
        self.stops.update(other.stops)
        if len(self.deleted) + len(self.stops) > MAX_REMEMBERED_DELETIONS:
            self.is_full = True
            self.deleted.clear()
            self.stops.clear()


class Requests(NamedTuple):
    """One push, in the order of sending; None: nothing of that kind."""

    live_brokers: metadata_wire.UpdateMetadataRequest | None
    stop_first: stop_wire.StopReplicaRequest | None
    leader_and_isr: leader_wire.LeaderAndIsrRequest | None
    update_metadata: metadata_wire.UpdateMetadataRequest
    stop_last: stop_wire.StopReplicaRequest | None

    def in_order(self) -> Iterator[tuple[Any, int]]:
        """The requests with their versions."""
        if self.live_brokers is not None:
            yield self.live_brokers, UPDATE_METADATA_VERSION
        if self.stop_first is not None:
            yield self.stop_first, STOP_REPLICA_VERSION
        if self.leader_and_isr is not None:
            yield self.leader_and_isr, LEADER_AND_ISR_VERSION
        yield self.update_metadata, UPDATE_METADATA_VERSION
        if self.stop_last is not None:
            yield self.stop_last, STOP_REPLICA_VERSION


class Sender(NamedTuple):
    """Who pushes: the controller's id and epoch, the listener on which brokers talk to each other, the cluster's id."""

    controller_id: int
    controller_epoch: int
    listener_name: str | None
    cluster_id: str


# -- what becomes pending


def pending_for(broker_id: int, image: Image, delta: Delta, affected: set[PartitionKey]) -> Pending:
    """What a change means for one broker; `affected` (see `affected_by_brokers`) is the same for all."""
    pending = Pending(
        has_metadata=bool(delta),
        has_brokers=bool(delta.brokers),
        metadata=delta.partitions | affected,
        deleted=dict(delta.deleted_topics),
        configs=set(delta.configs),
        has_features=delta.has_features,
    )
    for key in delta.partitions:
        before, after = delta.previous.get(key), image.partition(key)
        was_replica = before is not None and broker_id in before.replicas
        if after is not None and broker_id in after.replicas:
            pending.leader_and_isr.add(key)
            if not was_replica:
                pending.new.add(key)
        elif was_replica and after is not None:
            pending.stops[key] = Stop(image.topics[key.topic_id].name, after.leader_epoch)
    for topic in delta.deleted_topics.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                pending.stops[PartitionKey(topic.id, index)] = Stop(topic.name, EPOCH_DURING_DELETE)
    return pending


def affected_by_brokers(image: Image, delta: Delta) -> set[PartitionKey]:
    """Partitions whose offline replicas differ because brokers came or went."""
    if not delta.brokers:
        return set()
    return {
        PartitionKey(topic.id, index)
        for topic, index, partition in image.each_partition()
        if not delta.brokers.isdisjoint(partition.replicas)
    }


# -- requests


def build(sender: Sender, broker: Broker, image: Image, pending: Pending) -> Requests:
    """The requests that tell a broker what is pending, as the image has it."""
    leader_and_isr = _leader_and_isr(sender, broker, image, pending)
    update_metadata = _update_metadata(sender, broker, image, pending)
    records = _config_records(image, pending)
    registrations = _registrations(image) if pending.has_brokers or pending.is_full else []
    if leader_and_isr is not None:
        set_records(leader_and_isr, records)
        set_records(update_metadata, registrations)
    else:
        set_records(update_metadata, [*registrations, *records])
    # Why all of them before a FULL LeaderAndIsr: it does not name what they delete, so that would be set aside instead.
    again = {
        key: stop
        for key, stop in pending.stops.items()
        if pending.is_full or image.topic_ids.get(stop.topic, key.topic_id) != key.topic_id
    }
    rest = {key: stop for key, stop in pending.stops.items() if key not in again}
    live_brokers = None
    if leader_and_isr is not None and pending.has_brokers and not pending.is_full:
        live_brokers = _update_metadata(sender, broker, image, Pending())
        set_records(live_brokers, registrations)
        set_tag(live_brokers, TAG_PARTIAL, b"")
    requests = Requests(
        live_brokers,
        _stop_replica(sender, broker, image, again),
        leader_and_isr,
        update_metadata,
        _stop_replica(sender, broker, image, rest),
    )
    receiver = Receiver(sender.cluster_id, broker.id, broker.incarnation_id)
    for message, _ in requests.in_order():
        set_offset(message, image.offset)
        set_receiver(message, receiver)
    return requests


def endpoint_of(broker: Broker, listener_name: str | None) -> Endpoint:
    """Where other nodes reach a broker: the inter-broker listener, which a broker names first, if none is named so."""
    for endpoint in broker.endpoints:
        if endpoint.name == listener_name:
            return endpoint
    return broker.endpoints[0]


def _leader_and_isr(
    sender: Sender, broker: Broker, image: Image, pending: Pending
) -> leader_wire.LeaderAndIsrRequest | None:
    if pending.is_full:
        keys: Iterable[PartitionKey] = [
            PartitionKey(t.id, i) for t, i, p in image.each_partition() if broker.id in p.replicas
        ]
    elif pending.leader_and_isr:
        keys = pending.leader_and_isr
    else:
        return None
    leaders: set[int] = set()
    states = []
    for topic, partitions in _by_topic(image, keys):
        mine = [(index, p) for index, p in partitions if broker.id in p.replicas]
        leaders.update(p.leader for _, p in mine)
        states.append(
            leader_wire.LeaderAndIsrTopicState(
                topic_name=topic.name,
                topic_id=topic.id,
                partition_states=[
                    _leader_state(sender, index, p, PartitionKey(topic.id, index) in pending.new) for index, p in mine
                ],
            )
        )
    return leader_wire.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        is_kraft_controller=True,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        type=FULL if pending.is_full else INCREMENTAL,
        topic_states=states,
        live_leaders=[_live_leader(sender, image, id_) for id_ in sorted(leaders) if id_ in image.brokers],
    )


def _leader_state(sender: Sender, index: int, partition: Partition, is_new: bool) -> Any:
    return leader_wire.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=sender.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
        is_new=is_new,
        leader_recovery_state=partition.recovery_state,
    )


def _live_leader(sender: Sender, image: Image, broker_id: int) -> Any:
    endpoint = endpoint_of(image.brokers[broker_id], sender.listener_name)
    return leader_wire.LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)


def _update_metadata(
    sender: Sender, broker: Broker, image: Image, pending: Pending
) -> metadata_wire.UpdateMetadataRequest:
    if pending.is_full:
        keys: Iterable[PartitionKey] = [PartitionKey(t.id, i) for t, i, _ in image.each_partition()]
    else:
        keys = pending.metadata
    states = [] if pending.is_full else [_deleted_state(sender, t) for t in pending.deleted.values()]
    states += [
        metadata_wire.UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.id,
            partition_states=[_metadata_state(sender, image, index, p) for index, p in partitions],
        )
        for topic, partitions in _by_topic(image, keys)
    ]
    return metadata_wire.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        is_kraft_controller=True,
        type=FULL if pending.is_full else INCREMENTAL,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=states,
        live_brokers=[_live_broker(b) for b in image.brokers.values() if not b.is_fenced],
    )


def _metadata_state(sender: Sender, image: Image, index: int, partition: Partition) -> Any:
    return metadata_wire.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=sender.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=[replica for replica in partition.replicas if not _is_online(image, partition, replica)],
    )


def _is_online(image: Image, partition: Partition, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and broker.has_online_dir(partition.directory(broker_id))


def _deleted_state(sender: Sender, topic: Topic) -> Any:
    return metadata_wire.UpdateMetadataTopicState(
        topic_name=topic.name,
        topic_id=topic.id,
        partition_states=[
            metadata_wire.UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=sender.controller_epoch,
                leader=LEADER_DURING_DELETE,
                leader_epoch=EPOCH_DURING_DELETE,
                isr=list(partition.isr),
                zk_version=partition.partition_epoch,
                replicas=list(partition.replicas),
            )
            for index, partition in sorted(topic.partitions.items())
        ],
    )


def _live_broker(broker: Broker) -> Any:
    return metadata_wire.UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            metadata_wire.UpdateMetadataEndpoint(
                port=e.port, host=e.host, listener=e.name, security_protocol=e.security_protocol
            )
            for e in broker.endpoints
        ],
    )


def _stop_replica(
    sender: Sender, broker: Broker, image: Image, stops: dict[PartitionKey, Stop]
) -> stop_wire.StopReplicaRequest | None:
    by_topic: dict[str, list[Any]] = {}
    removed: set[bytes] = set()
    reassigned: list[PartitionRecord] = []
    for key, stop in sorted(stops.items()):
        partition = image.partition(key)
        if partition is not None and broker.id in partition.replicas:
            continue  # it became a replica again before we could say so
        if partition is None:
            removed.add(key.topic_id)
        else:
            reassigned.append(_partition_record(key, partition))
        by_topic.setdefault(stop.topic, []).append(
            stop_wire.StopReplicaPartitionState(
                partition_index=key.partition, leader_epoch=stop.leader_epoch, delete_partition=True
            )
        )
    if not by_topic:
        return None
    request = stop_wire.StopReplicaRequest(
        controller_id=sender.controller_id,
        is_kraft_controller=True,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=[
            stop_wire.StopReplicaTopicState(topic_name=name, partition_states=states)
            for name, states in by_topic.items()
        ],
    )
    set_records(request, [*(RemoveTopicRecord(topic_id=id_) for id_ in sorted(removed)), *reassigned])
    return request


def _partition_record(key: PartitionKey, partition: Partition) -> PartitionRecord:
    """Whose replica a partition is now."""
    return PartitionRecord(
        partition_id=key.partition,
        topic_id=key.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )


def _config_records(image: Image, pending: Pending) -> list[Any]:
    records: list[Any] = []
    if pending.is_full:
        configs = {(r.type, r.name, key) for r, entries in image.configs.items() for key in entries}
    else:
        configs = pending.configs
    if pending.is_full or pending.has_features:
        records += [FeatureLevelRecord(name=n, feature_level=v) for n, v in sorted(image.features.items())]
    for resource_type, name, key in sorted(configs):
        value = image.configs.get(ConfigKey(resource_type, name), {}).get(key)
        records.append(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value))
    return records


def _registrations(image: Image) -> list[Any]:
    """What the log knows of every registered broker, but for the incarnations: each is between it and us."""
    return [
        RegisterBrokerRecord(
            broker_id=b.id,
            broker_epoch=b.epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in b.endpoints
            ],
            rack=b.rack,
            fenced=b.is_fenced,
            in_controlled_shutdown=b.in_controlled_shutdown,
            log_dirs=list(b.log_dirs),
        )
        for b in image.brokers.values()
    ]


def _by_topic(image: Image, keys: Iterable[PartitionKey]) -> Iterator[tuple[Topic, list[tuple[int, Partition]]]]:
    """Keys grouped by topic, with what the image knows; those that are gone meanwhile are left out."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        grouped.setdefault(topic_id, []).append(index)
    for topic_id, indexes in grouped.items():
        topic = image.topics.get(topic_id)
        if topic is not None:
            yield topic, [(i, topic.partitions[i]) for i in sorted(indexes) if i in topic.partitions]
