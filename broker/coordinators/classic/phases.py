"""The state of a classic group and the two phases of a rebalance; `group.py` handles the events.

The *join phase* (PreparingRebalance) lasts until all known members have joined, or its timeout. A group's first one
lasts the initial rebalance delay, which is extended while members keep joining. The join phase ends with the next
generation: CompletingRebalance, or Empty if no member joined. The *sync phase* then delivers the assignment.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (classic groups) and ClassicGroup (4.3), KIP-134 (initial rebalance delay).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeVar

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import subscribed_topics
from barnabas.broker.coordinators.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Effect,
    GroupSettings,
    GroupState,
)
from barnabas.broker.coordinators.classic.members import CONSUMER_PROTOCOL_TYPE, Member, Members
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.group")

Self = TypeVar("Self", bound="GroupPhases")

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

WAIT_ON_MIN_MS = 1000  # a member may have a rebalance timeout of 0 ms: repeated waits for it must not spin
GENERATION_MAX = 2**31 - 1

TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({EMPTY, COMPLETING, DEAD}),
    COMPLETING: frozenset({PREPARING, STABLE, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}


def next_generation(generation_id: int) -> int:
    """Return the next generation: 1 after the largest one, or after a negative one (from another program's record)."""
    return generation_id + 1 if 0 <= generation_id < GENERATION_MAX else 1


class GroupPhases:
    """A group's state and the phases of its rebalances."""

    TYPE = "classic"  # Kafka's name for groups of this kind

    __slots__ = (
        "_effects", "_now_ms", "_settings", "generation_id", "group_id", "is_initial_join_extended", "members",
        "previous_state", "protocol_name", "protocol_type", "state", "state_timestamp_ms", "topics",
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
        self._now_ms = now_ms
        self._settings = GroupSettings()
        self._effects: list[Effect] = []

    @classmethod
    def from_log(
        cls: type[Self],
        group_id: str,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str | None,
        state_timestamp_ms: int | None,
        members: list[Member],
    ) -> Self:
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
        group.topics = group._compute_topics()
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

    # Steps that the phases share

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _move_to(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = self._now_ms

    def _member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check a member's identity: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one has the instance id."""
        if instance_id is not None:
            current = self.members.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _drop(self, member_id: str, reason: str) -> None:
        """Remove a member (or a pending one), and answer its parked requests."""
        log.info("Member %s of group %s is removed: %s", member_id, self.group_id, reason)
        member = self.members.by_id.get(member_id)
        if member is not None:
            reply = self.members.take_join(member)
            if reply is not None:
                self._do(Answer(reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ev.UNKNOWN_MEMBER_ID)))
            self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member_id)
        self._do(ev.StopTimer(ev.TimerKey("session", member_id)))

    def _start_session(self, member_id: str, timeout_ms: int) -> None:
        self._do(ev.StartTimer(ev.TimerKey("session", member_id), timeout_ms, ev.SessionExpired(member_id)))

    def assignments(self) -> dict[str, bytes]:
        """Return the assignment of each member, by its id."""
        return {member.member_id: member.assignment for member in self.members.by_id.values()}

    # The join phase

    def _rebalance_or_complete(self, reason: str) -> None:
        if PREPARING in TRANSITIONS[self.state]:
            self._prepare_rebalance(reason)
        else:
            self._maybe_complete_join()

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is COMPLETING:
            for member in self.members.by_id.values():
                member.assignment = b""
            self._answer_all_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self.members.pending_sync.clear()
        self._do(ev.StopTimer(SYNC_TIMER))
        is_initial = self.state is EMPTY
        self._move_to(PREPARING)
        log.info(
            "Preparing to rebalance group %s with old generation %d (reason: %s)",
            self.group_id, self.generation_id, reason,
        )  # fmt: skip
        if is_initial:
            self._start_initial_delay()
        elif self.members.all_joined:
            self._complete_join()
        else:
            self._do(ev.StartTimer(JOIN_TIMER, self.members.rebalance_timeout_ms(), ev.JoinExpired()))

    def _start_initial_delay(self) -> None:
        """Wait for more members: the first members of a group rarely start at the same moment (KIP-134)."""
        self.is_initial_join_extended = False
        delay_ms = self._settings.initial_rebalance_delay_ms
        remaining_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
        self._do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.InitialDelayExpired(delay_ms, remaining_ms)))

    def _initial_delay_expired(self, event: ev.InitialDelayExpired) -> None:
        if not self.is_initial_join_extended or event.remaining_ms == 0:
            self._complete_join()
            return
        self.is_initial_join_extended = False
        delay_ms = min(self._settings.initial_rebalance_delay_ms, event.remaining_ms)
        remaining_ms = max(event.remaining_ms - event.delay_ms, 0)
        self._do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.InitialDelayExpired(delay_ms, remaining_ms)))

    def _join_expired(self, event: ev.JoinExpired) -> None:
        self._complete_join()

    def _maybe_complete_join(self) -> None:
        """Complete the join phase if all members have joined; the initial one always lasts its delay."""
        if self.state is PREPARING and self.previous_state is not EMPTY and self.members.all_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        self._do(ev.StopTimer(JOIN_TIMER))
        for member in self.members.not_rejoined_dynamic():
            self._drop(member.member_id, "it did not rejoin in time")
        if self.members.by_id and not self.members.elect_joined_leader():
            # Only static members are left and none has joined: wait until one does, or their sessions expire.
            delay_ms = max(self.members.rebalance_timeout_ms(), WAIT_ON_MIN_MS)
            self._do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.JoinExpired()))
            return
        self.generation_id = next_generation(self.generation_id)
        if self.members.by_id:
            self._begin_generation()
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        self.protocol_name = None
        self.topics = self._compute_topics()
        self._move_to(EMPTY)
        log.info("Group %s with generation %d is now empty", self.group_id, self.generation_id)
        self._do(ev.Persist(ev.EmptyStored(self.generation_id)))

    def _begin_generation(self) -> None:
        self.protocol_name = self.members.select_protocol()
        self.topics = self._compute_topics()
        self._move_to(COMPLETING)
        self.members.pending_sync = set(self.members.by_id)
        log.info(
            "Stabilized group %s generation %d with %d members",
            self.group_id, self.generation_id, len(self.members),
        )  # fmt: skip
        for member in self.members.by_id.values():
            reply = self.members.take_join(member)
            if reply is not None:
                self._do(Answer(reply, self._current_generation(member)))
            self._start_session(member.member_id, member.session_timeout_ms)
            member.is_new = False
        timeout_ms = self.members.rebalance_timeout_ms()
        self._do(ev.StartTimer(SYNC_TIMER, timeout_ms, ev.SyncExpired(self.generation_id)))

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

    def _current_generation(self, member: Member, lists_members: bool = True) -> ev.JoinResult:
        is_leader = member.member_id == self.members.leader_id
        return ev.JoinResult(
            ErrorCode.NONE, member.member_id, self.generation_id, self.protocol_type, self.protocol_name,
            self.members.leader_id or "", False,
            self.members.joined(self.protocol_name) if is_leader and lists_members else (),
        )  # fmt: skip

    # The end of the sync phase

    def _answer_all_syncs(self, error: ErrorCode) -> None:
        for member in self.members.by_id.values():
            if self._answer_sync(member, error):
                # Why: a session that expired while its request was parked was ignored, so it starts again.
                self._start_session(member.member_id, member.session_timeout_ms)

    def _answer_sync(self, member: Member, error: ErrorCode) -> bool:
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is None:
            return False
        if error is ErrorCode.NONE:
            result = ev.SyncResult(error, self.protocol_type, self.protocol_name, member.assignment)
        else:
            result = ev.SyncResult(error)
        self._do(Answer(reply, result))
        return True
