"""The broker's picture of the cluster: live brokers, topics, partitions and their leaders.

Rules
1. The picture is an immutable `MetadataSnapshot`; a push (UpdateMetadata) builds the next one and replaces it whole.
   A request takes `cache.snapshot` once and answers everything from it, so its answer is consistent.
2. Only `apply_update_metadata` changes the cache.
3. A client is told the address a broker advertises for the listener *its request came in on* (KIP-103); a broker
   that does not have that listener is invisible to it.

Threads: any thread reads; the handler that runs UpdateMetadata writes.

Source: KRaftMetadataCache (Kafka 4.3), ZkMetadataCache (Kafka 3.9, for the meaning of the push).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.features import FinalizedFeatures
from barnabas.broker.known_answers import KnownAnswers
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.push_tags import FULL

if TYPE_CHECKING:
    from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
    from barnabas.protocol.metadata_records import RegisterBrokerRecord

NO_LEADER = -1
LEADER_DURING_DELETE = -2

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
        """Its address for the clients of `listener_name`, or None if it has no such listener."""
        endpoint = self.endpoints.get(listener_name)
        return None if endpoint is None else Node(self.id, endpoint.host, endpoint.port, self.rack)


class Registration(NamedTuple):
    """What the controller's log knows of a registered broker beside `BrokerInfo`, fenced ones included."""

    broker: BrokerInfo
    epoch: int
    is_fenced: bool
    in_controlled_shutdown: bool


class PartitionInfo(NamedTuple):
    """What the controller last said of a partition; `leader` is NO_LEADER when there is none."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


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
    """One consistent picture; never changed once made."""

    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)  # by topic id
    controller_id: int = -1
    registrations: Mapping[int, Registration] = field(default_factory=dict)  # as the controller's tag 10000 tells
    answers: KnownAnswers = field(default_factory=KnownAnswers, init=False, compare=False)  # given from this picture

    def topic_id(self, name: str) -> bytes:
        """The topic's id, or ZERO_UUID if unknown."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, or None if unknown."""
        return self.topic_names.get(topic_id)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """The partition's state, or None if unknown."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def partition_count(self, name: str) -> int | None:
        """The number of partitions of a topic, or None if unknown."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """The address of a live broker for the clients of a listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.node(listener_name)

    def nodes(self, listener_name: str) -> list[Node]:
        """Every live broker that has the listener, by id."""
        found = (self.brokers[broker_id].node(listener_name) for broker_id in sorted(self.brokers))
        return [node for node in found if node is not None]

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and unfenced."""
        return broker_id in self.brokers

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the controller would accept the broker into an ISR: alive, not about to leave, and the incarnation
        whose fetches the leader has seen (-1: they do not say).
        """
        if broker_id not in self.brokers:
            return False
        known = self.registrations.get(broker_id)
        return known is None or (not known.in_controlled_shutdown and broker_epoch in (-1, known.epoch))

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this is the epoch of an earlier incarnation of a live broker (-1: it does not say)."""
        known = self.registrations.get(broker_id)
        return broker_epoch != -1 and known is not None and broker_id in self.brokers and known.epoch > broker_epoch

    def fenced_nodes(self, listener_name: str) -> list[Node]:
        """Every registered broker that is not alive and has the listener, by id."""
        fenced = [self.registrations[id_].broker for id_ in sorted(self.registrations) if id_ not in self.brokers]
        found = (broker.node(listener_name) for broker in fenced)
        return [node for node in found if node is not None]

    def controller_for_clients(self, own_id: int) -> int:
        """The live broker that broker `own_id` names as "controller" to clients; -1 if none is alive.

        A broker names itself: any broker forwards admin requests, and the one that answers is certainly up. Another
        one may have died a moment ago, and a client would wait for it (KRaft brokers name a random live one).
        """
        if own_id in self.brokers:
            return own_id
        return random.choice(list(self.brokers)) if self.brokers else -1


class MetadataCache:
    """Holder of the current snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # serialises writers only
        self.snapshot = MetadataSnapshot()  # replaced whole under _lock
        self.finalized_features = FinalizedFeatures()  # replaced whole under _lock
        self.on_caught_up: Callable[[], None] | None = None  # fixed before start; told once, of the first whole picture
        self._is_caught_up = False  # guarded by: _lock
        self.offset = -1  # guarded by: _lock; of the metadata log (inclusive), up to which we were told everything
        self._expected_offset = -1  # guarded by: _lock; the same, of the newest push that has begun
        self.picture_offset = -1  # guarded by: _lock; the same, in all registrations of this life

    def note_features(self, features: Mapping[str, int]) -> None:
        """The cluster's feature levels (a push that names any names all)."""
        with self._lock:
            self.finalized_features = FinalizedFeatures(features, self.finalized_features.epoch)

    def note_offset(self, offset: int) -> None:
        """A push has told everything up to `offset` of the metadata log."""
        with self._lock:
            self.offset = max(self.offset, offset)
            self.picture_offset = max(self.picture_offset, offset)
            self.finalized_features = FinalizedFeatures(self.finalized_features.levels, self.offset)
            is_first, self._is_caught_up = not self._is_caught_up, True
        if is_first and self.on_caught_up is not None:
            self.on_caught_up()

    def expect_offset(self, offset: int) -> None:
        """A push has begun whose last part will tell everything up to `offset` of the metadata log."""
        with self._lock:
            self._expected_offset = max(self._expected_offset, offset)

    @property
    def is_current(self) -> bool:
        """Whether the picture is as new as every push that has begun."""
        return self.offset >= self._expected_offset

    def forget_offset(self) -> None:
        """A new registration: what earlier pushes told does not count for it.

        What is expected stays: the first push after it may have begun before the answer to the registration came. So do
        the features: a broker that is refused goes on as it is, and the first push after a registration names them all.
        """
        with self._lock:
            self.offset = -1

    def apply_update_metadata(
        self, request: UpdateMetadataRequest, registrations: Sequence[RegisterBrokerRecord] = ()
    ) -> set[str]:
        """Replace the snapshot by one that includes the push; returns the topics that appeared, changed or vanished.

        `registrations`: all there are now; none if the push does not tell.

        A FULL push forgets every topic that it does not name; a partition whose leader is LEADER_DURING_DELETE is
        removed, and its topic with the last partition.
        """
        with self._lock:
            old = self.snapshot
            full = request.type == FULL
            topics: dict[str, TopicInfo] = {} if full else dict(old.topics)
            changed = set(old.topics) if full else set()
            for state in request.topic_states:
                if _is_deletion_of_another(topics.get(state.topic_name), state):
                    continue
                changed.add(state.topic_name)
                topic = _next_topic(topics.get(state.topic_name), state)
                if topic.partitions:
                    topics[topic.name] = topic
                else:
                    topics.pop(topic.name, None)
            self.snapshot = MetadataSnapshot(
                brokers={broker.id: _broker_info(broker) for broker in request.live_brokers},
                topics=topics,
                topic_names={topic.id: name for name, topic in topics.items() if topic.id != ZERO_UUID},
                controller_id=request.controller_id,
                registrations={r.broker_id: _registration(r) for r in registrations} or old.registrations,
            )
            return changed

    def nodes_of(self, broker_ids: Iterable[int], listener_name: str) -> list[Node]:
        """The live ones of these brokers, as clients of the listener see them (KIP-951's node endpoints)."""
        snapshot = self.snapshot
        found = (snapshot.node(broker_id, listener_name) for broker_id in broker_ids)
        return [node for node in found if node is not None]


def _broker_info(broker) -> BrokerInfo:  # type: ignore[no-untyped-def]
    endpoints = {e.listener: Endpoint(e.host, e.port, e.security_protocol) for e in broker.endpoints}
    return BrokerInfo(broker.id, broker.rack, endpoints)


def _registration(record: RegisterBrokerRecord) -> Registration:
    endpoints = {e.name: Endpoint(e.host, e.port, e.security_protocol) for e in record.end_points}
    broker = BrokerInfo(record.broker_id, record.rack, endpoints)
    return Registration(broker, record.broker_epoch, record.fenced, record.in_controlled_shutdown)


def _is_deletion_of_another(topic: TopicInfo | None, state) -> bool:  # type: ignore[no-untyped-def]
    """Whether a topic that is gone for long has left its name to this one."""
    return (
        topic is not None
        and topic.id != state.topic_id
        and all(p.leader == LEADER_DURING_DELETE for p in state.partition_states)
    )


def _next_topic(topic: TopicInfo | None, state) -> TopicInfo:  # type: ignore[no-untyped-def]
    """The topic after the push; one that was re-created under another id starts empty."""
    keeps = topic is not None and topic.id == state.topic_id
    partitions = dict(topic.partitions) if topic is not None and keeps else {}
    for p in state.partition_states:
        if p.leader == LEADER_DURING_DELETE:
            partitions.pop(p.partition_index, None)
        else:
            partitions[p.partition_index] = PartitionInfo(
                p.partition_index, p.leader, p.leader_epoch, p.zk_version,
                tuple(p.isr), tuple(p.replicas), tuple(p.offline_replicas),
            )  # fmt: skip
    return TopicInfo(state.topic_name, state.topic_id, partitions)
