"""A classic group as a pure state machine: an event in, the new state and effects out. No socket, clock, lock or file.

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

Rules
1. STEPS lists the step for each event and state, REJOINS that of a member that joins again. Every cell is filled.
2. Only `_move_to` changes the state, along TRANSITIONS (`phases.py`, with the phases of a rebalance).
3. A dynamic member that does not rejoin in time is dropped; a static one stays until its session expires (KIP-345).
4. The group never calls a `reply`. Each parked one is answered exactly once, by an `Answer`.

Invariants (asserted by `invariants()`)
1. An Empty group has no members; a Stable one has a leader.
2. Only members can have a SyncGroup pending, and only while the group is neither Empty nor in its join phase.
3. Those of `members.py`.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (classic groups) and ClassicGroup (4.3).
Different from Apache Kafka: a parked request that its own member supersedes is answered REBALANCE_IN_PROGRESS; Kafka
drops it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import SYNC_TIMER, Answer, Effect, GroupSettings, GroupState
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.coordinators.classic.phases import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, GroupPhases
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.group")

REQUIRES_MEMBER_ID_FROM = 4  # JoinGroup version, KIP-394
SKIPS_ASSIGNMENT_FROM = 9  # JoinGroup version, KIP-814

# fmt: off
STEPS: Mapping[type[Any], Mapping[GroupState, str]] = {
    ev.Join:                {EMPTY: "join", PREPARING: "join", COMPLETING: "join", STABLE: "join",
                             DEAD: "join_dead"},
    ev.Sync:                {EMPTY: "sync_unknown", PREPARING: "sync", COMPLETING: "sync", STABLE: "sync",
                             DEAD: "sync_dead"},
    ev.Heartbeat:           {EMPTY: "answer_unknown", PREPARING: "heartbeat", COMPLETING: "heartbeat",
                             STABLE: "heartbeat", DEAD: "answer_dead"},
    ev.Leave:               {EMPTY: "leave", PREPARING: "leave", COMPLETING: "leave", STABLE: "leave",
                             DEAD: "leave_dead"},
    ev.Commit:              {EMPTY: "commit_empty", PREPARING: "commit", COMPLETING: "commit", STABLE: "commit",
                             DEAD: "answer_dead"},
    ev.SessionExpired:      {EMPTY: "session_expired", PREPARING: "session_expired", COMPLETING: "session_expired",
                             STABLE: "session_expired", DEAD: "ignore"},
    ev.InitialDelayExpired: {EMPTY: "ignore", PREPARING: "initial_delay_expired", COMPLETING: "ignore",
                             STABLE: "ignore", DEAD: "ignore"},
    ev.JoinExpired:         {EMPTY: "ignore", PREPARING: "join_expired", COMPLETING: "ignore", STABLE: "ignore",
                             DEAD: "ignore"},
    ev.SyncExpired:         {EMPTY: "ignore", PREPARING: "ignore", COMPLETING: "sync_expired", STABLE: "sync_expired",
                             DEAD: "ignore"},
    ev.AssignmentStored:    {EMPTY: "ignore", PREPARING: "ignore", COMPLETING: "assignment_stored", STABLE: "ignore",
                             DEAD: "ignore"},
    ev.StaticMemberStored:  {EMPTY: "ignore", PREPARING: "static_member_stored", COMPLETING: "static_member_stored",
                             STABLE: "static_member_stored", DEAD: "ignore"},
    ev.EmptyStored:         {EMPTY: "empty_stored", PREPARING: "empty_stored", COMPLETING: "empty_stored",
                             STABLE: "empty_stored", DEAD: "empty_stored"},
    ev.Loaded:              {EMPTY: "ignore", PREPARING: "ignore", COMPLETING: "ignore", STABLE: "loaded",
                             DEAD: "ignore"},
    ev.Downgraded:           {EMPTY: "ignore", PREPARING: "ignore", COMPLETING: "ignore", STABLE: "downgraded",
                             DEAD: "ignore"},
    ev.Unload:              {EMPTY: "unload", PREPARING: "unload", COMPLETING: "unload", STABLE: "unload",
                             DEAD: "ignore"},
}

# A member that joins again. "update": take its data and rebalance, or wait if a rebalance is under way. "changed": the
# same if its metadata changed, else answer with the current generation. "leader_or_changed": also for the leader.
REJOINS: Mapping[GroupState, str] = {
    EMPTY: "refuse",
    PREPARING: "update",
    COMPLETING: "changed",
    STABLE: "leader_or_changed",
}
# fmt: on

Step: TypeAlias = "Callable[[Group, Any], None]"


class Group(GroupPhases):
    """One classic group. Only `step` changes it; `from_log` rebuilds one."""

    __slots__ = ()

    # The interpreter

    def step(self, event: ev.Event, now_ms: int, settings: GroupSettings) -> list[Effect]:
        """Handle one event at wall time `now_ms`; returns the effects, in order."""
        self._now_ms = now_ms
        self._settings = settings
        effects: list[Effect] = []
        self._effects = effects
        DISPATCH[type(event)][self.state](self, event)
        return effects

    def invariants(self) -> None:
        """Assert the invariants of the module; for tests, debugging and simulation."""
        members = self.members
        members.invariants()
        assert self.state is not EMPTY or not members.by_id, f"{self.group_id}: inv. 1"
        assert self.state is not STABLE or members.leader_id is not None, f"{self.group_id}: inv. 1"
        assert members.pending_sync <= members.by_id.keys(), f"{self.group_id}: inv. 2"
        assert not members.pending_sync or self.state not in (EMPTY, PREPARING), f"{self.group_id}: inv. 2"

    def _ignore(self, event: ev.Event) -> None:
        """Do nothing: the event came too late."""

    def _answer_unknown(self, event: ev.Heartbeat) -> None:
        self._do(Answer(event.reply, ErrorCode.UNKNOWN_MEMBER_ID))

    def _answer_dead(self, event: ev.Heartbeat | ev.Commit) -> None:
        self._do(Answer(event.reply, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # Join

    def _join_dead(self, event: ev.Join) -> None:
        self._refuse_join(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _join(self, event: ev.Join) -> None:
        if not self._has_capacity_for(event.member_id):
            self._drop_surplus(event.member_id)
            self._do(Answer(event.reply, ev.JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ev.UNKNOWN_MEMBER_ID)))
        elif not self._supports(event):
            self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif event.member_id == ev.UNKNOWN_MEMBER_ID:
            self._join_new(event)
        elif event.member_id in self.members.pending_join:
            self._join_pending(event)
        else:
            self._join_again(event)

    def _refuse_join(self, event: ev.Join, error: ErrorCode) -> None:
        self._do(Answer(event.reply, ev.JoinResult(error, event.member_id)))

    def _has_capacity_for(self, member_id: str) -> bool:
        """Apply group.max.size: to the joined members during the join phase, to all members after it."""
        if self.state is EMPTY:
            return True
        member = self.members.by_id.get(member_id)
        if self.state is PREPARING:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or self.members.awaiting_join_count < self._settings.max_size
        return member is not None or len(self.members) < self._settings.max_size

    def _drop_surplus(self, member_id: str) -> None:
        if self.members.remove(member_id) is not None:
            self._do(ev.StopTimer(ev.TimerKey("session", member_id)))

    def _supports(self, event: ev.Join) -> bool:
        if self.state is EMPTY:
            return bool(event.protocol_type and event.protocols)
        return self.protocol_type == event.protocol_type and self.members.have_in_common(event.protocols)

    def _join_new(self, event: ev.Join) -> None:
        if event.instance_id is not None:
            if event.instance_id in self.members.static_members:
                self._replace_static_member(event)
            else:
                self._add_member(event, event.new_member_id)
        elif event.version >= REQUIRES_MEMBER_ID_FROM:
            self.members.pending_join.add(event.new_member_id)
            self._start_session(event.new_member_id, event.session_timeout_ms)
            self._do(Answer(event.reply, ev.JoinResult(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)))
        else:
            self._add_member(event, event.new_member_id)

    def _join_pending(self, event: ev.Join) -> None:
        if event.instance_id is not None:  # a static member never waits as a pending one: the client is confused
            self._refuse_join(event, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._add_member(event, event.member_id)

    def _add_member(self, event: ev.Join, member_id: str) -> None:
        if self.state is PREPARING and self.previous_state is EMPTY:
            self.is_initial_join_extended = True
        if not self.members.by_id:
            self.protocol_type = event.protocol_type
        self.members.add(
            Member(
                member_id, event.instance_id, event.client_id, event.client_host, event.rebalance_timeout_ms,
                event.session_timeout_ms, event.protocol_type, event.protocols, is_new=True, awaiting_join=event.reply,
            )
        )  # fmt: skip
        # Why not the session timeout: the member cannot heartbeat before it has its answer, and the broker does not
        # notice a lost client while its connection is muted. So the join of a new member has a timeout of its own.
        self._start_session(member_id, self._settings.new_member_join_timeout_ms)
        self._rebalance_or_complete(f"adding new member {member_id}; client reason: {event.reason or ev.NO_REASON}")

    def _join_again(self, event: ev.Join) -> None:
        error = self._member_error(event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
            return
        member = self.members.by_id[event.member_id]
        action = REJOINS[self.state]
        is_changed = event.protocols != member.protocols
        is_leader = event.member_id == self.members.leader_id
        if action == "refuse":
            self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
        elif action == "update" or is_changed or (action == "leader_or_changed" and is_leader):
            self._update_and_park(member, event)
            self._rebalance_or_complete(f"{event.member_id} joins; client reason: {event.reason or ev.NO_REASON}")
        else:
            self._do(Answer(event.reply, self._current_generation(member, lists_members=self.state is COMPLETING)))

    def _update_and_park(self, member: Member, event: ev.Join) -> None:
        self.members.update(member, event.protocols, event.rebalance_timeout_ms, event.session_timeout_ms)
        superseded = self.members.park_join(member, event.reply)
        if superseded is not None:
            self._do(Answer(superseded, ev.JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))

    # A static member that returns with a new id

    def _replace_static_member(self, event: ev.Join) -> None:
        assert event.instance_id is not None
        instance_id = event.instance_id
        old_id, old_leader_id = self.members.static_members[instance_id], self.members.leader_id
        member = self._rename_static(instance_id, event.new_member_id)
        undo = ev.StaticMemberStored(
            instance_id, old_id, event.new_member_id, old_leader_id, member.protocols, member.rebalance_timeout_ms,
            member.session_timeout_ms, event.version,
        )  # fmt: skip
        self._update_and_park(member, event)
        self._start_session(member.member_id, member.session_timeout_ms)
        reason = f"static member {member.member_id} ({instance_id}); client reason: {event.reason or ev.NO_REASON}"
        if self.state is STABLE:
            if self.members.select_protocol() == self.protocol_name:
                self._do(ev.Persist(undo, self.assignments()))
            else:
                self._rebalance_or_complete(reason)
        elif self.state is COMPLETING:
            # Why: the leader may know the old id, and would assign partitions to a member that no longer exists.
            self._prepare_rebalance(reason)
        else:
            self._maybe_complete_join()

    def _rename_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give the static member a new id; its requests under the old one are fenced."""
        old_id = self.members.static_members[instance_id]
        member = self.members.by_id[old_id]
        parked = self.members.take_join(member)
        if parked is not None:
            self._do(Answer(parked, ev.JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id)))
        self._answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        self._do(ev.StopTimer(ev.TimerKey("session", old_id)))
        self.members.pending_sync.discard(old_id)
        return self.members.rename_static(instance_id, new_member_id)

    def _static_member_stored(self, event: ev.StaticMemberStored) -> None:
        if self.members.static_members.get(event.instance_id) != event.new_member_id:
            return  # it left, or returned once more
        member = self.members.by_id[event.new_member_id]
        if event.error is not ErrorCode.NONE:
            self._undo_replacement(member, event)
        elif self.state is STABLE:  # Why: a rebalance that started meanwhile includes the parked join and answers it.
            reply = self.members.take_join(member)
            if reply is not None:
                self._do(Answer(reply, self._replaced_member_result(member, event)))

    def _replaced_member_result(self, member: Member, event: ev.StaticMemberStored) -> ev.JoinResult:
        """Return a returned member's answer; a leader skips the assignment (v9+), or does not see that it leads."""
        if event.version >= SKIPS_ASSIGNMENT_FROM:
            is_leader = member.member_id == self.members.leader_id
            leader, members = self.members.leader_id, self.members.joined(self.protocol_name) if is_leader else ()
        else:
            is_leader, leader, members = False, event.old_leader_id, ()
        return ev.JoinResult(
            ErrorCode.NONE, member.member_id, self.generation_id, self.protocol_type, self.protocol_name,
            leader or "", is_leader, members,
        )  # fmt: skip

    def _undo_replacement(self, member: Member, event: ev.StaticMemberStored) -> None:
        reply = self.members.take_join(member)
        self.members.update(member, event.old_protocols, event.old_rebalance_timeout_ms, event.old_session_timeout_ms)
        restored = self._rename_static(event.instance_id, event.old_member_id)
        self._start_session(restored.member_id, restored.session_timeout_ms)
        if reply is not None:
            result = ev.JoinResult(
                event.error, ev.UNKNOWN_MEMBER_ID, self.generation_id, self.protocol_type, self.protocol_name,
                event.old_leader_id or "",
            )  # fmt: skip
            self._do(Answer(reply, result))

    # Sync

    def _sync_unknown(self, event: ev.Sync) -> None:
        self._do(Answer(event.reply, ev.SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))

    def _sync_dead(self, event: ev.Sync) -> None:
        self._do(Answer(event.reply, ev.SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)))

    def _sync(self, event: ev.Sync) -> None:
        error = self._sync_error(event)
        if error is not ErrorCode.NONE:
            self._do(Answer(event.reply, ev.SyncResult(error)))
            return
        member = self.members.by_id[event.member_id]
        self.members.pending_sync.discard(event.member_id)
        if not self.members.pending_sync:
            self._do(ev.StopTimer(SYNC_TIMER))
        if self.state is STABLE:
            result = ev.SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
            self._do(Answer(event.reply, result))
            return
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = event.reply
        if event.member_id == self.members.leader_id:
            assignments = {id_: event.assignments.get(id_, b"") for id_ in self.members.by_id}
            done = ev.AssignmentStored(self.generation_id, event.member_id, assignments)
            self._do(ev.Persist(done, assignments))

    def _sync_error(self, event: ev.Sync) -> ErrorCode:
        error = self._member_error(event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if _differs(event.protocol_type, self.protocol_type) or _differs(event.protocol_name, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def _assignment_stored(self, event: ev.AssignmentStored) -> None:
        if event.generation_id != self.generation_id:
            return
        if event.error is not ErrorCode.NONE:
            for member in self.members.by_id.values():
                member.assignment = b""
            self._answer_all_syncs(event.error)
            self._rebalance_or_complete(f"error {event.error.name} when storing the assignment of {event.member_id}")
            return
        for member in self.members.by_id.values():
            member.assignment = event.assignments.get(member.member_id, b"")
        self._answer_all_syncs(ErrorCode.NONE)
        self._move_to(STABLE)

    def _sync_expired(self, event: ev.SyncExpired) -> None:
        if event.generation_id != self.generation_id or not self.members.pending_sync:
            return
        for member_id in sorted(self.members.pending_sync):
            self._drop(member_id, "it did not send its SyncGroup in time")
        self._prepare_rebalance("members did not send their SyncGroup in time")

    # Heartbeat, commit

    def _heartbeat(self, event: ev.Heartbeat) -> None:
        error = self._member_error(event.member_id, event.instance_id)
        if error is ErrorCode.NONE and event.generation_id != self.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE:
            self._start_session(event.member_id, self.members.by_id[event.member_id].session_timeout_ms)
            if self.state is PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._do(Answer(event.reply, error))

    def _commit_empty(self, event: ev.Commit) -> None:
        """Allow commits without group management; a former member is unknown by now."""
        if event.generation_id < 0:
            error = ErrorCode.NONE
        else:
            error = self._member_error(event.member_id, event.instance_id)
        self._do(Answer(event.reply, error))

    def _commit(self, event: ev.Commit) -> None:
        error = self._commit_error(event)
        if error is ErrorCode.NONE and not event.is_transactional:
            self._start_session(event.member_id, self.members.by_id[event.member_id].session_timeout_ms)
        self._do(Answer(event.reply, error))

    def _commit_error(self, event: ev.Commit) -> ErrorCode:
        if event.generation_id >= 0 or event.member_id or event.instance_id is not None:
            error = self._member_error(event.member_id, event.instance_id)
            if error is not ErrorCode.NONE:
                return error
            if event.generation_id != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not event.is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is COMPLETING and not event.is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Leaving and expired members

    def _leave_dead(self, event: ev.Leave) -> None:
        self._do(Answer(event.reply, ev.LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)))

    def _leave(self, event: ev.Leave) -> None:
        left = tuple(self._leave_one(leaving) for leaving in event.members)
        if any(one.error is ErrorCode.NONE for one in left):
            if self.state in (STABLE, COMPLETING):
                self._prepare_rebalance("members left")
            elif self.state is PREPARING:
                self._maybe_complete_join()
        self._answer_when_stored(Answer(event.reply, ev.LeaveResult(ErrorCode.NONE, left)))

    def _answer_when_stored(self, answer: Answer) -> None:
        """Answer once the record that this event writes, if any, is committed."""
        for index, effect in enumerate(self._effects):
            if isinstance(effect, ev.Persist) and isinstance(effect.done, ev.EmptyStored):
                done = ev.EmptyStored(effect.done.generation_id, answer_on_done=answer)
                self._effects[index] = ev.Persist(done)
                return
        self._do(answer)

    def _leave_one(self, leaving: ev.LeavingMember) -> ev.LeftMember:
        member_id: str | None = leaving.member_id
        error = ErrorCode.NONE
        if leaving.member_id == ev.UNKNOWN_MEMBER_ID:
            member_id = self.members.static_members.get(leaving.instance_id or "")
            error = ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else ErrorCode.NONE
        elif leaving.member_id not in self.members.pending_join:
            error = self._member_error(leaving.member_id, leaving.instance_id)
        if error is ErrorCode.NONE and member_id is not None:
            self._drop(member_id, f"it left; client reason: {leaving.reason or ev.NO_REASON}")
        return ev.LeftMember(leaving.member_id, leaving.instance_id, error)

    def _session_expired(self, event: ev.SessionExpired) -> None:
        member = self.members.by_id.get(event.member_id)
        if member is None and event.member_id not in self.members.pending_join:
            return
        if member is not None and member.is_waiting:
            return
        self._drop(event.member_id, "its session timed out")
        if member is not None and self.state in (STABLE, COMPLETING):
            self._prepare_rebalance(f"session of member {event.member_id} timed out")
        elif self.state is PREPARING and self.members.all_joined:
            self._complete_join()

    # The rest

    def _empty_stored(self, event: ev.EmptyStored) -> None:
        if event.error is not ErrorCode.NONE:
            log.warning("Failed to write empty metadata for group %s: %s", self.group_id, event.error.name)
            for member in self.members.by_id.values():
                if event.reply is not None and member.awaiting_join is event.reply:
                    self.members.take_join(member)
                    self._do(Answer(event.reply, ev.JoinResult(event.error, ev.UNKNOWN_MEMBER_ID)))
        if event.answer_on_done is not None:
            answer = event.answer_on_done
            is_stored = event.error is ErrorCode.NONE
            self._do(answer if is_stored else Answer(answer.reply, ev.LeaveResult(event.error)))

    def _loaded(self, event: ev.Loaded) -> None:
        for member in self.members.by_id.values():
            self._start_session(member.member_id, member.session_timeout_ms)
        if len(self.members) > self._settings.max_size:
            self._prepare_rebalance(f"{len(self.members)} members are over capacity {self._settings.max_size}")

    def _downgraded(self, event: ev.Downgraded) -> None:
        for member in self.members.by_id.values():
            self._start_session(member.member_id, member.session_timeout_ms)
        if event.must_rebalance:
            self._prepare_rebalance("it was a consumer group until now")

    def _unload(self, event: ev.Unload) -> None:
        self._move_to(DEAD)
        for member in self.members.by_id.values():
            reply = self.members.take_join(member)
            if reply is not None:
                self._do(Answer(reply, ev.JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)))
            self._answer_sync(member, ErrorCode.NOT_COORDINATOR)


def _differs(requested: str | None, current: str | None) -> bool:
    """Return whether a request names another protocol than the group's; one that names none agrees."""
    return requested is not None and current is not None and requested != current


DISPATCH: Mapping[type[Any], Mapping[GroupState, Step]] = {
    event: {state: getattr(Group, f"_{name}") for state, name in row.items()} for event, row in STEPS.items()
}
