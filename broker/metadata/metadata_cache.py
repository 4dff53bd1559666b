"""MetadataCache: the broker's view of the cluster: live brokers, topics, partitions and their leaders.

Rules
1. The view is an immutable `MetadataSnapshot`. A push (UpdateMetadata) builds the next one and replaces it whole. A
   request reads `cache.snapshot` once, so its response is consistent.
2. Only `apply_update_metadata` replaces the snapshot.
3. A client gets the address that a broker advertises for the listener *of the client's request* (KIP-103). A broker
   without that listener is invisible to the client.

Threads: any thread reads; the handler that runs UpdateMetadata writes.

Source: KRaftMetadataCache (Kafka 4.3), ZkMetadataCache (Kafka 3.9, for the meaning of the push).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.requests.cached_responses import CachedResponses
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.push_tags import FULL, LEADER_DURING_DELETE

if TYPE_CHECKING:
    from barnabas.protocol.messages.k06_update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )
    from barnabas.protocol.metadata_records import PartitionRecord, RegisterBrokerRecord

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


class Node(NamedTuple):
    """A broker as one listener's clients see it."""

    id: int
    host: str
    port: int
    rack: str | None


class Endpoint(NamedTuple):
    """One advertised listener of a broker."""

    host: str
    port: int
    security_protocol: int


class BrokerInfo(NamedTuple):
    """A live (registered and unfenced) broker."""

    id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]

    def node(self, listener_name: str) -> Node | None:
        """Return the broker's address for the clients of a listener; None if it does not have that listener."""
        endpoint = self.endpoints.get(listener_name)
        return None if endpoint is None else Node(self.id, endpoint.host, endpoint.port, self.rack)


class Registration(NamedTuple):
    """A registered broker, live or fenced, as the controller's log has it."""

    broker: BrokerInfo
    epoch: int
    is_fenced: bool
    in_controlled_shutdown: bool


class PartitionInfo(NamedTuple):
    """The state of a partition as of the newest push; `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]  # on brokers that are not live, or in failed log directories
    elr: tuple[int, ...] = ()  # the eligible leader replicas (KIP-966)
    last_known_elr: tuple[int, ...] = ()

    def offline_for(self, reachable: Container[int]) -> list[int]:
        """Return the replicas that are offline for a client that can reach these brokers."""
        return [r for r in self.replicas if r not in reachable or r in self.offline_replicas]


class TopicInfo(NamedTuple):
    """A topic and its partitions by index."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionInfo]

    @property
    def is_internal(self) -> bool:
        """Whether Kafka itself owns the topic."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """One consistent view of the cluster; immutable."""

    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)  # by topic id
    controller_id: int = -1
    registrations: Mapping[int, Registration] = field(default_factory=dict)  # by broker id; from tag 10000 of pushes
    last_live: Mapping[int, BrokerInfo] = field(default_factory=dict)  # while no broker is live: those that were last
    responses: CachedResponses = field(default_factory=CachedResponses, init=False, compare=False)  # from this snapshot

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic; ZERO_UUID if the topic is unknown."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it is unknown."""
        return self.topic_names.get(topic_id)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return the state of a partition, or None if it is unknown."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def is_in_sync(self, tp: TopicPartition) -> bool:
        """Whether every replica of a partition is in its ISR; false for an unknown partition."""
        known = self.partition(tp)
        return known is not None and set(known.replicas) <= set(known.isr)

    def partition_count(self, name: str) -> int | None:
        """Return the number of partitions of a topic, or None if it is unknown."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """Return the address of a live broker for the clients of a listener, or None."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.node(listener_name)

    def nodes(self, listener_name: str) -> list[Node]:
        """Return every live broker that has the listener, in order of ids."""
        return _nodes(self.brokers, listener_name)

    def nodes_for_clients(self, listener_name: str) -> list[Node]:
        """Return the brokers that clients are told of: the live ones or, while there is none, those that were last.

        librdkafka (2.16) forgets every broker that a response does not list, also those of bootstrap.servers. Without
        any it asks nobody, for ever. No broker is live for a moment after the controller's log was rebuilt, or while
        the only broker starts again.
        """
        return _nodes(self.brokers or self.last_live, listener_name)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and unfenced."""
        return broker_id in self.brokers

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the controller would accept the broker into an ISR.

        The broker must be alive and not in controlled shutdown. `broker_epoch` is the incarnation whose fetches the
        leader has seen; -1 if the fetches have no epoch.
        """
        if broker_id not in self.brokers:
            return False
        known = self.registrations.get(broker_id)
        return known is None or (not known.in_controlled_shutdown and broker_epoch in (-1, known.epoch))

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this is the epoch of an earlier incarnation of a live broker; False for -1 (no epoch)."""
        known = self.registrations.get(broker_id)
        return broker_epoch != -1 and known is not None and broker_id in self.brokers and known.epoch > broker_epoch

    def fenced_nodes(self, listener_name: str) -> list[Node]:
        """Return every registered broker that is not alive and has the listener, in order of ids."""
        fenced = {id_: known.broker for id_, known in self.registrations.items() if id_ not in self.brokers}
        return _nodes(fenced, listener_name)

    def controller_for_clients(self, own_id: int) -> int:
        """Return the live broker that broker `own_id` names as "controller" to clients; -1 if none is alive.

        A broker names itself, since any broker forwards admin requests, and the responding broker is certainly up.
        Another broker may have just died, and the client would wait for it (KRaft brokers name a random live one).
        """
        if own_id in self.brokers:
            return own_id
        return random.choice(list(self.brokers)) if self.brokers else -1


class MetadataCache:
    """Holds the current snapshot, and the metadata offset that it is complete up to."""

    def __init__(self, own: BrokerInfo | None = None) -> None:
        """`own` is this broker, which counts as the last live one until a push names live brokers."""
        self._lock = threading.Lock()  # serializes writers only
        last_live = {} if own is None else {own.id: own}
        self.snapshot = MetadataSnapshot(last_live=last_live)  # replaced whole under _lock
        self.finalized_features = FinalizedFeatures()  # replaced whole under _lock
        self.on_caught_up: list[Callable[[], None]] = []  # fixed before start; called once, after the first push
        self._is_caught_up = False  # guarded by: _lock
        self.offset = -1  # guarded by: _lock; metadata offset (inclusive) of the last push since the registration
        self._expected_offset = -1  # guarded by: _lock; metadata offset of the newest push that has begun
        self.image_offset = -1  # guarded by: _lock; like `offset`, but over all registrations of this process

    def note_features(self, features: Mapping[str, int]) -> None:
        """Replace the finalized feature levels (a push that names any names all)."""
        with self._lock:
            self.finalized_features = FinalizedFeatures(features, self.finalized_features.epoch)

    def note_offset(self, offset: int) -> None:
        """Note that the pushes are complete up to `offset` of the metadata log."""
        with self._lock:
            self.offset = max(self.offset, offset)
            self.image_offset = max(self.image_offset, offset)
            self.finalized_features = FinalizedFeatures(self.finalized_features.levels, self.offset)
            is_first, self._is_caught_up = not self._is_caught_up, True
        if is_first:
            for listener in self.on_caught_up:
                listener()

    def expect_offset(self, offset: int) -> None:
        """Note that a push has begun, which ends with `offset` of the metadata log."""
        with self._lock:
            self._expected_offset = max(self._expected_offset, offset)

    @property
    def is_current(self) -> bool:
        """Whether every push that has begun is complete."""
        return self.offset >= self._expected_offset

    def forget_offset(self) -> None:
        """Reset `offset` before a new registration, since earlier pushes do not count for it.

        The expected offset stays: the first push may begin before the response to the registration arrives. The
        features stay too: a refused broker goes on unchanged, and the first push after a registration names them all.
        """
        with self._lock:
            self.offset = -1

    def apply_update_metadata(
        self,
        request: UpdateMetadataRequest,
        registrations: Sequence[RegisterBrokerRecord] = (),
        partitions: Sequence[PartitionRecord] = (),
    ) -> set[str]:
        """Replace the snapshot by one that includes the push; returns the topics that appeared, changed or vanished.

        `registrations` are all registered brokers; empty if the push does not carry them. `partitions` are those of the
        push that have eligible leader replicas or no leader.

        A FULL push removes every topic that it does not name. A partition whose leader is LEADER_DURING_DELETE is
        removed, and its topic goes with the last partition.
        """
        with self._lock:
            old = self.snapshot
            is_full = request.type == FULL
            topics: dict[str, TopicInfo] = {} if is_full else dict(old.topics)
            changed = set(old.topics) if is_full else set()
            records = {(p.topic_id, p.partition_id): p for p in partitions}
            shared: dict[tuple[int, ...], tuple[int, ...]] = {}
            for state in request.topic_states:
                if _is_deletion_of_another(topics.get(state.topic_name), state):
                    continue
                changed.add(state.topic_name)
                topic = _next_topic(topics.get(state.topic_name), state, records, shared)
                if topic.partitions:
                    topics[topic.name] = topic
                else:
                    topics.pop(topic.name, None)
            brokers = {broker.id: _broker_info(broker) for broker in request.live_brokers}
            self.snapshot = MetadataSnapshot(
                brokers=brokers,
                topics=topics,
                topic_names=_next_names(old, topics, changed),
                controller_id=request.controller_id,
                registrations={r.broker_id: _registration(r) for r in registrations} or old.registrations,
                last_live={} if brokers else old.brokers or old.last_live,
            )
            return changed


def _nodes(brokers: Mapping[int, BrokerInfo], listener_name: str) -> list[Node]:
    """Return the brokers that have the listener, in order of ids."""
    found = (brokers[broker_id].node(listener_name) for broker_id in sorted(brokers))
    return [node for node in found if node is not None]


def _broker_info(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {e.listener: Endpoint(e.host, e.port, e.security_protocol) for e in broker.endpoints}
    return BrokerInfo(broker.id, broker.rack, endpoints)


def _registration(record: RegisterBrokerRecord) -> Registration:
    endpoints = {e.name: Endpoint(e.host, e.port, e.security_protocol) for e in record.end_points}
    broker = BrokerInfo(record.broker_id, record.rack, endpoints)
    return Registration(broker, record.broker_epoch, record.fenced, record.in_controlled_shutdown)


def _is_deletion_of_another(topic: TopicInfo | None, state: UpdateMetadataTopicState) -> bool:
    """Whether the push deletes an older topic of the same name."""
    return (
        topic is not None
        and topic.id != state.topic_id
        and all(p.leader == LEADER_DURING_DELETE for p in state.partition_states)
    )


def _next_names(old: MetadataSnapshot, topics: Mapping[str, TopicInfo], changed: set[str]) -> dict[bytes, str]:
    """Return the names by topic id after the push; only those of changed topics are looked at."""
    names = dict(old.topic_names)
    for name in changed:
        if name in old.topics:
            names.pop(old.topics[name].id, None)
    for name in changed:
        if name in topics and topics[name].id != ZERO_UUID:
            names[topics[name].id] = name
    return names


def _next_topic(
    topic: TopicInfo | None,
    state: UpdateMetadataTopicState,
    records: Mapping[tuple[bytes, int], PartitionRecord],
    shared: dict[tuple[int, ...], tuple[int, ...]],
) -> TopicInfo:
    """Return the topic after the push; a topic that was created again under another id starts empty.

    `shared` has equal tuples as one object, which most partitions have in common.
    """

    def one(ids: Iterable[int]) -> tuple[int, ...]:
        made = tuple(ids)
        return shared.setdefault(made, made)

    keeps = topic is not None and topic.id == state.topic_id
    partitions = dict(topic.partitions) if topic is not None and keeps else {}
    for p in state.partition_states:
        if p.leader == LEADER_DURING_DELETE:
            partitions.pop(p.partition_index, None)
        else:
            record = records.get((state.topic_id, p.partition_index))
            partitions[p.partition_index] = PartitionInfo(
                p.partition_index, p.leader, p.leader_epoch, p.zk_version,
                one(p.isr), one(p.replicas), one(p.offline_replicas),
                () if record is None else one(record.eligible_leader_replicas or ()),
                () if record is None else one(record.last_known_elr or ()),
            )  # fmt: skip
    return TopicInfo(state.topic_name, state.topic_id, partitions)
