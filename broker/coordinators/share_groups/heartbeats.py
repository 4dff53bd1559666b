"""Turns of a share group's members: heartbeats, leaving, expired sessions. Pure.

The epoch of a heartbeat says what it does: 0 joins, the member's own epoch continues, and -1 leaves. A member whose
answer was lost may repeat its previous epoch. Any other epoch fences the member: it must abandon its partitions and
join again. There are no static members.

For each turn, call one of the public functions, once. All may raise ApiError.

Source: Kafka's GroupMetadataManager (4.3): shareGroupHeartbeat, shareGroupLeave, shareGroupFenceMember.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from barnabas.broker.coordinators.consumer.values import MemberExpired
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.turn import Turn
from barnabas.broker.coordinators.share_groups.values import Heartbeat, HeartbeatResult, Member
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")


def heartbeat(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle the heartbeat of a member that joins or continues."""
    turn.check_capacity(request.member_id)
    before = _identify(turn, request)
    after = _updated(before, request)
    is_changed = turn.write_member(before, after)
    turn.advance_epoch(before, after, is_changed=is_changed)
    target_epoch, target = turn.assign(after)
    after = turn.reconcile(after, target_epoch, target, is_changed=is_changed)
    turn.start_session(after.member_id)
    turn.initialize_missing(before, after)
    is_full = request.topic_names is not None  # as after an error
    is_sent = request.epoch == v.JOIN_EPOCH or is_full or after.assigned != before.assigned
    interval_ms = turn.environment.times.heartbeat_interval_ms
    return HeartbeatResult(after.member_id, after.epoch, interval_ms, after.assigned if is_sent else None)


def leave(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle a leaving member."""
    member = turn.group.member(request.member_id)
    log.info("Member %s left share group %s", member.member_id, turn.group.group_id)
    turn.remove(member)
    return HeartbeatResult(member.member_id, request.epoch)


def expire(turn: Turn, event: MemberExpired) -> None:
    """Handle an expired session: the member is removed."""
    member = turn.group.members.get(event.member_id)
    if member is not None:
        log.info("Member %s of share group %s is removed: %s", member.member_id, turn.group.group_id, event.reason)
        turn.remove(member)


def watch_members(turn: Turn) -> None:
    """Start the sessions of a loaded group: every member gets its full timeout."""
    for member_id in turn.group.members:
        turn.start_session(member_id)


def _identify(turn: Turn, request: Heartbeat) -> Member:
    """Return the member; a new one if it joins."""
    if request.epoch == v.JOIN_EPOCH:
        return turn.group.members.get(request.member_id) or Member(request.member_id)
    member = turn.group.member(request.member_id)
    _check_epoch(member, request.epoch)
    return member


def _updated(member: Member, request: Heartbeat) -> Member:
    """Return the member with the fields that the request sets."""
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _check_epoch(member: Member, epoch: int) -> None:
    """Raise ApiError(FENCED_MEMBER_EPOCH) unless the epoch is valid; see the module."""
    if epoch == member.epoch or epoch == member.previous_epoch < member.epoch:
        return
    is_greater = epoch > member.epoch
    previous = "" if is_greater else f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than the one"
        f" known by the group coordinator ({member.epoch}){previous}. The member must abandon all its partitions and"
        " rejoin.",
    )
