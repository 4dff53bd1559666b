"""JoinGroup: steps of members that join, rejoin, or return as a static member with a new id. Pure.

Rules
1. REJOINS says for each state what a member that joins again gets.
2. The answer to a static member that returns is sent once its new id is committed; a failed write undoes the change.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager.classicGroupJoin* (4.3), KIP-345 (static members), KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import Answer, GroupState
from barnabas.broker.coordinators.classic.group import COMPLETING, EMPTY, PREPARING, STABLE
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.coordinators.classic.turn import Turn
from barnabas.protocol.errors import ErrorCode

SKIPS_ASSIGNMENT_FROM = 9  # JoinGroup version, KIP-814

# A member that joins again. "update": take its data and rebalance, or wait if a rebalance is under way. "changed": the
# same if its metadata changed, else answer with the current generation. "leader_or_changed": also for the leader.
REJOINS: Mapping[GroupState, str] = {
    EMPTY: "refuse",
    PREPARING: "update",
    COMPLETING: "changed",
    STABLE: "leader_or_changed",
}


def join_dead(turn: Turn, event: ev.Join) -> None:
    """Refuse a member of a group that has moved."""
    _refuse_join(turn, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def join(turn: Turn, event: ev.Join) -> None:
    """Handle a JoinGroup."""
    if not _has_capacity_for(turn, event.member_id):
        _drop_surplus(turn, event.member_id)
        turn.do(Answer(event.reply, ev.JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ev.UNKNOWN_MEMBER_ID)))
    elif not _supports(turn, event):
        _refuse_join(turn, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif event.member_id == ev.UNKNOWN_MEMBER_ID:
        _join_new(turn, event)
    elif event.member_id in turn.group.members.pending_join:
        _join_pending(turn, event)
    else:
        _join_again(turn, event)


def _refuse_join(turn: Turn, event: ev.Join, error: ErrorCode) -> None:
    turn.do(Answer(event.reply, ev.JoinResult(error, event.member_id)))


def _has_capacity_for(turn: Turn, member_id: str) -> bool:
    """Apply group.max.size: to the joined members during the join phase, to all members after it."""
    group, members = turn.group, turn.group.members
    if group.state is EMPTY:
        return True
    member = members.by_id.get(member_id)
    if group.state is PREPARING:
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or members.awaiting_join_count < turn.settings.max_size
    return member is not None or len(members) < turn.settings.max_size


def _drop_surplus(turn: Turn, member_id: str) -> None:
    if turn.group.members.remove(member_id) is not None:
        turn.do(ev.StopTimer(ev.TimerKey("session", member_id)))


def _supports(turn: Turn, event: ev.Join) -> bool:
    group = turn.group
    if group.state is EMPTY:
        return bool(event.protocol_type and event.protocols)
    return group.protocol_type == event.protocol_type and group.members.have_in_common(event.protocols)


def _join_new(turn: Turn, event: ev.Join) -> None:
    members = turn.group.members
    if event.instance_id is not None:
        if event.instance_id in members.static_members:
            _replace_static_member(turn, event)
        else:
            _add_member(turn, event, event.new_member_id)
    elif event.version >= ev.REQUIRES_MEMBER_ID_FROM:
        members.pending_join.add(event.new_member_id)
        turn.start_session(event.new_member_id, event.session_timeout_ms)
        turn.do(Answer(event.reply, ev.JoinResult(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)))
    else:
        _add_member(turn, event, event.new_member_id)


def _join_pending(turn: Turn, event: ev.Join) -> None:
    if event.instance_id is not None:  # a static member never waits as a pending one: the client is confused
        _refuse_join(turn, event, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        _add_member(turn, event, event.member_id)


def _add_member(turn: Turn, event: ev.Join, member_id: str) -> None:
    group, members = turn.group, turn.group.members
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.is_initial_join_extended = True
    if not members.by_id:
        group.protocol_type = event.protocol_type
    members.add(
        Member(
            member_id, event.instance_id, event.client_id, event.client_host, event.rebalance_timeout_ms,
            event.session_timeout_ms, event.protocol_type, event.protocols, is_new=True, awaiting_join=event.reply,
        )
    )  # fmt: skip
    # Why not the session timeout: the member cannot heartbeat before it has its answer, and the broker does not
    # notice a lost client while its connection is muted. So the join of a new member has a timeout of its own.
    turn.start_session(member_id, turn.settings.new_member_join_timeout_ms)
    turn.rebalance_or_complete(f"adding new member {member_id}; client reason: {event.reason or ev.NO_REASON}")


def _join_again(turn: Turn, event: ev.Join) -> None:
    group, members = turn.group, turn.group.members
    error = group.member_error(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        _refuse_join(turn, event, error)
        return
    member = members.by_id[event.member_id]
    action = REJOINS[group.state]
    is_changed = event.protocols != member.protocols
    is_leader = event.member_id == members.leader_id
    if action == "refuse":
        _refuse_join(turn, event, ErrorCode.UNKNOWN_MEMBER_ID)
    elif action == "update" or is_changed or (action == "leader_or_changed" and is_leader):
        _update_and_park(turn, member, event)
        turn.rebalance_or_complete(f"{event.member_id} joins; client reason: {event.reason or ev.NO_REASON}")
    else:
        turn.do(Answer(event.reply, group.current_generation(member, lists_members=group.state is COMPLETING)))


def _update_and_park(turn: Turn, member: Member, event: ev.Join) -> None:
    members = turn.group.members
    members.update(member, event.protocols, event.rebalance_timeout_ms, event.session_timeout_ms)
    superseded = members.park_join(member, event.reply)
    if superseded is not None:
        turn.do(Answer(superseded, ev.JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))


# A static member that returns with a new id


def _replace_static_member(turn: Turn, event: ev.Join) -> None:
    group, members = turn.group, turn.group.members
    assert event.instance_id is not None
    instance_id = event.instance_id
    old_id, old_leader_id = members.static_members[instance_id], members.leader_id
    member = _rename_static(turn, instance_id, event.new_member_id)
    undo = ev.StaticMemberStored(
        instance_id, old_id, event.new_member_id, old_leader_id, member.protocols, member.rebalance_timeout_ms,
        member.session_timeout_ms, event.version,
    )  # fmt: skip
    _update_and_park(turn, member, event)
    turn.start_session(member.member_id, member.session_timeout_ms)
    reason = f"static member {member.member_id} ({instance_id}); client reason: {event.reason or ev.NO_REASON}"
    if group.state is STABLE:
        if members.select_protocol() == group.protocol_name:
            turn.do(ev.Persist(undo, group.assignments()))
        else:
            turn.rebalance_or_complete(reason)
    elif group.state is COMPLETING:
        # Why: the leader may know the old id, and would assign partitions to a member that no longer exists.
        turn.prepare_rebalance(reason)
    else:
        turn.maybe_complete_join()


def _rename_static(turn: Turn, instance_id: str, new_member_id: str) -> Member:
    """Give the static member a new id; its requests under the old one are fenced."""
    members = turn.group.members
    old_id = members.static_members[instance_id]
    member = members.by_id[old_id]
    parked = members.take_join(member)
    if parked is not None:
        turn.do(Answer(parked, ev.JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id)))
    turn.answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
    turn.do(ev.StopTimer(ev.TimerKey("session", old_id)))
    members.pending_sync.discard(old_id)
    return members.rename_static(instance_id, new_member_id)


def static_member_stored(turn: Turn, event: ev.StaticMemberStored) -> None:
    """Answer a static member whose new id is committed, or undo the change."""
    group, members = turn.group, turn.group.members
    if members.static_members.get(event.instance_id) != event.new_member_id:
        return  # it left, or returned once more
    member = members.by_id[event.new_member_id]
    if event.error is not ErrorCode.NONE:
        _undo_replacement(turn, member, event)
    elif group.state is STABLE:  # Why: a rebalance that started meanwhile includes the parked join and answers it.
        reply = members.take_join(member)
        if reply is not None:
            turn.do(Answer(reply, _replaced_member_result(turn, member, event)))


def _replaced_member_result(turn: Turn, member: Member, event: ev.StaticMemberStored) -> ev.JoinResult:
    """Return a returned member's answer; a leader skips the assignment (v9+), or does not see that it leads."""
    group = turn.group
    if event.version >= SKIPS_ASSIGNMENT_FROM:
        is_leader = member.member_id == group.members.leader_id
        leader, members = group.members.leader_id, group.members.joined(group.protocol_name) if is_leader else ()
    else:
        is_leader, leader, members = False, event.old_leader_id, ()
    return ev.JoinResult(
        ErrorCode.NONE, member.member_id, group.generation_id, group.protocol_type, group.protocol_name,
        leader or "", is_leader, members,
    )  # fmt: skip


def _undo_replacement(turn: Turn, member: Member, event: ev.StaticMemberStored) -> None:
    group, members = turn.group, turn.group.members
    reply = members.take_join(member)
    members.update(member, event.old_protocols, event.old_rebalance_timeout_ms, event.old_session_timeout_ms)
    restored = _rename_static(turn, event.instance_id, event.old_member_id)
    turn.start_session(restored.member_id, restored.session_timeout_ms)
    if reply is not None:
        result = ev.JoinResult(
            event.error, ev.UNKNOWN_MEMBER_ID, group.generation_id, group.protocol_type, group.protocol_name,
            event.old_leader_id or "",
        )  # fmt: skip
        turn.do(Answer(reply, result))
