"""Turns of members that speak the classic protocol in a consumer group, during a migration. Pure.

Theory
For such a member, its epoch is a generation. JoinGroup has the role of a heartbeat with changes, and waits for no other
member. SyncGroup fetches the assignment that the coordinator computed. Heartbeat answers REBALANCE_IN_PROGRESS when the
member has something to do: there is a new target assignment, it must revoke partitions, or others released partitions.
Two timers watch the member: one until it joins after such an answer, one from its join to its sync.

For each turn, call one of the public functions, once. All may raise ApiError.

Source: Kafka's GroupMetadataManager.classicGroup*ToConsumerGroup (4.3), KIP-848 (migration).
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import (
    Subscription,
    answer_version,
    read_subscription,
    write_assignment,
)
from barnabas.broker.coordinators.classic.members import CONSUMER_PROTOCOL_TYPE
from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.group import NOTHING
from barnabas.broker.coordinators.consumer.migration import by_name, by_topic_id, may_downgrade
from barnabas.broker.coordinators.consumer.turn import Turn
from barnabas.broker.coordinators.consumer.values import Member, MemberState, Timeout
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

# Join


def join(turn: Turn, event: ev.Join) -> ev.JoinResult:
    """Handle a JoinGroup."""
    member_id = event.member_id or event.new_member_id
    _check_may_join(turn, event, member_id)
    if not event.member_id and event.instance_id is None and event.version >= ev.REQUIRES_MEMBER_ID_FROM:
        return ev.JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    subscription = _subscription(event)
    before = _identify(turn, event, member_id)
    after = _joined(before, event, subscription)
    is_changed = turn.write_member(before, after)
    is_changed = turn.take_regex(before, after)[0] or is_changed
    epoch = turn.raise_epoch(before, after, is_changed)
    owned = by_topic_id(subscription.owned, turn.environment.image.snapshot)
    if _ends_migration(turn):
        after = _join_and_downgrade(turn, epoch, after, owned, is_changed)
    else:
        target_epoch, target = turn.assign(epoch, after)
        after = turn.reconcile(after, target_epoch, target, owned, is_changed=is_changed)
        _watch_joined(turn, event, after.member_id)
    return ev.JoinResult(ErrorCode.NONE, after.member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, event.protocols[0][0])


def _check_may_join(turn: Turn, event: ev.Join, member_id: str) -> None:
    settings = turn.environment.settings
    if not (settings.may_upgrade or settings.may_downgrade):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {turn.group.group_id} with the classic protocol because the group"
            " migration is disabled.",
        )
    turn.check_capacity(member_id)
    votes, count = turn.group.classic_protocol_votes, turn.group.classic_member_count
    is_supported = any(votes[name] == count for name, _ in event.protocols)
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not is_supported:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _identify(turn: Turn, event: ev.Join, member_id: str) -> Member:
    if event.instance_id is None:
        return turn.group.members.get(member_id) or Member(member_id)
    if event.member_id:
        return turn.static_member(event.instance_id, event.member_id)
    existing = turn.group.static_member(event.instance_id)
    return Member(member_id) if existing is None else turn.replace_static(existing, member_id)


def _ends_migration(turn: Turn) -> bool:
    """Return whether this member replaces the last one that speaks the consumer protocol."""
    if turn.replaced_id is None or turn.group.members[turn.replaced_id].uses_classic_protocol:
        return False
    return may_downgrade(turn.group, {turn.replaced_id}, turn.environment.settings, joining_count=1)


def _join_and_downgrade(turn: Turn, epoch: int, member: Member, owned: v.Assignment, is_changed: bool) -> Member:
    group = turn.group
    assert turn.replaced_id is not None
    must_rebalance = group.assignment_epoch < epoch
    if not must_rebalance:
        target = group.target.get(turn.replaced_id, NOTHING)
        member = turn.reconcile(member, group.assignment_epoch, target, owned, is_changed=is_changed)
    turn.downgrade({turn.replaced_id}, must_rebalance=must_rebalance, joining=member)
    return member


def _watch_joined(turn: Turn, event: ev.Join, member_id: str) -> None:
    late = v.MemberExpired(member_id, "it did not sync in time")
    turn.start_session(member_id, event.session_timeout_ms)
    turn.timeouts += [
        Timeout("join", member_id),
        Timeout("sync", member_id, event.rebalance_timeout_ms, late),
    ]


# Sync


def sync(turn: Turn, event: ev.Sync) -> ev.SyncResult:
    """Handle a SyncGroup."""
    member = _classic_member(turn, event.member_id, event.instance_id, event.generation_id)
    assert member.classic is not None
    protocol_name, metadata = member.classic.protocols[0]
    is_same_type = event.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
    if not is_same_type or event.protocol_name not in (None, protocol_name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if turn.group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(turn, member)
        return ev.SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    turn.timeouts.append(Timeout("sync", member.member_id))
    turn.start_session(member.member_id, member.classic.session_timeout_ms)
    partitions = by_name(v.without_epochs(member.assigned), turn.environment.image.snapshot)
    assignment = write_assignment(partitions, answer_version(metadata))
    return ev.SyncResult(ErrorCode.NONE, event.protocol_type, event.protocol_name, assignment)


# Heartbeat, leave


def heartbeat(turn: Turn, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
    """Handle a Heartbeat; REBALANCE_IN_PROGRESS makes the member join again."""
    member = _classic_member(turn, member_id, instance_id, generation_id)
    assert member.classic is not None
    turn.start_session(member.member_id, member.classic.session_timeout_ms)
    must_join = (
        member.epoch < turn.group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not turn.group.waits_for_others(member))
    )
    if not must_join:
        return ErrorCode.NONE
    _expect_join(turn, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(turn: Turn, event: ev.Leave) -> ev.LeaveResult:
    """Handle a LeaveGroup, of members of either protocol: an administrator may remove any."""
    left: list[ev.LeftMember] = []
    leaving: dict[str, Member] = {}
    for one in event.members:
        try:
            member = _leaving_member(turn, one)
        except ApiError as error:
            left.append(ev.LeftMember(one.member_id, one.instance_id, error.code))
        else:
            leaving[member.member_id] = member
            left.append(ev.LeftMember(one.member_id, one.instance_id, ErrorCode.NONE))
    turn.fence(list(leaving.values()))
    return ev.LeaveResult(ErrorCode.NONE, tuple(left))


def _leaving_member(turn: Turn, one: ev.LeavingMember) -> Member:
    if one.instance_id is None:
        return turn.group.member(one.member_id)
    existing = turn.group.static_member(one.instance_id)
    member_id = one.member_id if one.member_id or existing is None else existing.member_id
    return turn.static_member(one.instance_id, member_id)


# Both


def _classic_member(turn: Turn, member_id: str, instance_id: str | None, generation_id: int) -> Member:
    if instance_id is None:
        member = turn.group.member(member_id)
    else:
        member = turn.static_member(instance_id, member_id)
    if not member.uses_classic_protocol:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation_id != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _expect_join(turn: Turn, member: Member) -> None:
    late = v.MemberExpired(member.member_id, "it did not join in time")
    timeout_ms = member.rebalance_timeout_ms
    turn.timeouts.append(Timeout("join", member.member_id, timeout_ms, late, only_if_absent=True))


def _subscription(event: ev.Join) -> Subscription:
    try:
        return read_subscription(event.protocols[0][1])
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None


def _joined(member: Member, event: ev.Join, subscription: Subscription) -> Member:
    """Return the member after its JoinGroup. It speaks the classic protocol now, which has no regular expressions."""
    return replace(
        member,
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if event.rebalance_timeout_ms == -1 else event.rebalance_timeout_ms
        ),
        topic_names=subscription.topics,
        topic_regex="",
        client_id=event.client_id,
        client_host=event.client_host,
        classic=v.ClassicPart(event.session_timeout_ms, event.protocols),
    )
