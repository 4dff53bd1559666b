"""The input and output of a classic group's state machine: states, events, answers, effects. Values only.

    event --> step(group, event, now_ms, settings) --> [effect, ...]

Rules
1. An event carries all the data it needs. The state machine never calls an event's `reply`; it returns it in an
   `Answer`.
2. The shard carries the effects out in order (`groups/classic_groups.py`): it starts and stops timers, writes records,
   and delivers answers once its lock is released.
3. A `Persist` comes back, once, as its `done` event: with NONE when the record is committed, else with the error.

Source: Kafka's ClassicGroupState, GroupMetadataManager (4.3); KIP-345 (static members), KIP-394 (member id required),
KIP-429, KIP-559 (protocol in answers), KIP-800 (reasons), KIP-814 (skip_assignment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""
UNKNOWN_GENERATION = -1
NO_REASON = "not provided"
REQUIRES_MEMBER_ID_FROM = 4  # JoinGroup version, KIP-394

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first


class GroupState(Enum):
    """The state of a group; the value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Events


@dataclass(slots=True, frozen=True)
class Join:
    """A JoinGroup. `new_member_id` becomes the id of a member without one; `version` is the request's."""

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    version: int
    reason: str | None
    reply: Completion[JoinResult]


@dataclass(slots=True, frozen=True)
class Sync:
    """A SyncGroup; `assignments` is the leader's, by member id."""

    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    reply: Completion[SyncResult]


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A Heartbeat; the last effect is its answer, an ErrorCode, so it needs no `reply`."""

    member_id: str
    instance_id: str | None
    generation_id: int
    reply: Completion[ErrorCode] | None


@dataclass(slots=True, frozen=True)
class LeavingMember:
    """One of the members that leave; an administrator may name it by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True, frozen=True)
class Leave:
    """A LeaveGroup."""

    members: tuple[LeavingMember, ...]
    reply: Completion[LeaveResult]


@dataclass(slots=True, frozen=True)
class Commit:
    """Asks whether a member may commit offsets; the last effect is its answer, so it needs no `reply`."""

    member_id: str
    instance_id: str | None
    generation_id: int
    reply: Completion[ErrorCode] | None
    is_transactional: bool = False


@dataclass(slots=True, frozen=True)
class SessionExpired:
    """A member sent nothing for its session timeout (a new one: for the join timeout)."""

    member_id: str


@dataclass(slots=True, frozen=True)
class InitialDelayExpired:
    """The initial rebalance delay is over; `remaining_ms` is the rest of the rebalance timeout."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True, frozen=True)
class JoinExpired:
    """The rebalance timeout expired during the join phase."""


@dataclass(slots=True, frozen=True)
class SyncExpired:
    """The rebalance timeout expired during the sync phase of `generation_id`."""

    generation_id: int


@dataclass(slots=True, frozen=True)
class AssignmentStored:
    """The leader's assignment was written, or the write failed."""

    generation_id: int
    member_id: str
    assignments: Mapping[str, bytes]
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, frozen=True)
class StaticMemberStored:
    """The new member id of a static member was written, or the write failed, which restores the old one."""

    instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    version: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, frozen=True)
class EmptyStored:
    """A generation without members was written, or the write failed."""

    generation_id: int
    reply: Completion[JoinResult] | None = None  # the parked join that created the group, answered only on an error
    answer_on_done: Answer | None = None  # held back until the record is committed
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, frozen=True)
class Loaded:
    """The group was loaded from the log; its members' sessions start."""


@dataclass(slots=True, frozen=True)
class Downgraded:
    """The group was a consumer group until now; its members' sessions start."""

    must_rebalance: bool


@dataclass(slots=True, frozen=True)
class Unload:
    """The coordinator moves to another broker."""


Event: TypeAlias = (
    Join | Sync | Heartbeat | Leave | Commit | SessionExpired | InitialDelayExpired | JoinExpired | SyncExpired
    | AssignmentStored | StaticMemberStored | EmptyStored | Loaded | Downgraded | Unload
)  # fmt: skip
StoredEvent: TypeAlias = AssignmentStored | StaticMemberStored | EmptyStored


# Answers


@dataclass(slots=True, frozen=True)
class JoinedMember:
    """A member, as listed for the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinResult:
    """The answer to a JoinGroup, independent of the version."""

    error: ErrorCode
    member_id: str
    generation_id: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(slots=True, frozen=True)
class SyncResult:
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, frozen=True)
class LeftMember:
    """The result for one leaving member."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(slots=True, frozen=True)
class LeaveResult:
    """The answer to a LeaveGroup."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


Result: TypeAlias = JoinResult | SyncResult | LeaveResult | ErrorCode


# Effects


class TimerKey(NamedTuple):
    """The name of one of a group's timers: "join", "sync", "assignment", or "session" with the member's id."""

    kind: str
    member_id: str = ""


JOIN_TIMER = TimerKey("join")
SYNC_TIMER = TimerKey("sync")


@dataclass(slots=True, frozen=True)
class Answer:
    """Deliver `result` to the event's `reply`."""

    reply: Completion[Any] | None  # None: the shard returns the result instead (`ClassicGroups.ask`)
    result: Result


@dataclass(slots=True, frozen=True)
class StartTimer:
    """Feed `event` back after `delay_ms`; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int
    event: Event


@dataclass(slots=True, frozen=True)
class StopTimer:
    """Stop the timer, if it runs."""

    key: TimerKey


@dataclass(slots=True, frozen=True)
class Persist:
    """Write the group with these assignments, and feed `done` back when the write is committed or has failed."""

    done: StoredEvent
    assignments: Mapping[str, bytes] = field(default_factory=dict)


Effect: TypeAlias = Answer | StartTimer | StopTimer | Persist


@dataclass(slots=True, frozen=True)
class GroupSettings:
    """The broker's limits; replaced whole when the configuration changes."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
