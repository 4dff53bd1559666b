"""Explains the waits of a group's members, in fields and in sentences, for the live page. Pure.

Threads: the page's. It holds no lock, so the group may change between two reads.
Source: KIP-134 (initial rebalance delay), the phases of `classic/turn.py`.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.coordinators.classic.group import COMPLETING, EMPTY, PREPARING, Group
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import GroupState as ConsumerGroupState
from barnabas.broker.coordinators.consumer.values import MemberState
from barnabas.common.pages.live_shape import Reason
from barnabas.common.pages.phrases import count, duration, listed

MEMBERS_LISTED_MAX: Final = 10


def join_reasons(group: Group, now_ms: int, initial_delay_ms: int) -> list[Reason]:
    """Return what a parked JoinGroup waits for, at wall time `now_ms`."""
    if group.state is not PREPARING:
        return [_about(group, "group", f"for group {group.group_id} to answer: it is {group.state.value}")]
    missing, pending = _missing(group)
    left = _left(group, now_ms)
    if not missing and not pending:
        if group.previous_state is EMPTY:
            delay = f"initial rebalance delay {duration(initial_delay_ms)}"  # extended when members join meanwhile
            return [_about(group, "delay", f"for more members of group {group.group_id} to join ({delay})")]
        return [_about(group, "group", f"for group {group.group_id} to start its next generation")]
    of = f"{len(missing) + len(pending)} of {len(group.members) + len(pending)}"
    names = listed([_name(member) for member in missing] + [f"{member_id} (new)" for member_id in pending])
    text = f"for {of} members of group {group.group_id} to join: {names}"
    if left >= 0:
        text += f"; they have {duration(left)} left"
    ids = [member.member_id for member in missing] + pending
    return [{**_about(group, "members", text), "members": ids[:MEMBERS_LISTED_MAX], "left_ms": left}]


def sync_reasons(group: Group) -> list[Reason]:
    """Return what a parked SyncGroup waits for."""
    leader = group.members.by_id.get(group.members.leader_id or "")
    if group.state is not COMPLETING or leader is None:
        return [_about(group, "group", f"for group {group.group_id} to answer: it is {group.state.value}")]
    generation = f"generation {group.generation_id} of group {group.group_id}"
    if leader.member_id in group.members.pending_sync:
        text = f"for the leader, {_name(leader)}, to assign partitions in {generation}"
        return [{**_about(group, "assignment", text), "members": [leader.member_id]}]
    return [_about(group, "write", f"for the assignment of {generation} to be on all in-sync replicas")]


def classic_sentence(group: Group, now_ms: int, initial_delay_ms: int) -> str:
    """Return a sentence on the state of a classic group."""
    size = count(len(group.members), "member")
    if group.state is PREPARING:
        return f"gathers its members: waits {join_reasons(group, now_ms, initial_delay_ms)[0]['text']}"
    if group.state is COMPLETING:
        return f"assigns partitions: waits {sync_reasons(group)[0]['text']}"
    if group.state is EMPTY:
        return "has no members; it keeps offsets"
    return f"is {group.state.value.lower()}: {size} in generation {group.generation_id}"


def consumer_sentence(group: ConsumerGroup) -> str:
    """Return a sentence on the state of a consumer group (KIP-848)."""
    state = group.state
    members = list(group.members.values())
    size = count(len(members), "member")
    if state is ConsumerGroupState.ASSIGNING:
        return f"computes a new assignment for epoch {group.epoch} ({size})"
    if state is ConsumerGroupState.RECONCILING:
        late = [m for m in members if not m.is_reconciled_to(group.assignment_epoch)]
        revoking = [m for m in late if m.state is MemberState.UNREVOKED_PARTITIONS]
        names = listed([f"{m.client_id} ({m.client_host.lstrip('/')})" for m in revoking or late])
        action = "revoke partitions" if revoking else f"reach epoch {group.assignment_epoch}"
        return f"waits for {len(revoking or late)} of {size} to {action}: {names}"
    if state is ConsumerGroupState.EMPTY:
        return "has no members; it keeps offsets"
    return f"is {state.value.lower()}: {size} in epoch {group.epoch}"


def _missing(group: Group) -> tuple[list[Member], list[str]]:
    """Return the members that have not (re)joined yet, and the ids of pending members."""
    members = list(group.members.by_id.values())
    return [m for m in members if m.awaiting_join is None], sorted(group.members.pending_join)


def _left(group: Group, now_ms: int) -> int:
    """Return the ms until the missing members are dropped; -1 if unknown."""
    if group.state_timestamp_ms is None or group.previous_state is EMPTY:
        return -1
    return max(0, group.state_timestamp_ms + group.members.rebalance_timeout_ms() - now_ms)


def _name(member: Member) -> str:
    return f"{member.client_id or member.member_id} ({member.client_host.lstrip('/')})"


def _about(group: Group, kind: str, text: str) -> Reason:
    return {"kind": kind, "text": text, "group": group.group_id}
