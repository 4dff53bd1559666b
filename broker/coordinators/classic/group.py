"""The state of a classic group, and what can be read from it. Pure: no socket, clock, lock or file.

States
                  first join                     all joined, or timed out
    Empty  ------------------> PreparingRebalance -----------------------> CompletingRebalance
      ^                           ^      |    ^                                    |        |
      |   no member joined        |      |    +------------------------------------+        |
      +---------------------------|------+         join, leave, lost member, no sync        | assignment
                                  |                                                         | stored
                                  +---------------- Stable <--------------------------------+
    any ---> Dead: the coordinator moved.

Theory
A *generation* begins when the join phase completes: its members are those that joined, and one of them is the leader.
The leader's SyncGroup brings the assignment. Once that is written, every SyncGroup is answered and the group is Stable.
Every change of the membership starts a rebalance: parked SyncGroups and heartbeats are answered
REBALANCE_IN_PROGRESS, and JoinGroups are parked until all known members have joined, or the longest rebalance timeout
is over.

Events change the group: `steps.py` lists the step for each event and state, `turn.py` has the phases of a rebalance.

Invariants (asserted by `invariants()`)
1. An Empty group has no members; a Stable one has a leader.
2. Only members can have a SyncGroup pending, and only while the group is neither Empty nor in its join phase.
3. Those of `members.py`.

Threads: owner is the group's shard, under its lock.
Source: Kafka's ClassicGroup (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import subscribed_topics
from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.classic.members import CONSUMER_PROTOCOL_TYPE, Member, Members
from barnabas.protocol.errors import ErrorCode

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({EMPTY, COMPLETING, DEAD}),
    COMPLETING: frozenset({PREPARING, STABLE, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}


class Group:
    """The state of one classic group. Events change it (`steps.step`); `from_log` rebuilds one."""

    TYPE = "classic"  # Kafka's name for groups of this kind

    __slots__ = (
        "generation_id", "group_id", "is_initial_join_extended", "members", "previous_state", "protocol_name",
        "protocol_type", "state", "state_timestamp_ms", "topics",
    )  # fmt: skip

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms: int | None = now_ms  # wall; when the state was entered, None in old records
        self.generation_id = 0
        self.protocol_type: str | None = None  # None: a "simple" group, which only keeps offsets
        self.protocol_name: str | None = None  # the assignor that the members elected
        self.topics: set[str] | None = None  # the subscribed ones; None if they cannot be known
        self.members = Members()
        self.is_initial_join_extended = False  # a member joined during the initial delay

    @classmethod
    def from_log(
        cls,
        group_id: str,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str | None,
        state_timestamp_ms: int | None,
        members: list[Member],
    ) -> Group:
        """Rebuild a group from its last record: Stable, or Empty without members. The members' ids are distinct."""
        group = cls(group_id, 0)
        group.state = STABLE if members else EMPTY
        group.state_timestamp_ms = state_timestamp_ms
        group.generation_id = generation_id
        group.protocol_type = protocol_type or None
        group.protocol_name = protocol_name
        for member in members:
            group.members.add(member)
        if leader_id is not None and leader_id in group.members:
            group.members.leader_id = leader_id
        group.update_topics()
        return group

    # Queries

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose subscriptions the broker can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may consume the topic, so that its offsets must be kept."""
        return topic in self.topics if self.topics is not None else self.uses_consumer_protocol

    @property
    def is_idle(self) -> bool:
        """Whether the group has neither members nor pending members."""
        return self.state is EMPTY and not self.members.pending_join

    def delete_error(self) -> ErrorCode:
        """Return the error for a deletion of the group, or NONE."""
        if self.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_delete_error(self) -> ErrorCode:
        """Return the error for any deletion of the group's offsets, or NONE."""
        if self.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check a member's identity: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one has the instance id."""
        if instance_id is not None:
            current = self.members.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def assignments(self) -> dict[str, bytes]:
        """Return the assignment of each member, by its id."""
        return {member.member_id: member.assignment for member in self.members.by_id.values()}

    def current_generation(self, member: Member, *, lists_members: bool = True) -> ev.JoinResult:
        """Return a member's answer with the current generation; only the leader's lists the members."""
        is_leader = member.member_id == self.members.leader_id
        return ev.JoinResult(
            ErrorCode.NONE, member.member_id, self.generation_id, self.protocol_type, self.protocol_name,
            self.members.leader_id or "", False,
            self.members.joined(self.protocol_name) if is_leader and lists_members else (),
        )  # fmt: skip

    # Changes

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state, which must follow the current one, at wall time `now_ms`."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def update_topics(self) -> None:
        """Compute the subscribed topics again, after a change of the members or the protocol."""
        self.topics = self._compute_topics()

    def _compute_topics(self) -> set[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        if self.members.by_id and self.protocol_name is None:
            return None
        for member in self.members.by_id.values():
            of_member = subscribed_topics(member.metadata(self.protocol_name))
            if of_member is None:
                return None
            topics |= of_member
        return topics

    def invariants(self) -> None:
        """Assert the invariants of the module; for tests, debugging and simulation."""
        members = self.members
        members.invariants()
        assert self.state is not EMPTY or not members.by_id, f"{self.group_id}: inv. 1"
        assert self.state is not STABLE or members.leader_id is not None, f"{self.group_id}: inv. 1"
        assert members.pending_sync <= members.by_id.keys(), f"{self.group_id}: inv. 2"
        assert not members.pending_sync or self.state not in (EMPTY, PREPARING), f"{self.group_id}: inv. 2"
