"""Values of streams groups (KIP-1071): tasks, members, topologies, records, requests. All are immutable.

Theory
    subtopology  a connected part of an application's topology, named by the application
    task         a subtopology with one partition number: it reads that partition of each of the subtopology's sources
    active       the task processes records; a task has at most one active owner
    standby      the task only keeps a copy of the state
    warm-up      as standby, but it is to become active (Kafka 4.3 assigns none)

Source: Kafka's StreamsGroupMember, TasksTuple, TasksTupleWithEpochs, MemberState, StreamsTopology,
StreamsGroup.StreamsGroupState, StreamsGroup*Key and *Value records (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NO_TOPOLOGY_EPOCH = -1

Partitions: TypeAlias = Mapping[str, frozenset[int]]  # by subtopology id; no subtopology without any
Epochs: TypeAlias = Mapping[str, Mapping[int, int]]  # subtopology id -> partition -> the epoch of its assignment


def partitions_of(tasks: Iterable[tuple[str, Sequence[int]]]) -> Partitions:
    """Return partitions by subtopology; an id may be there many times, in a request or a record."""
    found: dict[str, set[int]] = {}
    for id_, partitions in tasks:
        if partitions:
            found.setdefault(id_, set()).update(partitions)
    return {id_: frozenset(partitions) for id_, partitions in found.items()}


class TaskId(NamedTuple):
    """A task of a subtopology."""

    subtopology_id: str
    partition: int


@dataclass(slots=True, frozen=True)
class Tasks:
    """Tasks by role: a target assignment, or the tasks that a member reports."""

    active: Partitions = field(default_factory=dict)
    standby: Partitions = field(default_factory=dict)
    warmup: Partitions = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, other: OwnedTasks) -> bool:
        """Return whether a task is in both, in the same role."""
        return (
            any(not other.active.get(id_, {}).keys().isdisjoint(found) for id_, found in self.active.items())
            or any(not other.standby.get(id_, NO_PARTITION).isdisjoint(found) for id_, found in self.standby.items())
            or any(not other.warmup.get(id_, NO_PARTITION).isdisjoint(found) for id_, found in self.warmup.items())
        )


@dataclass(slots=True, frozen=True)
class OwnedTasks:
    """Tasks that a member has, or has yet to revoke. Active ones have the epoch in which they were assigned."""

    active: Epochs = field(default_factory=dict)
    standby: Partitions = field(default_factory=dict)
    warmup: Partitions = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)

    def without_epochs(self) -> Tasks:
        """Return the tasks alone."""
        return Tasks({id_: frozenset(found) for id_, found in self.active.items()}, self.standby, self.warmup)


NO_PARTITION: frozenset[int] = frozenset()
NO_TASKS = Tasks()
NOTHING_OWNED = OwnedTasks()


class MemberState(Enum):
    """A member's progress towards its target assignment; the value is the code in its record."""

    STABLE = 1  # it has its target assignment
    UNREVOKED_TASKS = 2  # it must revoke tasks before it may enter the next epoch
    UNRELEASED_TASKS = 3  # it is in the epoch, but other members or its own process still have some of its tasks
    UNKNOWN = 127  # written by newer software

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Return the state for a code in a record."""
        return cls(value) if value in _MEMBER_STATES else cls.UNKNOWN


_MEMBER_STATES = frozenset(state.value for state in MemberState)


class GroupState(Enum):
    """The state of a group, which follows from its epochs; the value is Kafka's name for it."""

    EMPTY = "Empty"  # no members
    NOT_READY = "NotReady"  # no topology, or it is not validated against the topics that exist
    ASSIGNING = "Assigning"  # the assignment epoch is behind the group epoch
    RECONCILING = "Reconciling"  # members are moving to the target assignment
    STABLE = "Stable"  # every member has its target assignment
    DEAD = "Dead"  # removed


class Endpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(slots=True, frozen=True)
class Member:
    """A member: its identity (the metadata record), and its current assignment (a record, too)."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    # The current assignment
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: OwnedTasks = NOTHING_OWNED
    pending_revocation: OwnedTasks = NOTHING_OWNED

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has its whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, task: TaskId) -> int | None:
        """Return the epoch of an active task's assignment; None if the member neither has it nor is to revoke it."""
        for tasks in (self.assigned, self.pending_revocation):
            epoch = tasks.active.get(task.subtopology_id, {}).get(task.partition)
            if epoch is not None:
                return epoch
        return None

    def with_metadata_of(self, other: Member) -> Member:
        """Return this member with the identity of the other one."""
        return replace(
            other, epoch=self.epoch, previous_epoch=self.previous_epoch, state=self.state, assigned=self.assigned,
            pending_revocation=self.pending_revocation,
        )  # fmt: skip

    def with_current_of(self, other: Member) -> Member:
        """Return this member with the current assignment of the other one."""
        return other.with_metadata_of(self)

    def moved_to(self, epoch: int, state: MemberState, assigned: OwnedTasks, pending: OwnedTasks) -> Member:
        """Return the member after a reconciliation step."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )


# The topology


@dataclass(slots=True, frozen=True)
class InternalTopic:
    """A repartition or changelog topic as the application describes it."""

    name: str
    partitions: int = 0  # 0: to be decided from the topics that exist
    replication_factor: int = 0  # 0: the cluster's default
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, frozen=True)
class CopartitionGroup:
    """Topics that must have equally many partitions, as indexes into the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class Subtopology:
    """A subtopology as the application describes it."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regexes: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def all_sources(self) -> tuple[str, ...]:
        """The topics that it reads: source topics and repartition topics."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))


@dataclass(slots=True, frozen=True)
class Topology:
    """The topology that the application sends when it joins. Its epoch rises when the application changes it."""

    epoch: int
    subtopologies: Mapping[str, Subtopology] = field(default_factory=dict)  # by id

    def required_topics(self) -> frozenset[str]:
        """Return the topics that it reads and those that keep its state."""
        return frozenset(
            name
            for subtopology in self.subtopologies.values()
            for name in (*subtopology.all_sources, *(topic.name for topic in subtopology.changelogs))
        )

    def readers(self) -> dict[str, str]:
        """Return the id of the subtopology that reads each source and repartition topic."""
        return {name: id_ for id_, subtopology in self.subtopologies.items() for name in subtopology.all_sources}


# Records


class GroupEpoch(NamedTuple):
    """The group's epoch (None: the group is removed), and what the last assignment was made from."""

    epoch: int | None
    metadata_hash: int = 0  # of the topics that the topology requires
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH  # the epoch of the topology that fits the topics that exist
    assignment_configs: Mapping[str, str] = {}


class MemberMetadata(NamedTuple):
    """A member's identity (None: the member is removed)."""

    member_id: str
    member: Member | None


class CurrentAssignment(NamedTuple):
    """A member's current assignment (None: removed)."""

    member_id: str
    member: Member | None


class TargetEpoch(NamedTuple):
    """The epoch of the target assignment (None: there is none), and the wall time at which it was computed."""

    epoch: int | None
    timestamp_ms: int = NO_TIMESTAMP


class TargetAssignment(NamedTuple):
    """A member's target assignment (None: removed)."""

    member_id: str
    tasks: Tasks | None


class GroupTopology(NamedTuple):
    """The group's topology (None: removed)."""

    topology: Topology | None


Record: TypeAlias = GroupEpoch | MemberMetadata | CurrentAssignment | TargetEpoch | TargetAssignment | GroupTopology


def is_tombstone(record: Record) -> bool:
    """Return whether a record only removes something."""
    is_of_group = isinstance(record, GroupEpoch | TargetEpoch | GroupTopology)
    return record[0 if is_of_group else 1] is None


# Timers


@dataclass(slots=True, frozen=True)
class AssignmentDue:
    """The initial rebalance delay of a group is over: its first members get their tasks."""


# Requests and answers


class StatusCode(IntEnum):
    """A fact about its group that a member gets besides its tasks."""

    STALE_TOPOLOGY = 0  # the group's topology is newer than the member's
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4  # a member asked that all of them stop
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A status with its explanation."""

    code: StatusCode
    detail: str


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A StreamsGroupHeartbeat; None means unchanged."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None  # the tasks that the member has; None: not reported
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    endpoint_epoch: int = 0  # of the endpoints that the member knows
    shuts_down: bool = False  # the member asks that the whole application stops
    client_id: str = ""
    client_host: str = ""


class EndpointPartitions(NamedTuple):
    """The partitions behind a member's endpoint, by topic: of its active tasks, and of its standby tasks."""

    endpoint: Endpoint
    active: Mapping[str, Sequence[int]]
    standby: Mapping[str, Sequence[int]]


@dataclass(slots=True, frozen=True)
class HeartbeatResult:
    """The answer to a heartbeat; tasks and endpoints are None when they have not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    tasks: Tasks | None = None
    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    missing: Sequence[InternalTopic] = ()  # internal topics to create, with their partition counts
