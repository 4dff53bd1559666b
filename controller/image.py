"""Image: the state of the cluster as the metadata log defines it.

Rules
1. An `Image` never changes, so any thread may keep and read it without a lock. `ImageEditor` (image_editor.py) builds
   the next one.
2. Every field follows from replayed records alone. Heartbeats and connections are not in the log, so they are not here.
3. Values are tuples of immutable values, replaced whole.

Invariants (`Image.invariants` and `Delta.invariants` check them; the controller runs both in Python's development mode)
1. `topic_ids[topics[id].name] == id` for each topic, and `topic_ids` has no other entries.
2. A partition's ISR and its ELR are subsets of its replicas and have no member in common. Its leader is -1 or in the
   ISR. The ISR is empty only if the partition has no leader and eligible leader replicas are or were enabled.
3. `partition_epoch` grows with each change of a partition, `leader_epoch` with each change that names a leader.
4. A config entry names a topic only while that topic exists.

Threads: none; values.

Source: MetadataImage, TopicsImage, ClusterImage, PartitionRegistration.merge (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from barnabas.broker.metadata.features import VERSION_4_3_IV0
from barnabas.controller.forwarded.answers import Answers
from barnabas.protocol.metadata_records import (
    ControllerEndpoint,
    ControllerFeature,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterControllerRecord,
)
from barnabas.security.image import SecurityImage

T = TypeVar("T")

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

RECOVERED: Final = 0
RECOVERING: Final = 1
NO_RECOVERY_CHANGE: Final = -1

# Resource types of configs (ConfigResource.Type).
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

# Directory ids that are not directories (DirectoryId).
MIGRATING_DIRECTORY: Final = bytes(16)
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
RESERVED_DIRECTORIES: Final = frozenset(bytes(15) + bytes([i]) for i in range(100))

METADATA_VERSION: Final = "metadata.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
VERSION_3_7_IV0: Final = 15  # the first version in which controllers register (KIP-919)


class Endpoint(NamedTuple):
    """One advertised listener of a broker; `security_protocol` is Kafka's id (0 = PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


class Broker(NamedTuple):
    """A registered broker. `epoch` is the offset of the record that registered this incarnation."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]  # (name, least level, greatest level)
    rack: str | None
    log_dirs: tuple[bytes, ...]
    is_fenced: bool
    in_controlled_shutdown: bool
    cordoned_log_dirs: tuple[bytes, ...] = ()  # the directories that get no new replicas

    @property
    def takes_replicas(self) -> bool:
        """Whether the broker has a log directory for new replicas (KIP-1066)."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs)

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and join ISRs."""
        return not self.is_fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: bytes) -> bool:
        """Return whether a replica in this directory can be served; an unassigned directory counts as online."""
        if directory in self.log_dirs or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and not self.log_dirs


class Controller(NamedTuple):
    """A registered controller: a process that may become active."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]  # (name, least level, greatest level)

    def to_record(self) -> RegisterControllerRecord:
        """Return the record that registers it."""
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            end_points=[
                ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self.endpoints
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in self.features
            ],
        )


class Partition(NamedTuple):
    """The state of a partition. `replicas` are in order of preference; `directories` correspond to them.

    `elr`: eligible leader replicas, which have every acknowledged record though they are not in the ISR (KIP-966).
    `last_known_elr`: the last leader, while there is none.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovery_state: int = RECOVERED
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """The first replica of the assignment; NO_LEADER if there are none."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.removing or self.adding)

    def directory(self, broker_id: int) -> bytes:
        """Return the log directory of a replica; UNASSIGNED_DIRECTORY if it is unknown."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY

    def merge(self, change: PartitionChangeRecord) -> Partition:
        """Return the partition after a change; the leader epoch grows only if the record names a leader (inv. 3)."""
        names_leader = change.leader != NO_LEADER_CHANGE
        changes_recovery = change.leader_recovery_state != NO_RECOVERY_CHANGE
        return Partition(
            replicas=_changed(change.replicas, self.replicas),
            isr=_changed(change.isr, self.isr),
            leader=change.leader if names_leader else self.leader,
            leader_epoch=self.leader_epoch + (1 if names_leader else 0),
            partition_epoch=self.partition_epoch + 1,
            removing=_changed(change.removing_replicas, self.removing),
            adding=_changed(change.adding_replicas, self.adding),
            recovery_state=change.leader_recovery_state if changes_recovery else self.recovery_state,
            directories=_changed(change.directories, self.directories),
            elr=_changed(change.eligible_leader_replicas, self.elr),
            last_known_elr=_changed(change.last_known_elr, self.last_known_elr),
        )

    def to_record(self, topic_id: bytes, index: int) -> PartitionRecord:
        """Return the record that creates a partition in this state."""
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
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )


def _changed(value: list[T] | None, current: tuple[T, ...]) -> tuple[T, ...]:
    return current if value is None else tuple(value)


class Topic(NamedTuple):
    """A topic and its partitions by index."""

    name: str
    id: bytes
    partitions: Mapping[int, Partition]


class PartitionKey(NamedTuple):
    """A partition, named by its topic's id: a topic that is deleted and created again gets another id."""

    topic_id: bytes
    partition: int


class ConfigKey(NamedTuple):
    """A resource that has configs; a broker resource with an empty name holds the defaults of all brokers."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class Image:
    """The cluster after the record at `offset`, inclusive (-1: an empty log)."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    topics: Mapping[bytes, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    security: SecurityImage = field(default_factory=SecurityImage)
    answers: Answers = field(default_factory=Answers)
    offset: int = -1

    def topic(self, name: str) -> Topic | None:
        """Return the topic of this name, or None if it does not exist."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, key: PartitionKey) -> Partition | None:
        """Return the partition's state, or None if it does not exist."""
        topic = self.topics.get(key.topic_id)
        return None if topic is None else topic.partitions.get(key.partition)

    @property
    def can_register_controllers(self) -> bool:
        """Whether the log may hold registrations of controllers."""
        return self.features.get(METADATA_VERSION, 0) >= VERSION_3_7_IV0

    @property
    def can_cordon(self) -> bool:
        """Whether the log may hold cordoned log directories."""
        return self.features.get(METADATA_VERSION, 0) >= VERSION_4_3_IV0

    @property
    def has_elr(self) -> bool:
        """Whether the controller keeps eligible leader replicas."""
        return self.features.get(ELR_VERSION, 0) > 0

    def is_active(self, broker_id: int) -> bool:
        """Return whether the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the broker is registered and unfenced; clients see such brokers only."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the dynamic configs of a resource; empty if it has none."""
        return self.configs.get(ConfigKey(resource_type, name), {})

    def each_partition(self) -> Iterator[tuple[Topic, int, Partition]]:
        """Yield every partition of every topic, with its topic and index."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def has_leaderships(self, broker_id: int) -> bool:
        """Return whether the broker leads any partition."""
        return any(partition.leader == broker_id for _, _, partition in self.each_partition())

    def invariants(self) -> None:
        """Assert invariants 1, 2 and 4 of the module; O(partitions)."""
        assert {t.name: t.id for t in self.topics.values()} == dict(self.topic_ids), "inv. 1"
        assert len(self.topics) == len(self.topic_ids), "inv. 1"
        for topic, index, p in self.each_partition():
            where = f"inv. 2: {topic.name}-{index} {p}"
            assert p.isr or p.leader == NO_LEADER, where
            assert len({*p.isr, *p.elr}) == len(p.isr) + len(p.elr), where
            assert {*p.isr, *p.elr} <= set(p.replicas), where
            assert p.leader == NO_LEADER or p.leader in p.isr, where
        for key in self.configs:
            assert key.type != TOPIC_RESOURCE or key.name in self.topic_ids, "inv. 4"
