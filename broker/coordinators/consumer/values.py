"""The values of consumer groups (KIP-848): members, assignments, records, timers. Values only.

Rules
1. A `Member` is immutable; a change replaces it whole.
2. A record states one fact about a group. A decision produces records, the log keeps them, and only they change a
   group. `ConsumerGroup.replay` applies a new record exactly like one that is read after a failover.

Source: Kafka's ConsumerGroupMember, MemberState, ConsumerGroupState, ConsumerGroup*Key and *Value records (4.3);
KIP-848 (consumer groups), KIP-1251 (assignment epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.classic.events import Protocols

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NO_TIMESTAMP = 0  # of an assignment whose time is unknown

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]  # topic id -> partitions; no topic without any
Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> the epoch in which it was assigned


class MemberState(Enum):
    """A member's progress towards its target assignment; the value is the code in its record."""

    STABLE = 0  # it has its target assignment
    UNREVOKED_PARTITIONS = 1  # it must revoke partitions before it may enter the next epoch
    UNRELEASED_PARTITIONS = 2  # it is in the epoch, but other members still own some of its partitions
    UNKNOWN = 127  # written by newer software

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Return the state for a code in a record."""
        return cls(value) if value in _MEMBER_STATES else cls.UNKNOWN


_MEMBER_STATES = frozenset(state.value for state in MemberState)


class GroupState(Enum):
    """The state of a group, which follows from its epochs; the value is Kafka's name for it."""

    EMPTY = "Empty"  # no members
    ASSIGNING = "Assigning"  # the assignment epoch is behind the group epoch
    RECONCILING = "Reconciling"  # members are moving to the target assignment
    STABLE = "Stable"  # every member has its target assignment
    DEAD = "Dead"  # removed


@dataclass(slots=True, frozen=True)
class ClassicPart:
    """The extra data of a member that speaks the classic protocol (during a migration)."""

    session_timeout_ms: int
    protocols: Protocols  # its assignors with its subscription, the preferred one first


@dataclass(slots=True, frozen=True)
class Member:
    """A member: its identity and subscription (the metadata record), and its current assignment (a record, too)."""

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
    # The current assignment
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it sends JoinGroup, SyncGroup and Heartbeat, as members of classic groups do."""
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has its whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch of a partition's assignment; None if the member neither owns it nor has yet to revoke it."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def with_metadata_of(self, other: Member) -> Member:
        """Return this member with the identity and subscription of the other one."""
        return replace(
            other, epoch=self.epoch, previous_epoch=self.previous_epoch, state=self.state, assigned=self.assigned,
            pending_revocation=self.pending_revocation,
        )  # fmt: skip

    def with_current_of(self, other: Member) -> Member:
        """Return this member with the current assignment of the other one."""
        return other.with_metadata_of(self)

    def moved_to(self, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned) -> Member:
        """Return the member after a reconciliation step."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned,
            pending_revocation=pending_revocation,
        )  # fmt: skip


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, at a version of the cluster's metadata."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = NO_TIMESTAMP  # wall


NO_TOPICS = ResolvedRegex(frozenset())

# Records


class GroupEpoch(NamedTuple):
    """The group's epoch (None: the group is removed), and a hash of the subscribed topics' metadata."""

    epoch: int | None
    metadata_hash: int = 0


class PartitionMetadata(NamedTuple):
    """Topic metadata as Kafka 4.0 wrote it; it is only removed now."""

    exists: bool


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


class RegexTopics(NamedTuple):
    """The topics of a regular expression (None: no member is subscribed to it any more)."""

    regex: str
    resolved: ResolvedRegex | None


Record: TypeAlias = (
    GroupEpoch | PartitionMetadata | MemberMetadata | CurrentAssignment | TargetEpoch | TargetAssignment | RegexTopics
)

# Timers


@dataclass(slots=True, frozen=True)
class MemberExpired:
    """A member's session expired, or it did not join or sync in time; `reason` is for the log."""

    member_id: str
    reason: str


@dataclass(slots=True, frozen=True)
class RevocationExpired:
    """A member did not revoke its partitions of this epoch within the timeout."""

    member_id: str
    epoch: int
    timeout_ms: int


GroupEvent: TypeAlias = MemberExpired | RevocationExpired


class Timeout(NamedTuple):
    """Starts one of a member's timers (session, rebalance, join or sync), or stops it if the delay is None."""

    kind: str
    member_id: str
    delay_ms: int | None = None
    event: GroupEvent | None = None
    only_if_absent: bool = False


# Requests and answers


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat; None means unchanged."""

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
    can_describe: Callable[[str], bool] | None = None  # which topics a regular expression may match; None: all

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as after an error; such a member needs its full assignment in the answer."""
        has_topics = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and has_topics and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat; the assignment is None when it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Owned | None = None


def without_epochs(owned: Owned) -> Assignment:
    """Return the partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def with_epochs(assignment: Assignment, epoch: int) -> Owned:
    """Return the partitions, each assigned in this epoch."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}


def partitions_of(owned: Mapping[bytes, Any]) -> set[tuple[bytes, int]]:
    """Return every (topic id, partition) of an assignment."""
    return {(topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions}
