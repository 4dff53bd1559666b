"""Turns of members that speak the consumer protocol: heartbeats, leaving, expired timers, expressions. Pure.

The epoch of a heartbeat says what it does: 0 joins, the member's own epoch continues, -1 leaves, and -2 leaves
temporarily (a static member that will return keeps its partitions). A member whose answer was lost may repeat its
previous epoch, as long as it owns nothing beyond its assignment. Any other epoch fences the member: it must abandon
its partitions and join again.

For each turn, call one of the public functions, once. All may raise ApiError.

Source: Kafka's GroupMetadataManager (4.3): consumerGroupHeartbeat, consumerGroupLeave, handleRegularExpressionsResult.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.turn import Turn
from barnabas.broker.coordinators.consumer.values import Heartbeat, HeartbeatResult, Member, ResolvedRegex
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")


def heartbeat(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle the heartbeat of a member that joins or continues."""
    turn.check_capacity(request.member_id)
    before = _identify(turn, request)
    after = _updated(before, request)
    are_names_changed = turn.write_member(before, after)
    is_regex_changed, is_resolved = turn.take_regex(before, after)
    epoch = turn.raise_epoch(before, after, are_names_changed or is_resolved)
    target_epoch, target = turn.assign(epoch, after)
    after = turn.reconcile(after, target_epoch, target, request.owned, is_changed=are_names_changed or is_regex_changed)
    turn.start_session(after.member_id, turn.environment.times.session_timeout_ms)
    is_sent = request.epoch == v.JOIN_EPOCH or request.is_full or after.assigned != before.assigned
    interval_ms = turn.environment.times.heartbeat_interval_ms
    return HeartbeatResult(after.member_id, after.epoch, interval_ms, after.assigned if is_sent else None)


def leave(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle a leaving member."""
    if request.instance_id is None:
        member = turn.group.member(request.member_id)
    else:
        member = turn.static_member(request.instance_id, request.member_id)
        if request.epoch == v.STATIC_LEAVE_EPOCH:
            return _leave_temporarily(turn, member)
    log.info("Member %s left consumer group %s", member.member_id, turn.group.group_id)
    turn.fence([member])
    return HeartbeatResult(member.member_id, request.epoch)


def expire(turn: Turn, event: v.GroupEvent) -> None:
    """Handle an expired timer: the member is removed, unless it has met the deadline."""
    member = turn.group.members.get(event.member_id)
    if member is None:
        return
    if isinstance(event, v.RevocationExpired):
        if member.epoch != event.epoch:
            return
        reason = f"it did not leave epoch {event.epoch} within {event.timeout_ms} ms"
    else:
        reason = event.reason
    log.info("Member %s of consumer group %s is removed: %s", member.member_id, turn.group.group_id, reason)
    turn.fence([member])


def take_resolved(turn: Turn, resolved: Mapping[str, ResolvedRegex]) -> None:
    """Apply the result of matching the regular expressions with all topics."""
    group = turn.group
    names = Counter(group.topic_names)
    is_changed = False
    for regex, now in resolved.items():
        if not group.regexes[regex]:
            continue  # no member is subscribed any more
        before = group.resolved_regexes.get(regex, v.NO_TOPICS)
        names.subtract(before.topics)
        names.update(now.topics)
        is_changed = is_changed or before.topics != now.topics
        turn.records.append(v.RegexTopics(regex, now))
    turn.epoch_after(+names, is_changed)


def watch_members(turn: Turn) -> None:
    """Start the timers of a loaded or upgraded group: every member gets its full timeouts."""
    for member in turn.group.members.values():
        if member.classic is not None:
            turn.start_session(member.member_id, member.classic.session_timeout_ms)
            continue
        turn.start_session(member.member_id, turn.environment.times.session_timeout_ms)
        if member.state is v.MemberState.UNREVOKED_PARTITIONS:
            turn.watch_revocation(member)


# Identity


def _identify(turn: Turn, request: Heartbeat) -> Member:
    """Return the member; a new one if it joins."""
    is_joining = request.epoch == v.JOIN_EPOCH
    if request.instance_id is not None:
        return _identify_static(turn, request, request.instance_id)
    if is_joining and request.member_id not in turn.group.members:
        return Member(request.member_id)
    member = turn.group.member(request.member_id)
    _check_epoch(member, request)
    return member


def _identify_static(turn: Turn, request: Heartbeat, instance_id: str) -> Member:
    if request.epoch != v.JOIN_EPOCH:
        member = turn.static_member(instance_id, request.member_id)
        _check_epoch(member, request)
        return member
    existing = turn.group.static_member(instance_id)
    if existing is None:
        return turn.group.members.get(request.member_id) or Member(request.member_id)
    if not existing.uses_classic_protocol and existing.epoch != v.STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {existing.member_id} member.",
        )
    return turn.replace_static(existing, request.member_id)


def _leave_temporarily(turn: Turn, member: Member) -> HeartbeatResult:
    """Keep a static member and its partitions until it returns or its session expires."""
    kept = v.with_epochs(v.without_epochs(member.assigned), 0)
    away = replace(member, epoch=v.STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})
    turn.records.append(v.CurrentAssignment(member.member_id, away))
    return HeartbeatResult(member.member_id, v.STATIC_LEAVE_EPOCH)


def _updated(member: Member, request: Heartbeat) -> Member:
    """Return the member with the fields that the request sets. It speaks the consumer protocol from now on."""
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """Raise ApiError(FENCED_MEMBER_EPOCH) unless the epoch is valid; see the module."""
    epoch = request.epoch
    if epoch in (v.JOIN_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and _is_within(request.owned, member.assigned):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch})"
        f" than the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _is_within(owned: v.Assignment | None, assigned: v.Owned) -> bool:
    return owned is not None and v.partitions_of(owned) <= v.partitions_of(assigned)
