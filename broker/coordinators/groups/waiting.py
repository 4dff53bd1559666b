"""Explains the waits of a group's members, in fields and in sentences, for the live page. Pure.

Threads: the page's. It holds no lock, so the group may change between two reads.
Source: KIP-134 (initial rebalance delay), the phases of `classic/turn.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.classic.group import COMPLETING, EMPTY, PREPARING, Group
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import GroupState as ConsumerGroupState
from barnabas.broker.coordinators.consumer.values import MemberState
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.partitions import partitions_in
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import GroupState as StreamsGroupState
from barnabas.broker.coordinators.streams_groups.values import Member as StreamsMember
from barnabas.broker.coordinators.streams_groups.values import MemberState as StreamsMemberState
from barnabas.common.pages.phrases import count, duration, listed

if TYPE_CHECKING:
    from barnabas.common.pages.live_shape import Reason

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


def share_sentence(group: ShareGroup) -> str:
    """Return a sentence on the state of a share group (KIP-932)."""
    size = count(len(group.members), "member")
    initializing = _share_partitions_to_come(group)
    if not group.members:
        return "has no members; it keeps share partitions"
    if initializing:
        return f"initialises {count(len(initializing), 'share partition')} for {size}: {listed(initializing)}"
    if group.epoch > group.assignment_epoch:
        return f"is to assign partitions for epoch {group.epoch} ({size})"
    late = [m for m in list(group.members.values()) if m.epoch != group.assignment_epoch]
    if late:
        names = listed([f"{m.client_id} ({m.client_host.lstrip('/')})" for m in late])
        return f"waits for {len(late)} of {size} to get epoch {group.assignment_epoch}: {names}"
    return f"is stable: {size} in epoch {group.epoch}"


def streams_sentence(group: StreamsGroup) -> str:
    """Return a sentence on the state of a streams group (KIP-1071)."""
    state = group.state
    members = list(group.members.values())
    size = count(len(members), "member")
    if group.shutdown_member_id is not None:
        return f"is to shut down: member {group.shutdown_member_id} asked for it ({size} left)"
    if state is StreamsGroupState.EMPTY:
        return "has no members; it keeps offsets"
    if state is StreamsGroupState.NOT_READY:
        problem = None if group.configured is None else group.configured.problem
        return f"has no tasks ({size}): " + ("its topology is not checked yet" if problem is None else problem.detail)
    if state is StreamsGroupState.ASSIGNING:
        return f"is to assign tasks for epoch {group.epoch} ({size})"
    if state is StreamsGroupState.RECONCILING:
        late = [m for m in members if not m.is_reconciled_to(group.assignment_epoch)]
        revoking = [m for m in late if m.state is StreamsMemberState.UNREVOKED_TASKS]
        names = listed([f"{m.client_id} ({m.client_host.lstrip('/')})" for m in revoking or late])
        action = "revoke tasks" if revoking else f"reach epoch {group.assignment_epoch}"
        return f"waits for {len(revoking or late)} of {size} to {action}: {names}"
    return f"is {state.value.lower()}: {size} in epoch {group.epoch}"


def tasks_in_words(member: StreamsMember) -> str:
    """Return how many tasks a member of a streams group has in each role."""
    has, revokes = member.assigned, member.pending_revocation
    roles: tuple[tuple[str, tuple[Mapping[str, Sized], ...]], ...] = (
        ("active", (has.active,)), ("standby", (has.standby,)), ("warm-up", (has.warmup,)),
        ("to revoke", (revokes.active, revokes.standby, revokes.warmup)),
    )  # fmt: skip
    counts = [(sum(len(part) for tasks in each for part in tasks.values()), role) for role, each in roles]
    return ", ".join(f"{number} {role}" for number, role in counts if number) or "none"


def _share_partitions_to_come(group: ShareGroup) -> list[str]:
    """Return those that members get once their state is initialised (not of topics that nobody reads any more)."""
    known = group.partitions
    return [
        f"{part.name}-{partition}"
        for topic_id, part in list(known.initializing.items())
        for partition in sorted(part.partitions - partitions_in(known.initialized, topic_id))
        if part.name in group.topic_names
    ]


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
