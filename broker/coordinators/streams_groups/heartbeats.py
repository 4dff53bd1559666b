"""Turns of a streams group's members: heartbeats, leaving, expired timers. Pure.

The epoch of a heartbeat says what it does: 0 joins, the member's own epoch continues, and -1 leaves. A member whose
answer was lost may repeat its previous epoch, as long as it reports no task beyond its assignment. Any other epoch
fences the member: it must abandon its tasks and join again. There are no static members yet, as in Kafka 4.3.

For each turn, call one of the public functions, once. All may raise ApiError.

Source: Kafka's GroupMetadataManager (4.3): streamsGroupHeartbeat, streamsGroupLeave, streamsGroupFenceMember,
computeDelayedTargetAssignment.

Different from Apache Kafka: a member that reports other tasks than it should have gets its tasks again. If an answer
is lost in Kafka, the member never learns of tasks that it got in its own epoch, and is fenced if it was to revoke some.
A member has no topics created for a newer topology than its own. Another client sent that, but topics are created with
the rights of the member.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from barnabas.broker.coordinators.consumer.values import MemberExpired, RevocationExpired
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.turn import Turn
from barnabas.broker.coordinators.streams_groups.values import Heartbeat, HeartbeatResult, Member, Tasks
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")

NOTHING_GIVEN: Final = (None,) * 5


def heartbeat(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle the heartbeat of a member that joins or continues."""
    is_joining = request.epoch == v.JOIN_EPOCH
    if is_joining:
        turn.check_capacity(request.member_id)
    before = _identify(turn, request)
    updated = _updated(before, request)
    is_changed = turn.write_member(before, updated)
    turn.take_topology(request.topology, updated)
    configured = turn.configure()
    turn.check_tasks(request.owned)
    turn.advance_epoch(is_changed=is_changed)
    turn.delay_assignment()
    target_epoch, target = turn.assign(updated)
    after = turn.reconcile(updated, target_epoch, target, request.owned)
    turn.start_session(after.member_id)
    if request.shuts_down:
        turn.request_shutdown(after.member_id)
    is_new = is_joining or after.assigned != before.assigned
    endpoints = turn.endpoints(after, request.endpoint_epoch, has_other_tasks=is_new)
    turn.report()
    has_others = request.owned is not None and request.owned != after.assigned.without_epochs()
    return HeartbeatResult(
        member_id=after.member_id,
        epoch=after.epoch,
        heartbeat_interval_ms=turn.environment.config.heartbeat_interval_ms,
        tasks=after.assigned.without_epochs() if is_new or has_others else None,
        statuses=tuple(turn.statuses),
        endpoint_epoch=0 if turn.is_new else turn.endpoint_epoch,
        endpoints=endpoints,
        missing=configured.missing if after.topology_epoch == configured.topology.epoch else (),
    )


def leave(turn: Turn, request: Heartbeat) -> HeartbeatResult:
    """Handle a leaving member."""
    member = turn.group.member(request.member_id)
    if request.shuts_down:
        turn.request_shutdown(member.member_id)
    log.info("Member %s left streams group %s", member.member_id, turn.group.group_id)
    turn.remove(member)
    return HeartbeatResult(member.member_id, request.epoch)


def expire(turn: Turn, event: MemberExpired | RevocationExpired) -> None:
    """Handle an expired timer: the member is removed, unless it has met the deadline."""
    member = turn.group.members.get(event.member_id)
    if member is None:
        return
    if isinstance(event, RevocationExpired):
        if member.epoch != event.epoch:
            return
        reason = f"it did not leave epoch {event.epoch} within {event.timeout_ms} ms"
    else:
        reason = event.reason
    log.info("Member %s of streams group %s is removed: %s", member.member_id, turn.group.group_id, reason)
    turn.remove(member)


def assign_first(turn: Turn) -> None:
    """Assign tasks after the initial rebalance delay; the members get them with their next heartbeats."""
    group = turn.group
    if group.members and group.topology is not None and group.assignment_epoch < group.epoch:
        turn.configure()
        turn.assign()


def watch_members(turn: Turn) -> None:
    """Start the timers of a loaded group: every member gets its full timeouts."""
    for member in turn.group.members.values():
        turn.start_session(member.member_id)
        if member.state is v.MemberState.UNREVOKED_TASKS:
            turn.watch_revocation(member)


def _identify(turn: Turn, request: Heartbeat) -> Member:
    """Return the member; a new one if it joins."""
    if request.epoch == v.JOIN_EPOCH:
        return turn.group.members.get(request.member_id) or Member(request.member_id)
    member = turn.group.member(request.member_id)
    _check_epoch(member, request)
    return member


def _updated(member: Member, request: Heartbeat) -> Member:
    """Return the member with the fields that the request sets; the same one if it sets none, as most requests."""
    given = (
        request.rack_id, request.topology, request.process_id, request.user_endpoint, request.client_tags
    )  # fmt: skip
    if (
        given == NOTHING_GIVEN
        and request.rebalance_timeout_ms == -1
        and request.client_id == member.client_id
        and request.client_host == member.client_host
    ):
        return member
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if request.user_endpoint is None else request.user_endpoint,
        client_tags=member.client_tags if request.client_tags is None else request.client_tags,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """Raise ApiError(FENCED_MEMBER_EPOCH) unless the epoch is valid; see the module."""
    epoch = request.epoch
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch < member.epoch and _is_within(request.owned, member.assigned.without_epochs()):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch}) than"
        f" the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _is_within(owned: Tasks | None, assigned: Tasks) -> bool:
    if owned is None:
        return False
    roles = ((owned.active, assigned.active), (owned.standby, assigned.standby), (owned.warmup, assigned.warmup))
    return all(_are_within(some, all_) for some, all_ in roles)


def _are_within(some: Mapping[str, Set[int]], all_: Mapping[str, Set[int]]) -> bool:
    return all(partitions <= all_.get(id_, frozenset()) for id_, partitions in some.items())
