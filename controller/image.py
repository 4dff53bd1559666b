"""The controller's picture of the cluster: what the metadata log says, and nothing else.

Rules
1. An `Image` never changes. `ImageEditor` builds the next one from records, copying only the maps that they touch, so
   any thread may keep an image and read it without a lock.
2. Every field follows from replayed records alone; what is not in the log (heartbeats, connections) is not here.
3. Values are tuples of immutable values, replaced whole.

Threads: the event thread edits; senders, metrics and tests read.

Invariants
1. `topic_ids[topics[id].name] == id` for each topic, and nothing else is in `topic_ids`.
2. A partition's isr is a non-empty subset of its replicas; its leader is -1 or in the isr.
3. `partition_epoch` grows with each change of a partition, `leader_epoch` with each that names a leader.
4. A config entry names a topic only while that topic exists.

Source: MetadataImage, TopicsImage, ClusterImage, PartitionRegistration.merge (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

RECOVERED: Final = 0
RECOVERING: Final = 1
NO_RECOVERY_CHANGE: Final = -1

# Resource types of configs (ConfigResource.Type).
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

# Directory ids that mean something other than a directory (DirectoryId).
MIGRATING_DIRECTORY: Final = bytes(16)
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
METADATA_VERSION: Final = "metadata.version"
VERSION_4_3_IV0: Final = 30  # the first that has cordoned log directories (KIP-1066)

LOST_DIRECTORY: Final = bytes(15) + b"\x02"
RESERVED_DIRECTORIES: Final = frozenset(bytes(15) + bytes([i]) for i in range(100))

_SET, _CLEAR = 1, -1  # the int8 "changes" of BrokerRegistrationChangeRecord.fenced; 0 = as it was


class Endpoint(NamedTuple):
    """One advertised listener of a broker; `security_protocol` is Kafka's id (0 = PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


class Broker(NamedTuple):
    """A registration. `epoch` is the offset of the record that made this incarnation known."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    log_dirs: tuple[bytes, ...]
    is_fenced: bool
    in_controlled_shutdown: bool
    cordoned_log_dirs: tuple[bytes, ...] = ()  # those that get no new replicas

    @property
    def takes_replicas(self) -> bool:
        """Whether it has a log directory for new replicas (KIP-1066)."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs)

    @property
    def is_active(self) -> bool:
        """Whether it may lead and join an ISR."""
        return not self.is_fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: bytes) -> bool:
        """Whether a replica in this directory can be served; unknown directories get the benefit of the doubt."""
        if directory in self.log_dirs or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and not self.log_dirs


class Partition(NamedTuple):
    """The state of a partition; `replicas` in order of preference."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovery_state: int = RECOVERED
    directories: tuple[bytes, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """The first replica of the assignment."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.removing or self.adding)

    def directory(self, broker_id: int) -> bytes:
        """The log directory of a replica; UNASSIGNED_DIRECTORY when nobody said."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY

    def merge(self, change: PartitionChangeRecord) -> Partition:
        """The partition after a change; the leader epoch grows exactly when the record names a leader (inv. 3)."""
        names_leader = change.leader != NO_LEADER_CHANGE
        changes_recovery = change.leader_recovery_state != NO_RECOVERY_CHANGE
        return Partition(
            replicas=_given(change.replicas, self.replicas),
            isr=_given(change.isr, self.isr),
            leader=change.leader if names_leader else self.leader,
            leader_epoch=self.leader_epoch + (1 if names_leader else 0),
            partition_epoch=self.partition_epoch + 1,
            removing=_given(change.removing_replicas, self.removing),
            adding=_given(change.adding_replicas, self.adding),
            recovery_state=change.leader_recovery_state if changes_recovery else self.recovery_state,
            directories=_given(change.directories, self.directories),
        )

    def to_record(self, topic_id: bytes, index: int) -> PartitionRecord:
        """The record that creates a partition in this state."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing),
            adding_replicas=list(self.adding),
            leader=self.leader,
            leader_recovery_state=self.recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories or (UNASSIGNED_DIRECTORY,) * len(self.replicas)),
        )


def _given(changed: list[Any] | None, current: tuple[Any, ...]) -> tuple[Any, ...]:
    return current if changed is None else tuple(changed)


class Topic(NamedTuple):
    """A topic and its partitions by index."""

    name: str
    id: bytes
    partitions: Mapping[int, Partition]


class PartitionKey(NamedTuple):
    """A partition by the id of its topic: a topic that is deleted and created again is another one."""

    topic_id: bytes
    partition: int


class ConfigKey(NamedTuple):
    """The owner of configs; a broker resource with an empty name is the default of all brokers."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class Image:
    """The cluster after the record at `offset`, inclusive (-1: an empty log)."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[bytes, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    #: By user and mechanism: SCRAM credentials of a directory that Apache Kafka formatted; nobody uses them yet.
    credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    offset: int = -1

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, key: PartitionKey) -> Partition | None:
        """The partition's state, or None if it does not exist."""
        topic = self.topics.get(key.topic_id)
        return None if topic is None else topic.partitions.get(key.partition)

    @property
    def can_cordon(self) -> bool:
        """Whether the log may hold cordoned log directories."""
        return self.features.get(METADATA_VERSION, 0) >= VERSION_4_3_IV0

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_alive(self, broker_id: int) -> bool:
        """Whether clients are told of the broker: registered and unfenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a resource; empty when nothing was."""
        return self.configs.get(ConfigKey(resource_type, name), {})

    def each_partition(self) -> Iterator[tuple[Topic, int, Partition]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether the broker leads anything."""
        return any(partition.leader == broker_id for _, _, partition in self.each_partition())

    def invariants(self) -> None:
        """Assert the numbered invariants of the module."""
        assert {t.name: t.id for t in self.topics.values()} == dict(self.topic_ids), "inv. 1"
        assert len(self.topics) == len(self.topic_ids), "inv. 1"
        for topic, index, p in self.each_partition():
            where = f"inv. 2: {topic.name}-{index} {p}"
            assert p.isr, where
            assert set(p.isr) <= set(p.replicas), where
            assert p.leader == NO_LEADER or p.leader in p.isr, where
        for key in self.configs:
            assert key.type != TOPIC_RESOURCE or key.name in self.topic_ids, "inv. 4"


@dataclass(slots=True)
class Delta:
    """What a run of records touched: names only, the values are in the image after it."""

    partitions: set[PartitionKey] = field(default_factory=set)
    previous: dict[PartitionKey, Partition] = field(default_factory=dict)  # state before, for those that existed
    deleted_topics: dict[bytes, Topic] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    configs: set[tuple[int, str, str]] = field(default_factory=set)  # (resource type, name, key)
    has_features: bool = False

    def __bool__(self) -> bool:
        """Whether brokers need to hear of it."""
        return bool(self.partitions or self.deleted_topics or self.brokers or self.configs or self.has_features)


class ImageEditor:
    """Replays records upon an image; `image()` is the next one and `delta` what changed. Used by one thread."""

    def __init__(self, image: Image) -> None:
        self.delta = Delta()
        self._offset = image.offset
        self._next_producer_id = image.next_producer_id
        self._brokers = dict(image.brokers)
        self._topics = image.topics
        self._topic_ids = image.topic_ids
        self._configs = image.configs
        self._features = image.features
        self._credentials = image.credentials
        self._owned: set[str] = set()
        self._owned_topics: set[bytes] = set()
        self._entries: dict[ConfigKey, dict[str, str]] = {}  # of resources whose configs were copied

    def image(self, offset: int | None = None) -> Image:
        """The image after everything that was applied, as of `offset` if that is not the last record's.

        The editor must not be used any more.
        """
        return Image(
            brokers=self._brokers,
            topics=self._topics,
            topic_ids=self._topic_ids,
            configs=self._configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
            credentials=self._credentials,
            offset=self._offset if offset is None else offset,
        )

    def apply_all(self, records: Iterable[object], base_offset: int) -> None:
        """Replay records of which the first has `base_offset`."""
        for offset, record in enumerate(records, base_offset):
            self.apply(record, offset)

    def apply(self, record: object, offset: int) -> None:
        """Replay one record; a type that means nothing here is skipped, so that its log can still be read."""
        self._offset = offset
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)

    # -- brokers

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.delta.brokers.add(record.broker_id)
        self._brokers[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            rack=record.rack,
            log_dirs=tuple(record.log_dirs),
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        )

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.delta.brokers.add(record.broker_id)
        self._brokers.pop(record.broker_id, None)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._brokers[record.broker_id]
        if record.fenced:
            broker = broker._replace(is_fenced=record.fenced == _SET)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=record.in_controlled_shutdown == _SET)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._replace_broker(broker)

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._replace_broker(self._brokers[record.id]._replace(is_fenced=True))

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._replace_broker(self._brokers[record.id]._replace(is_fenced=False))

    def _replace_broker(self, broker: Broker) -> None:
        self.delta.brokers.add(broker.id)
        self._brokers[broker.id] = broker

    # -- topics

    def _add_topic(self, record: TopicRecord) -> None:
        self._own_topics()[record.topic_id] = Topic(record.name, record.topic_id, {})
        self._own_topic_ids()[record.name] = record.topic_id
        self._owned_topics.add(record.topic_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._own_topics().pop(record.topic_id)
        del self._own_topic_ids()[topic.name]
        self.delta.deleted_topics[topic.id] = topic
        self.delta.partitions -= {PartitionKey(topic.id, index) for index in topic.partitions}
        self._owned_topics.discard(topic.id)
        for key in self._configs.get(ConfigKey(TOPIC_RESOURCE, topic.name), {}):
            self.delta.configs.add((TOPIC_RESOURCE, topic.name, key))
        self._own_configs().pop(ConfigKey(TOPIC_RESOURCE, topic.name), None)
        self._entries.pop(ConfigKey(TOPIC_RESOURCE, topic.name), None)

    def _add_partition(self, record: PartitionRecord) -> None:
        self._set_partition(
            PartitionKey(record.topic_id, record.partition_id),
            Partition(
                replicas=tuple(record.replicas),
                isr=tuple(record.isr),
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                removing=tuple(record.removing_replicas),
                adding=tuple(record.adding_replicas),
                recovery_state=record.leader_recovery_state,
                directories=tuple(record.directories),
            ),
        )

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        current = self._topics[record.topic_id].partitions[record.partition_id]
        self._set_partition(PartitionKey(record.topic_id, record.partition_id), current.merge(record))

    def _set_partition(self, key: PartitionKey, partition: Partition) -> None:
        topic = self._topics[key.topic_id]
        before = topic.partitions.get(key.partition)
        if before is not None:
            self.delta.previous.setdefault(key, before)
        self.delta.partitions.add(key)
        if key.topic_id not in self._owned_topics:
            self._owned_topics.add(key.topic_id)
            topic = topic._replace(partitions=dict(topic.partitions))
            self._own_topics()[key.topic_id] = topic
        partitions = topic.partitions
        assert isinstance(partitions, dict)
        partitions[key.partition] = partition

    # -- the rest

    def _set_config(self, record: ConfigRecord) -> None:
        self.delta.configs.add((record.resource_type, record.resource_name, record.name))
        configs = self._own_configs()
        resource = ConfigKey(record.resource_type, record.resource_name)
        entries = self._entries.get(resource)
        if entries is None:
            entries = self._entries[resource] = dict(configs.get(resource, {}))
        if record.value is None:
            entries.pop(record.name, None)
        else:
            entries[record.name] = record.value
        if entries:
            configs[resource] = entries
        else:
            configs.pop(resource, None)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        self.delta.has_features = True
        features = dict(self._features)
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level
        self._features = features

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _set_credential(self, record: UserScramCredentialRecord) -> None:
        self._credentials = {**self._credentials, (record.name, record.mechanism): record}

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        gone = (record.name, record.mechanism)
        self._credentials = {key: value for key, value in self._credentials.items() if key != gone}

    def _nothing(self, record: NoOpRecord) -> None:
        pass

    # -- copy on first write

    def _own_topics(self) -> dict[bytes, Topic]:
        if "topics" not in self._owned:
            self._owned.add("topics")
            self._topics = dict(self._topics)
        assert isinstance(self._topics, dict)
        return self._topics

    def _own_topic_ids(self) -> dict[str, bytes]:
        if "topic_ids" not in self._owned:
            self._owned.add("topic_ids")
            self._topic_ids = dict(self._topic_ids)
        assert isinstance(self._topic_ids, dict)
        return self._topic_ids

    def _own_configs(self) -> dict[ConfigKey, Mapping[str, str]]:
        if "configs" not in self._owned:
            self._owned.add("configs")
            self._configs = dict(self._configs)
        assert isinstance(self._configs, dict)
        return self._configs


_HANDLERS: Final[dict[type, Any]] = {
    RegisterBrokerRecord: ImageEditor._register,
    UnregisterBrokerRecord: ImageEditor._unregister,
    BrokerRegistrationChangeRecord: ImageEditor._change_broker,
    FenceBrokerRecord: ImageEditor._fence,
    UnfenceBrokerRecord: ImageEditor._unfence,
    TopicRecord: ImageEditor._add_topic,
    RemoveTopicRecord: ImageEditor._remove_topic,
    PartitionRecord: ImageEditor._add_partition,
    PartitionChangeRecord: ImageEditor._change_partition,
    ConfigRecord: ImageEditor._set_config,
    FeatureLevelRecord: ImageEditor._set_feature,
    ProducerIdsRecord: ImageEditor._set_producer_ids,
    UserScramCredentialRecord: ImageEditor._set_credential,
    RemoveUserScramCredentialRecord: ImageEditor._remove_credential,
    NoOpRecord: ImageEditor._nothing,
}


def with_records(image: Image, records: Iterable[object]) -> Image:
    """The image after some records appended to it, for decisions that look ahead and for tests."""
    editor = ImageEditor(image)
    editor.apply_all(records, image.offset + 1)
    return editor.image()
