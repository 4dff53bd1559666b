"""One event of a classic group: the phases of a rebalance, and the effects that they collect. Pure.

The *join phase* (PreparingRebalance) lasts until all known members have joined, or its timeout. A group's first one
lasts the initial rebalance delay, which is extended while members keep joining. The join phase ends with the next
generation: CompletingRebalance, or Empty if no member joined. The *sync phase* then delivers the assignment.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (classic groups, 4.3), KIP-134 (initial rebalance delay).
"""

from __future__ import annotations

import logging

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import JOIN_TIMER, SYNC_TIMER, Answer, Effect, GroupSettings
from barnabas.broker.coordinators.classic.group import COMPLETING, EMPTY, PREPARING, TRANSITIONS, Group
from barnabas.broker.coordinators.classic.members import Member
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.group")

WAIT_ON_MIN_MS = 1000  # a member may have a rebalance timeout of 0 ms: repeated waits for it must not spin
GENERATION_MAX = 2**31 - 1


def next_generation(generation_id: int) -> int:
    """Return the next generation: 1 after the largest one, or after a negative one (from another program's record)."""
    return generation_id + 1 if 0 <= generation_id < GENERATION_MAX else 1


class Turn:
    """What one event reads and collects, and the steps that events share."""

    __slots__ = ("effects", "group", "now_ms", "settings")

    def __init__(self, group: Group, now_ms: int, settings: GroupSettings) -> None:
        self.group = group
        self.now_ms = now_ms  # wall
        self.settings = settings
        self.effects: list[Effect] = []  # in the order in which they are carried out

    def do(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def drop(self, member_id: str, reason: str) -> None:
        """Remove a member (or a pending one), and answer its parked requests."""
        group, members = self.group, self.group.members
        log.info("Member %s of group %s is removed: %s", member_id, group.group_id, reason)
        member = members.by_id.get(member_id)
        if member is not None:
            reply = members.take_join(member)
            if reply is not None:
                self.do(Answer(reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ev.UNKNOWN_MEMBER_ID)))
            self.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        members.remove(member_id)
        self.do(ev.StopTimer(ev.TimerKey("session", member_id)))

    def start_session(self, member_id: str, timeout_ms: int) -> None:
        """Start the session of a member (or a pending one) again."""
        self.do(ev.StartTimer(ev.TimerKey("session", member_id), timeout_ms, ev.SessionExpired(member_id)))

    # The join phase

    def rebalance_or_complete(self, reason: str) -> None:
        """Start a rebalance; if one is in its join phase, complete that phase as soon as it may."""
        if PREPARING in TRANSITIONS[self.group.state]:
            self.prepare_rebalance(reason)
        else:
            self.maybe_complete_join()

    def prepare_rebalance(self, reason: str) -> None:
        """Start a rebalance: begin the join phase."""
        group, members = self.group, self.group.members
        if group.state is COMPLETING:
            for member in members.by_id.values():
                member.assignment = b""
            self.answer_all_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        members.pending_sync.clear()
        self.do(ev.StopTimer(SYNC_TIMER))
        is_initial = group.state is EMPTY
        group.move_to(PREPARING, self.now_ms)
        log.info(
            "Preparing to rebalance group %s with old generation %d (reason: %s)",
            group.group_id, group.generation_id, reason,
        )  # fmt: skip
        if is_initial:
            self._start_initial_delay()
        elif members.all_joined:
            self.complete_join()
        else:
            self.do(ev.StartTimer(JOIN_TIMER, members.rebalance_timeout_ms(), ev.JoinExpired()))

    def _start_initial_delay(self) -> None:
        """Wait for more members: the first members of a group rarely start at the same moment (KIP-134)."""
        group = self.group
        group.is_initial_join_extended = False
        delay_ms = self.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.members.rebalance_timeout_ms() - delay_ms, 0)
        self.do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.InitialDelayExpired(delay_ms, remaining_ms)))

    def maybe_complete_join(self) -> None:
        """Complete the join phase if all members have joined; the initial one always lasts its delay."""
        group = self.group
        if group.state is PREPARING and group.previous_state is not EMPTY and group.members.all_joined:
            self.complete_join()

    def complete_join(self) -> None:
        """End the join phase, with the next generation of the members that have joined."""
        group, members = self.group, self.group.members
        self.do(ev.StopTimer(JOIN_TIMER))
        for member in members.not_rejoined_dynamic():
            self.drop(member.member_id, "it did not rejoin in time")
        if members.by_id and not members.elect_joined_leader():
            # Only static members are left and none has joined: wait until one does, or their sessions expire.
            delay_ms = max(members.rebalance_timeout_ms(), WAIT_ON_MIN_MS)
            self.do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.JoinExpired()))
            return
        group.generation_id = next_generation(group.generation_id)
        if members.by_id:
            self._begin_generation()
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        group = self.group
        group.protocol_name = None
        group.update_topics()
        group.move_to(EMPTY, self.now_ms)
        log.info("Group %s with generation %d is now empty", group.group_id, group.generation_id)
        self.do(ev.Persist(ev.EmptyStored(group.generation_id)))

    def _begin_generation(self) -> None:
        group = self.group
        group.protocol_name = group.members.select_protocol()
        group.update_topics()
        group.move_to(COMPLETING, self.now_ms)
        group.members.pending_sync = set(group.members.by_id)
        log.info(
            "Stabilized group %s generation %d with %d members",
            group.group_id, group.generation_id, len(group.members),
        )  # fmt: skip
        for member in group.members.by_id.values():
            reply = group.members.take_join(member)
            if reply is not None:
                self.do(Answer(reply, group.current_generation(member)))
            self.start_session(member.member_id, member.session_timeout_ms)
            member.is_new = False
        timeout_ms = group.members.rebalance_timeout_ms()
        self.do(ev.StartTimer(SYNC_TIMER, timeout_ms, ev.SyncExpired(group.generation_id)))

    # The end of the sync phase

    def answer_all_syncs(self, error: ErrorCode) -> None:
        """Answer all parked SyncGroups."""
        for member in self.group.members.by_id.values():
            if self.answer_sync(member, error):
                # Why: a session that expired while its request was parked was ignored, so it starts again.
                self.start_session(member.member_id, member.session_timeout_ms)

    def answer_sync(self, member: Member, error: ErrorCode) -> bool:
        """Answer the member's parked SyncGroup; False if there is none."""
        group = self.group
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is None:
            return False
        if error is ErrorCode.NONE:
            result = ev.SyncResult(error, group.protocol_type, group.protocol_name, member.assignment)
        else:
            result = ev.SyncResult(error)
        self.do(Answer(reply, result))
        return True
