"""What goes into a group's state machine and what comes out: states, events, answers, effects. Values only.

    event --> Group.step(event, now_ms) --> [effect, ...]

Rules
1. An event carries all it needs; a `reply` in it is a token that the core hands back in an `Answer` and never looks at.
2. Effects are carried out in order, by the shell that holds the shard's lock (`shard.py`): timers are (re)started or
   stopped, records written, answers given once the lock is released.
3. A `Persist` comes back, once, as its `done` event: with NONE when the record is committed, else with the error.

Source: Kafka's ClassicGroupState, GroupMetadataManager (4.3); KIP-345 (static members), KIP-394 (member id required),
KIP-429, KIP-559 (protocol in answers), KIP-800 (reasons), KIP-814 (skip_assignment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from barnabas.protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""
UNKNOWN_GENERATION = -1
NO_REASON = "not provided"

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # (name, metadata), most wanted first


class GroupState(Enum):
    """Where a group is; the value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Events


@dataclass(slots=True, frozen=True)
class Join:
    """A JoinGroup. `new_member_id` is used if the group must name the member; `version` is the request's."""

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
    reply: Any


@dataclass(slots=True, frozen=True)
class Sync:
    """A SyncGroup; `assignments` is the leader's, by member id."""

    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    reply: Any


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A Heartbeat; answered with an ErrorCode."""

    member_id: str
    instance_id: str | None
    generation_id: int
    reply: Any


@dataclass(slots=True, frozen=True)
class LeavingMember:
    """One of those who leave; without a member id it is the instance id that says who (an administrator's request)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True, frozen=True)
class Leave:
    """A LeaveGroup; answered with a LeaveResult."""

    members: tuple[LeavingMember, ...]
    reply: Any


@dataclass(slots=True, frozen=True)
class Commit:
    """The question whether this member may commit offsets; answered with an ErrorCode."""

    member_id: str
    instance_id: str | None
    generation_id: int
    reply: Any
    is_transactional: bool = False


@dataclass(slots=True, frozen=True)
class SessionExpired:
    """A member was not heard of for its session timeout (a new one: for the join timeout)."""

    member_id: str


@dataclass(slots=True, frozen=True)
class InitialDelayExpired:
    """The initial rebalance delay is over; `remaining_ms` is what the rebalance timeout still allows."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True, frozen=True)
class JoinExpired:
    """The rebalance timeout ran out while members were expected to join."""


@dataclass(slots=True, frozen=True)
class SyncExpired:
    """The rebalance timeout ran out while members of `generation_id` were expected to sync."""

    generation_id: int


@dataclass(slots=True, frozen=True)
class AssignmentStored:
    """The leader's assignment was written (or not)."""

    generation_id: int
    member_id: str
    assignments: Mapping[str, bytes]
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, frozen=True)
class StaticMemberStored:
    """The new member id of a static member was written (or not: then the old one comes back)."""

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
    """A generation without members was written (or not)."""

    generation_id: int
    reply: Any = None  # the parked join of a group just created, answered only in case of an error
    answer_on_done: Answer | None = None  # held back until the record is committed
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, frozen=True)
class Loaded:
    """The group was read from the log; its members' sessions begin."""


@dataclass(slots=True, frozen=True)
class TakenOver:
    """The group was a consumer group until now (a downgrade); its members' sessions begin."""

    must_rebalance: bool


@dataclass(slots=True, frozen=True)
class Unload:
    """The coordinator moves elsewhere."""


Event: TypeAlias = (
    Join | Sync | Heartbeat | Leave | Commit | SessionExpired | InitialDelayExpired | JoinExpired | SyncExpired
    | AssignmentStored | StaticMemberStored | EmptyStored | Loaded | TakenOver | Unload
)  # fmt: skip
StoredEvent: TypeAlias = AssignmentStored | StaticMemberStored | EmptyStored


# Answers


@dataclass(slots=True, frozen=True)
class JoinedMember:
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinResult:
    """The answer to a JoinGroup, before version quirks."""

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
    """What became of one who left."""

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
    """Names one of a group's timers: "join", "sync", or "session" with the member's id."""

    kind: str
    member_id: str = ""


JOIN_TIMER = TimerKey("join")
SYNC_TIMER = TimerKey("sync")


@dataclass(slots=True, frozen=True)
class Answer:
    """Give `result` to whoever sent the event with this `reply`."""

    reply: Any
    result: Result


@dataclass(slots=True, frozen=True)
class StartTimer:
    """Feed `event` back in `delay_ms`; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int
    event: Event


@dataclass(slots=True, frozen=True)
class StopTimer:
    """Forget the timer, if it runs."""

    key: TimerKey


@dataclass(slots=True, frozen=True)
class Persist:
    """Write the group as it is now, with these assignments, and feed `done` back when that is settled."""

    done: StoredEvent
    assignments: Mapping[str, bytes] = field(default_factory=dict)


Effect: TypeAlias = Answer | StartTimer | StopTimer | Persist


@dataclass(slots=True, frozen=True)
class GroupSettings:
    """The broker's limits; may be replaced while groups run (dynamic configuration)."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
