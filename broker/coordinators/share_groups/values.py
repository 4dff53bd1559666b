"""Values of share groups: members, share partitions, records, requests and answers. All are immutable.

Source: Kafka's ShareGroupMember, ShareGroup.ShareGroupStatePartitionMetadataInfo (4.3), KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP, Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class GroupState(Enum):
    """The state of a share group; the value is Kafka's name for it."""

    EMPTY = "Empty"  # no members
    STABLE = "Stable"  # it has members; each gets its assignment with its next heartbeat
    DEAD = "Dead"  # removed


@dataclass(slots=True, frozen=True)
class Member:
    """A member: its identity and subscription (the metadata record), and its current assignment (a record, too)."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    # The current assignment
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)

    def with_metadata_of(self, other: Member) -> Member:
        """Return this member with the identity and subscription of the other one."""
        return replace(other, epoch=self.epoch, previous_epoch=self.previous_epoch, assigned=self.assigned)

    def with_current_of(self, other: Member) -> Member:
        """Return this member with the current assignment of the other one."""
        return other.with_metadata_of(self)


# Share partitions


class TopicPart(NamedTuple):
    """Partitions of a topic."""

    name: str
    partitions: frozenset[int]


TopicParts: TypeAlias = Mapping[bytes, TopicPart]  # by topic id; none without partitions


@dataclass(slots=True, frozen=True)
class SharePartitions:
    """The share partitions of a group, by what the share coordinators know of them.

    A partition that is in both `initializing` and `initialized` is initialised again, from another offset.
    """

    initializing: TopicParts = field(default_factory=dict)
    initialized: TopicParts = field(default_factory=dict)  # the members can be assigned these
    deleting: Mapping[bytes, str] = field(default_factory=dict)  # topic id -> name; their state is being deleted

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.initializing or self.initialized or self.deleting)


NO_PARTITIONS = SharePartitions()

# Records


class GroupEpoch(NamedTuple):
    """The group's epoch (None: the group is removed), and a hash of the subscribed topics' metadata."""

    epoch: int | None
    metadata_hash: int = 0


class MemberMetadata(NamedTuple):
    """A member's identity and subscription (None: the member is removed)."""

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
    assignment: Assignment | None


class StatePartitions(NamedTuple):
    """The group's share partitions (None: removed)."""

    partitions: SharePartitions | None


Record: TypeAlias = GroupEpoch | MemberMetadata | CurrentAssignment | TargetEpoch | TargetAssignment | StatePartitions


def is_tombstone(record: Record) -> bool:
    """Return whether a record only removes something."""
    is_of_group = isinstance(record, GroupEpoch | TargetEpoch | StatePartitions)
    return record[0 if is_of_group else 1] is None


# Requests and answers


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A ShareGroupHeartbeat; None means unchanged."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat; the assignment is None when it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Assignment | None = None
