"""A classic group as a pure state machine: an event in, the new state and effects out. No socket, clock, lock or file.

Rules
1. STEPS lists the step for each event and state. Every cell is filled.
2. Only `Group.move_to` changes the state, along TRANSITIONS.
3. A dynamic member that does not rejoin in time is dropped; a static one stays until its session expires (KIP-345).
4. No step calls a `reply`. Each parked one is answered exactly once, by an `Answer`.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (classic groups, 4.3).
Different from Apache Kafka: a parked request that its own member supersedes is answered REBALANCE_IN_PROGRESS; Kafka
drops it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Effect,
    GroupSettings,
    GroupState,
)
from barnabas.broker.coordinators.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from barnabas.broker.coordinators.classic.joining import join, join_dead, static_member_stored
from barnabas.broker.coordinators.classic.turn import Turn
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.group")

Step: TypeAlias = Callable[[Turn, Any], None]


def step(group: Group, event: ev.Event, now_ms: int, settings: GroupSettings) -> list[Effect]:
    """Handle one event at wall time `now_ms`; returns the effects, in order."""
    turn = Turn(group, now_ms, settings)
    STEPS[type(event)][group.state](turn, event)
    return turn.effects


def _ignore(turn: Turn, event: ev.Event) -> None:
    """Do nothing: the event came too late."""


def _answer_unknown(turn: Turn, event: ev.Heartbeat) -> None:
    turn.do(Answer(event.reply, ErrorCode.UNKNOWN_MEMBER_ID))


def _answer_dead(turn: Turn, event: ev.Heartbeat | ev.Commit) -> None:
    turn.do(Answer(event.reply, ErrorCode.COORDINATOR_NOT_AVAILABLE))


# Sync


def _sync_unknown(turn: Turn, event: ev.Sync) -> None:
    turn.do(Answer(event.reply, ev.SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))


def _sync_dead(turn: Turn, event: ev.Sync) -> None:
    turn.do(Answer(event.reply, ev.SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)))


def _sync(turn: Turn, event: ev.Sync) -> None:
    group, members = turn.group, turn.group.members
    error = _sync_error(turn, event)
    if error is not ErrorCode.NONE:
        turn.do(Answer(event.reply, ev.SyncResult(error)))
        return
    member = members.by_id[event.member_id]
    members.pending_sync.discard(event.member_id)
    if not members.pending_sync:
        turn.do(ev.StopTimer(SYNC_TIMER))
    if group.state is STABLE:
        result = ev.SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
        turn.do(Answer(event.reply, result))
        return
    turn.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.awaiting_sync = event.reply
    if event.member_id == members.leader_id:
        assignments = {id_: event.assignments.get(id_, b"") for id_ in members.by_id}
        done = ev.AssignmentStored(group.generation_id, event.member_id, assignments)
        turn.do(ev.Persist(done, assignments))


def _sync_error(turn: Turn, event: ev.Sync) -> ErrorCode:
    group = turn.group
    error = group.member_error(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(event.protocol_type, group.protocol_type) or _differs(event.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def _assignment_stored(turn: Turn, event: ev.AssignmentStored) -> None:
    group, members = turn.group, turn.group.members
    if event.generation_id != group.generation_id:
        return
    if event.error is not ErrorCode.NONE:
        for member in members.by_id.values():
            member.assignment = b""
        turn.answer_all_syncs(event.error)
        turn.rebalance_or_complete(f"error {event.error.name} when storing the assignment of {event.member_id}")
        return
    for member in members.by_id.values():
        member.assignment = event.assignments.get(member.member_id, b"")
    turn.answer_all_syncs(ErrorCode.NONE)
    group.move_to(STABLE, turn.now_ms)


def _sync_expired(turn: Turn, event: ev.SyncExpired) -> None:
    group, members = turn.group, turn.group.members
    if event.generation_id != group.generation_id or not members.pending_sync:
        return
    for member_id in sorted(members.pending_sync):
        turn.drop(member_id, "it did not send its SyncGroup in time")
    turn.prepare_rebalance("members did not send their SyncGroup in time")


# Heartbeat, commit


def _heartbeat(turn: Turn, event: ev.Heartbeat) -> None:
    group = turn.group
    error = group.member_error(event.member_id, event.instance_id)
    if error is ErrorCode.NONE and event.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE:
        turn.start_session(event.member_id, group.members.by_id[event.member_id].session_timeout_ms)
        if group.state is PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    turn.do(Answer(event.reply, error))


def _commit_empty(turn: Turn, event: ev.Commit) -> None:
    """Allow commits without group management; a former member is unknown by now."""
    if event.generation_id < 0:
        error = ErrorCode.NONE
    else:
        error = turn.group.member_error(event.member_id, event.instance_id)
    turn.do(Answer(event.reply, error))


def _commit(turn: Turn, event: ev.Commit) -> None:
    error = _commit_error(turn, event)
    if error is ErrorCode.NONE and not event.is_transactional:
        turn.start_session(event.member_id, turn.group.members.by_id[event.member_id].session_timeout_ms)
    turn.do(Answer(event.reply, error))


def _commit_error(turn: Turn, event: ev.Commit) -> ErrorCode:
    group = turn.group
    if event.generation_id >= 0 or event.member_id or event.instance_id is not None:
        error = group.member_error(event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif not event.is_transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is COMPLETING and not event.is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# The join phase's timer


def _initial_delay_expired(turn: Turn, event: ev.InitialDelayExpired) -> None:
    group = turn.group
    if not group.is_initial_join_extended or event.remaining_ms == 0:
        turn.complete_join()
        return
    group.is_initial_join_extended = False
    delay_ms = min(turn.settings.initial_rebalance_delay_ms, event.remaining_ms)
    remaining_ms = max(event.remaining_ms - event.delay_ms, 0)
    turn.do(ev.StartTimer(JOIN_TIMER, delay_ms, ev.InitialDelayExpired(delay_ms, remaining_ms)))


def _join_expired(turn: Turn, event: ev.JoinExpired) -> None:
    turn.complete_join()


# Leaving and expired members


def _leave_dead(turn: Turn, event: ev.Leave) -> None:
    turn.do(Answer(event.reply, ev.LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)))


def _leave(turn: Turn, event: ev.Leave) -> None:
    group = turn.group
    left = tuple(_leave_one(turn, leaving) for leaving in event.members)
    if any(one.error is ErrorCode.NONE for one in left):
        if group.state in (STABLE, COMPLETING):
            turn.prepare_rebalance("members left")
        elif group.state is PREPARING:
            turn.maybe_complete_join()
    _answer_when_stored(turn, Answer(event.reply, ev.LeaveResult(ErrorCode.NONE, left)))


def _answer_when_stored(turn: Turn, answer: Answer) -> None:
    """Answer once the record that this event writes, if any, is committed."""
    for index, effect in enumerate(turn.effects):
        if isinstance(effect, ev.Persist) and isinstance(effect.done, ev.EmptyStored):
            done = ev.EmptyStored(effect.done.generation_id, answer_on_done=answer)
            turn.effects[index] = ev.Persist(done)
            return
    turn.do(answer)


def _leave_one(turn: Turn, leaving: ev.LeavingMember) -> ev.LeftMember:
    group, members = turn.group, turn.group.members
    member_id: str | None = leaving.member_id
    error = ErrorCode.NONE
    if leaving.member_id == ev.UNKNOWN_MEMBER_ID:
        member_id = members.static_members.get(leaving.instance_id or "")
        error = ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else ErrorCode.NONE
    elif leaving.member_id not in members.pending_join:
        error = group.member_error(leaving.member_id, leaving.instance_id)
    if error is ErrorCode.NONE and member_id is not None:
        turn.drop(member_id, f"it left; client reason: {leaving.reason or ev.NO_REASON}")
    return ev.LeftMember(leaving.member_id, leaving.instance_id, error)


def _session_expired(turn: Turn, event: ev.SessionExpired) -> None:
    group, members = turn.group, turn.group.members
    member = members.by_id.get(event.member_id)
    if member is None and event.member_id not in members.pending_join:
        return
    if member is not None and member.is_waiting:
        return
    turn.drop(event.member_id, "its session timed out")
    if member is not None and group.state in (STABLE, COMPLETING):
        turn.prepare_rebalance(f"session of member {event.member_id} timed out")
    elif group.state is PREPARING and members.all_joined:
        turn.complete_join()


# Reports of the shard


def _empty_stored(turn: Turn, event: ev.EmptyStored) -> None:
    group, members = turn.group, turn.group.members
    if event.error is not ErrorCode.NONE:
        log.warning("Failed to write empty metadata for group %s: %s", group.group_id, event.error.name)
        for member in members.by_id.values():
            if event.reply is not None and member.awaiting_join is event.reply:
                members.take_join(member)
                turn.do(Answer(event.reply, ev.JoinResult(event.error, ev.UNKNOWN_MEMBER_ID)))
    if event.answer_on_done is not None:
        answer = event.answer_on_done
        is_stored = event.error is ErrorCode.NONE
        turn.do(answer if is_stored else Answer(answer.reply, ev.LeaveResult(event.error)))


def _loaded(turn: Turn, event: ev.Loaded) -> None:
    members = turn.group.members
    for member in members.by_id.values():
        turn.start_session(member.member_id, member.session_timeout_ms)
    if len(members) > turn.settings.max_size:
        turn.prepare_rebalance(f"{len(members)} members are over capacity {turn.settings.max_size}")


def _downgraded(turn: Turn, event: ev.Downgraded) -> None:
    for member in turn.group.members.by_id.values():
        turn.start_session(member.member_id, member.session_timeout_ms)
    if event.must_rebalance:
        turn.prepare_rebalance("it was a consumer group until now")


def _unload(turn: Turn, event: ev.Unload) -> None:
    group, members = turn.group, turn.group.members
    group.move_to(DEAD, turn.now_ms)
    for member in members.by_id.values():
        reply = members.take_join(member)
        if reply is not None:
            turn.do(Answer(reply, ev.JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)))
        turn.answer_sync(member, ErrorCode.NOT_COORDINATOR)


def _differs(requested: str | None, current: str | None) -> bool:
    """Return whether a request names another protocol than the group's; one that names none agrees."""
    return requested is not None and current is not None and requested != current


# fmt: off
STEPS: Mapping[type[Any], Mapping[GroupState, Step]] = {
    ev.Join:                {EMPTY: join, PREPARING: join, COMPLETING: join, STABLE: join, DEAD: join_dead},
    ev.Sync:                {EMPTY: _sync_unknown, PREPARING: _sync, COMPLETING: _sync, STABLE: _sync,
                             DEAD: _sync_dead},
    ev.Heartbeat:           {EMPTY: _answer_unknown, PREPARING: _heartbeat, COMPLETING: _heartbeat,
                             STABLE: _heartbeat, DEAD: _answer_dead},
    ev.Leave:               {EMPTY: _leave, PREPARING: _leave, COMPLETING: _leave, STABLE: _leave,
                             DEAD: _leave_dead},
    ev.Commit:              {EMPTY: _commit_empty, PREPARING: _commit, COMPLETING: _commit, STABLE: _commit,
                             DEAD: _answer_dead},
    ev.SessionExpired:      {EMPTY: _session_expired, PREPARING: _session_expired, COMPLETING: _session_expired,
                             STABLE: _session_expired, DEAD: _ignore},
    ev.InitialDelayExpired: {EMPTY: _ignore, PREPARING: _initial_delay_expired, COMPLETING: _ignore,
                             STABLE: _ignore, DEAD: _ignore},
    ev.JoinExpired:         {EMPTY: _ignore, PREPARING: _join_expired, COMPLETING: _ignore, STABLE: _ignore,
                             DEAD: _ignore},
    ev.SyncExpired:         {EMPTY: _ignore, PREPARING: _ignore, COMPLETING: _sync_expired, STABLE: _sync_expired,
                             DEAD: _ignore},
    ev.AssignmentStored:    {EMPTY: _ignore, PREPARING: _ignore, COMPLETING: _assignment_stored, STABLE: _ignore,
                             DEAD: _ignore},
    ev.StaticMemberStored:  {EMPTY: _ignore, PREPARING: static_member_stored, COMPLETING: static_member_stored,
                             STABLE: static_member_stored, DEAD: _ignore},
    ev.EmptyStored:         {EMPTY: _empty_stored, PREPARING: _empty_stored, COMPLETING: _empty_stored,
                             STABLE: _empty_stored, DEAD: _empty_stored},
    ev.Loaded:              {EMPTY: _ignore, PREPARING: _ignore, COMPLETING: _ignore, STABLE: _loaded,
                             DEAD: _ignore},
    ev.Downgraded:          {EMPTY: _ignore, PREPARING: _ignore, COMPLETING: _ignore, STABLE: _downgraded,
                             DEAD: _ignore},
    ev.Unload:              {EMPTY: _unload, PREPARING: _unload, COMPLETING: _unload, STABLE: _unload,
                             DEAD: _ignore},
}
# fmt: on
