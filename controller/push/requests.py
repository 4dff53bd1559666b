"""The requests of one push: they carry the pending changes with the values of a committed image.

Order of a push:

1. UpdateMetadata with the live brokers, if they changed. It comes first, since a leader that lost a follower judges by
   the live brokers whether to go on waiting for that follower.
2. StopReplica for topics that exist again under another id. Before a FULL LeaderAndIsr all StopReplicas are sent here.
3. LeaderAndIsr
4. UpdateMetadata
5. StopReplica for the rest

`protocol/push_tags.py` describes the tagged fields of each request.

Threads: none; pure functions.

Source: ControllerChannelManager, AbstractControllerBrokerRequestBatch (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from barnabas.controller.image import (
    BROKER_RESOURCE,
    Broker,
    ConfigKey,
    Controller,
    Endpoint,
    Image,
    Partition,
    PartitionKey,
    Topic,
)
from barnabas.controller.push.pending import Pending, Stop
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE
from barnabas.protocol.messages import k04_leader_and_isr as leader_wire
from barnabas.protocol.messages import k05_stop_replica as stop_wire
from barnabas.protocol.messages import k06_update_metadata as metadata_wire
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from barnabas.protocol.push_tags import (
    EPOCH_DURING_DELETE,
    FULL,
    INCREMENTAL,
    LEADER_DURING_DELETE,
    TAG_PARTIAL,
    Receiver,
    set_offset,
    set_receiver,
    set_records,
    set_tag,
)

Push = leader_wire.LeaderAndIsrRequest | stop_wire.StopReplicaRequest | metadata_wire.UpdateMetadataRequest
P = TypeVar("P", bound=Push)


def _no_quorum() -> int:
    return 0


class Sender(NamedTuple):
    """The sender of the pushes."""

    controller_id: int
    controller_epoch: int
    listener_name: str | None  # the inter-broker listener
    cluster_id: str
    kraft_version: Callable[[], int] = _no_quorum  # of the committed log; any thread calls it


def build(sender: Sender, broker: Broker, image: Image, pending: Pending) -> Iterator[Push]:
    """Yield the requests that bring a broker's pending changes up to the image, in the order of sending.

    Each goes out in its newest version. It is built when it is asked for, and not kept: a FULL push names every
    partition in two requests, and one of them at a time is enough.
    """
    receiver = Receiver(sender.cluster_id, broker.id, broker.incarnation_id)

    def addressed(message: P) -> P:
        set_offset(message, image.offset)
        set_receiver(message, receiver)
        return message

    settings: Sequence[MetadataRecord] = _settings(sender, image, pending)
    registrations = _registrations(image) if pending.has_brokers or pending.is_full else []
    stop_first, stop_last = _ordered_stops(image, pending)
    has_leaders = pending.is_full or bool(pending.leader_and_isr)
    if has_leaders and pending.has_brokers and not pending.is_full:
        yield addressed(_live_brokers(sender, broker, image, registrations))
    yield from map(addressed, _stop_replica(sender, broker, image, stop_first))
    if has_leaders:
        yield addressed(_leader_and_isr(sender, broker, image, pending, settings))
        settings = ()
    yield addressed(
        _update_metadata(sender, broker, image, pending, [*registrations, *_records(image, pending, settings)])
    )
    yield from map(addressed, _stop_replica(sender, broker, image, stop_last))


def endpoint_of(broker: Broker, listener_name: str | None) -> Endpoint:
    """Return the endpoint at which other nodes reach a broker.

    That is the inter-broker listener. If the broker has no listener of this name, it is the one that the broker lists
    first.
    """
    for endpoint in broker.endpoints:
        if endpoint.name == listener_name:
            return endpoint
    return broker.endpoints[0]


# -- LeaderAndIsr


def _leader_and_isr(
    sender: Sender, broker: Broker, image: Image, pending: Pending, settings: Iterable[MetadataRecord]
) -> leader_wire.LeaderAndIsrRequest:
    if pending.is_full:
        keys: Iterable[PartitionKey] = (
            PartitionKey(t.id, i) for t, i, p in image.each_partition() if broker.id in p.replicas
        )
    else:
        keys = pending.leader_and_isr
    leaders: set[int] = set()
    states = []
    lists = _Lists()
    for topic, partitions in _by_topic(image, keys):
        mine = [(index, p) for index, p in partitions if broker.id in p.replicas]
        leaders.update(p.leader for _, p in mine)
        states.append(
            leader_wire.LeaderAndIsrTopicState(
                topic_name=topic.name,
                topic_id=topic.id,
                partition_states=[
                    _leader_state(sender, lists, index, p, is_new=PartitionKey(topic.id, index) in pending.new)
                    for index, p in mine
                ],
            )
        )
    request = leader_wire.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        is_kraft_controller=True,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        type=FULL if pending.is_full else INCREMENTAL,
        topic_states=states,
        live_leaders=[_live_leader(sender, image, id_) for id_ in sorted(leaders) if id_ in image.brokers],
    )
    set_records(request, settings)
    return request


def _leader_state(
    sender: Sender, lists: _Lists, index: int, partition: Partition, *, is_new: bool
) -> leader_wire.LeaderAndIsrPartitionState:
    return leader_wire.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=sender.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=lists[partition.isr],
        partition_epoch=partition.partition_epoch,
        replicas=lists[partition.replicas],
        adding_replicas=lists[partition.adding],
        removing_replicas=lists[partition.removing],
        is_new=is_new,
        leader_recovery_state=partition.recovery_state,
    )


def _live_leader(sender: Sender, image: Image, broker_id: int) -> leader_wire.LeaderAndIsrLiveLeader:
    endpoint = endpoint_of(image.brokers[broker_id], sender.listener_name)
    return leader_wire.LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)


# -- UpdateMetadata


def _update_metadata(
    sender: Sender, broker: Broker, image: Image, pending: Pending, records: Iterable[MetadataRecord]
) -> metadata_wire.UpdateMetadataRequest:
    keys = _metadata_keys(image, pending)
    lists = _Lists()
    states = [] if pending.is_full else [_deleted_state(sender, t) for t in pending.deleted.values()]
    states += [
        metadata_wire.UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.id,
            partition_states=[_metadata_state(sender, lists, image, index, p) for index, p in partitions],
        )
        for topic, partitions in _by_topic(image, keys)
    ]
    request = metadata_wire.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        is_kraft_controller=True,
        type=FULL if pending.is_full else INCREMENTAL,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=states,
        live_brokers=[_live_broker(b) for b in image.brokers.values() if not b.is_fenced],
    )
    set_records(request, records)
    return request


def _live_brokers(
    sender: Sender, broker: Broker, image: Image, registrations: Iterable[RegisterBrokerRecord]
) -> metadata_wire.UpdateMetadataRequest:
    """Return the request with nothing but the brokers."""
    request = _update_metadata(sender, broker, image, Pending(), registrations)
    set_tag(request, TAG_PARTIAL, b"")
    return request


def _metadata_keys(image: Image, pending: Pending) -> Iterable[PartitionKey]:
    if pending.is_full:
        return (PartitionKey(topic.id, index) for topic, index, _ in image.each_partition())
    return pending.metadata


def _metadata_state(
    sender: Sender, lists: _Lists, image: Image, index: int, partition: Partition
) -> metadata_wire.UpdateMetadataPartitionState:
    offline = [replica for replica in partition.replicas if not _is_online(image, partition, replica)]
    return metadata_wire.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=sender.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=lists[partition.isr],
        zk_version=partition.partition_epoch,
        replicas=lists[partition.replicas],
        offline_replicas=lists[tuple(offline)],
    )


def _is_online(image: Image, partition: Partition, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and broker.has_online_dir(partition.directory(broker_id))


def _deleted_state(sender: Sender, topic: Topic) -> metadata_wire.UpdateMetadataTopicState:
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


def _live_broker(broker: Broker) -> metadata_wire.UpdateMetadataBroker:
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


# -- StopReplica


def _ordered_stops(image: Image, pending: Pending) -> tuple[dict[PartitionKey, Stop], dict[PartitionKey, Stop]]:
    """Return the stops to send before LeaderAndIsr, and those to send last.

    A FULL LeaderAndIsr does not name deleted partitions, so the broker would set their logs aside as strays. That is
    why all stops come before it.
    """
    first = {
        key: stop
        for key, stop in pending.stops.items()
        if pending.is_full or image.topic_ids.get(stop.topic, key.topic_id) != key.topic_id
    }
    return first, {key: stop for key, stop in pending.stops.items() if key not in first}


def _stop_replica(
    sender: Sender, broker: Broker, image: Image, stops: dict[PartitionKey, Stop]
) -> Iterator[stop_wire.StopReplicaRequest]:
    """Yield the request, if there is anything to stop."""
    by_topic: dict[str, list[stop_wire.StopReplicaPartitionState]] = {}
    removed: set[bytes] = set()
    reassigned: list[PartitionRecord] = []
    for key, stop in sorted(stops.items()):
        partition = image.partition(key)
        if partition is not None and broker.id in partition.replicas:
            continue  # the broker became a replica again before the stop was sent
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
        return
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
    yield request


def _partition_record(key: PartitionKey, partition: Partition) -> PartitionRecord:
    """Return the record that shows which brokers are the replicas now."""
    return PartitionRecord(
        partition_id=key.partition,
        topic_id=key.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )


# -- metadata records


def _records(image: Image, pending: Pending, settings: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    """Yield the records of an UpdateMetadata, after the registrations."""
    if pending.has_controllers or pending.is_full:
        yield from (controller.to_record() for controller in _controllers(image))
    yield from settings
    yield from _security(image, pending)
    yield from _eligible(image, pending)


def _eligible(image: Image, pending: Pending) -> Iterator[PartitionRecord]:
    """Yield the records of the pending partitions that have eligible leader replicas or a last leader."""
    keyed = ((key, image.partition(key)) for key in _metadata_keys(image, pending))
    return (p.to_record(*key) for key, p in keyed if p is not None and (p.elr or p.last_known_elr))


def _settings(sender: Sender, image: Image, pending: Pending) -> list[FeatureLevelRecord | ConfigRecord]:
    """Return the records of the pending features and configs."""
    records: list[FeatureLevelRecord | ConfigRecord] = []
    if pending.is_full:
        configs = {(r.type, r.name, key) for r, entries in image.configs.items() for key in entries}
    else:
        configs = pending.configs
    if pending.is_full or pending.has_features:
        kraft_version = sender.kraft_version()
        features = {**image.features, KRAFT_VERSION_FEATURE: kraft_version} if kraft_version else image.features
        records += [FeatureLevelRecord(name=n, feature_level=v) for n, v in sorted(features.items())]
    for resource_type, name, key in sorted(configs):
        value = image.configs.get(ConfigKey(resource_type, name), {}).get(key)
        records.append(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value))
    return records


def broker_configs(image: Image, broker_id: int) -> list[ConfigRecord]:
    """Return the records of the dynamic configs of all brokers and of one."""
    return [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=key, value=value)
        for name in ("", str(broker_id))
        for key, value in sorted(image.resource_configs(BROKER_RESOURCE, name).items())
    ]


def _security(image: Image, pending: Pending) -> list[MetadataRecord]:
    """Return the records of the pending ACLs, credentials, tokens and quotas, or those that remove them."""
    if pending.is_full:
        return list(image.security.records())
    return [image.security.record(change) for change in sorted(pending.security, key=str)]


def _controllers(image: Image) -> list[Controller]:
    """Return every controller, without its incarnation id and its features, which brokers need not know."""
    return [c._replace(incarnation_id=bytes(16), features=()) for c in image.controllers.values()]


def _registrations(image: Image) -> list[RegisterBrokerRecord]:
    """Return the registration of every broker, without its incarnation id, which other brokers must not learn."""
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


class _Lists(dict[tuple[int, ...], list[int]]):
    """Lists by content. Most partitions have the same few replicas, and a list for each takes more than all the rest.

    Whoever encodes a request only reads them.
    """

    def __missing__(self, key: tuple[int, ...]) -> list[int]:
        """Make the list."""
        made = self[key] = list(key)
        return made


def _by_topic(image: Image, keys: Iterable[PartitionKey]) -> Iterator[tuple[Topic, list[tuple[int, Partition]]]]:
    """Group keys by topic and add the states of the image; keys that are gone from the image are left out."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        grouped.setdefault(topic_id, []).append(index)
    for topic_id, indexes in grouped.items():
        topic = image.topics.get(topic_id)
        if topic is not None:
            yield topic, [(i, topic.partitions[i]) for i in sorted(indexes) if i in topic.partitions]
