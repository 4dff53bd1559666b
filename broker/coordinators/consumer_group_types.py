"""The values that consumer groups (KIP-848) are made of: members, assignments, records, timers. Values only.

Rules
1. A `Member` is never changed; the next one replaces it whole.
2. A record says one thing about a group. Records are what a decision consists of, what the log keeps, and the only
   thing that changes a group: `ConsumerGroup.replay` applies them alike, decided just now or read after a failover.

Source: Kafka's ConsumerGroupMember, MemberState, ConsumerGroupState, ConsumerGroup*Key and *Value records (4.3);
KIP-848 (consumer groups), KIP-1251 (assignment epochs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.group_events import Protocols

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NO_TIMESTAMP = 0  # of an assignment whose time is unknown

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]  # topic id -> partitions; no topic without any
Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> the epoch in which it was assigned


class MemberState(Enum):
    """How far a member has come on its way to its target assignment; the value is that of its record."""

    STABLE = 0  # it is there
    UNREVOKED_PARTITIONS = 1  # it has to give up partitions before it may go to the next epoch
    UNRELEASED_PARTITIONS = 2  # it is in the epoch, but partitions of its are still with others
    UNKNOWN = 127  # written by software that knows more states

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state that a record names."""
        return cls(value) if value in _MEMBER_STATES else cls.UNKNOWN


_MEMBER_STATES = frozenset(state.value for state in MemberState)


class GroupState(Enum):
    """Where a group is; the value is Kafka's name for it. It follows from the epochs, nobody sets it."""

    EMPTY = "Empty"  # no members
    ASSIGNING = "Assigning"  # the target assignment is older than the group
    RECONCILING = "Reconciling"  # members are on their way to it
    STABLE = "Stable"  # all have arrived
    DEAD = "Dead"  # gone


@dataclass(slots=True, frozen=True)
class ClassicPart:
    """What is known only of a member that speaks the classic protocol (during a migration)."""

    session_timeout_ms: int
    protocols: Protocols  # its assignors with its subscription, most wanted first


@dataclass(slots=True, frozen=True)
class Member:
    """A member: who it is and what it wants (its metadata record), what it has (its current assignment record)."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""  # "" or None: subscribed by name
    server_assignor: str | None = None
    classic: ClassicPart | None = None
    # What it has
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it joins, syncs and heartbeats as members of classic groups do."""
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether nothing is left to do for it in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it was assigned a partition that it has (or has yet to revoke), None for any other."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def with_metadata_of(self, other: Member) -> Member:
        """Take over who the other one is and what it wants."""
        return replace(
            other, epoch=self.epoch, previous_epoch=self.previous_epoch, state=self.state, assigned=self.assigned,
            pending_revocation=self.pending_revocation,
        )  # fmt: skip

    def with_current_of(self, other: Member) -> Member:
        """Take over what the other one has."""
        return other.with_metadata_of(self)

    def moved_to(self, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned) -> Member:
        """The member after a step of its reconciliation."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned,
            pending_revocation=pending_revocation,
        )  # fmt: skip


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression stood for, at a version of the cluster's metadata."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = NO_TIMESTAMP  # wall


NO_TOPICS = ResolvedRegex(frozenset())

# Records


class GroupEpoch(NamedTuple):
    """The group's epoch (None: the group is gone), and a hash of the topics it is subscribed to."""

    epoch: int | None
    metadata_hash: int = 0


class PartitionMetadata(NamedTuple):
    """Topic metadata, as Kafka 4.0 wrote it; now only removed."""

    exists: bool


class MemberMetadata(NamedTuple):
    """Who a member is and what it wants (None: it is gone)."""

    member_id: str
    member: Member | None


class CurrentAssignment(NamedTuple):
    """What a member has (None: nothing any more)."""

    member_id: str
    member: Member | None


class TargetEpoch(NamedTuple):
    """The epoch of the target assignment (None: there is none) and when it was computed, wall."""

    epoch: int | None
    timestamp_ms: int = NO_TIMESTAMP


class TargetAssignment(NamedTuple):
    """What a member shall have (None: nothing is meant for it any more)."""

    member_id: str
    assignment: Assignment | None


class RegexTopics(NamedTuple):
    """What a regular expression stands for (None: nobody is subscribed to it any more)."""

    regex: str
    resolved: ResolvedRegex | None


Record: TypeAlias = (
    GroupEpoch | PartitionMetadata | MemberMetadata | CurrentAssignment | TargetEpoch | TargetAssignment | RegexTopics
)

# Timers


@dataclass(slots=True, frozen=True)
class MemberExpired:
    """A member was not heard of in time, or not of what it had to do; `why` is for the log."""

    member_id: str
    why: str


@dataclass(slots=True, frozen=True)
class RevocationExpired:
    """A member had this long to revoke partitions in this epoch."""

    member_id: str
    epoch: int
    timeout_ms: int


GroupEvent: TypeAlias = MemberExpired | RevocationExpired


class Timeout(NamedTuple):
    """Start (or with a delay of None stop) one of a member's timers: session, rebalance, join or sync."""

    kind: str
    member_id: str
    delay_ms: int | None = None
    event: GroupEvent | None = None
    only_if_absent: bool = False


# Requests and answers


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat; None: not said, as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after an error: then it wants to be told everything."""
        says_topics = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer; the assignment is None when it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Owned | None = None


def without_epochs(owned: Owned) -> Assignment:
    """Only the partitions."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def with_epochs(assignment: Assignment, epoch: int) -> Owned:
    """The partitions, all assigned in one epoch."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}


def partitions_of(owned: Mapping[bytes, Any]) -> set[tuple[bytes, int]]:
    """Every (topic id, partition) of an assignment."""
    return {(topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions}
