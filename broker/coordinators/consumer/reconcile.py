r"""Moves a member of a consumer group to its target assignment, one step per heartbeat. Pure.

States (of a member)
                       must revoke                         revoked
    STABLE  --------------------------->  UNREVOKED  ---------------------> ... as from STABLE, in the same epoch
      |  ^  \                            PARTITIONS
      |  |   \  others still own some of its target
      |  |    `------------------------> UNRELEASED  ---+
      |  |        all are released       PARTITIONS  <--+ some are released: it gets those
      |  +----------------------------------'
      +--> STABLE in the target epoch, if every partition of its target is free

Theory
The group never waits for all its members. A member first revokes the partitions that are not in its target, in its old
epoch. Then it enters the target epoch and gets the free partitions of its target; the others follow as their owners
release them. A partition is assigned only while no member owns it, so it has at most one owner at any time.

Rules
1. STEPS lists the step for each state, depending on whether the member is in the target epoch.
2. A member that does not report the partitions it owns has revoked nothing.
3. A changed subscription takes effect at once, before there is a new target assignment: partitions of topics that it
   no longer names are revoked.

Source: Kafka's CurrentAssignmentBuilder (4.3), KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from barnabas.broker.coordinators.consumer.values import Assignment, Member, MemberState, Owned
from barnabas.protocol.errors import ApiError, ErrorCode

Step: TypeAlias = "Callable[[Member, Aim], Member]"
T = TypeVar("T", dict[int, int], list[int])

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS
UNKNOWN = MemberState.UNKNOWN


@dataclass(slots=True, frozen=True)
class Aim:
    """The target of a member, and the state of the partitions."""

    target_epoch: int
    target: Assignment
    topic_ids: Set[bytes]  # of the existing topics that the member is subscribed to
    is_subscription_changed: bool
    is_free: Callable[[bytes, int], bool]  # (topic id, partition) -> no other member owns it, or has yet to revoke it
    owned: Assignment | None  # what the member reports to own; None: not reported


def reconcile(member: Member, aim: Aim) -> Member:
    """Return the member after its next step; the same one if there is no step to take.

    Raises ApiError(FENCED_MEMBER_EPOCH) for a member in an unknown state, written by newer software, that owns
    partitions.
    """
    in_epoch, behind = STEPS[member.state]
    step = in_epoch if member.epoch == aim.target_epoch else behind
    return step(member, aim)


def _obey_subscription(member: Member, aim: Aim) -> Member:
    return _drop_unsubscribed(member, aim) if aim.is_subscription_changed else member


def _await_revocation(member: Member, aim: Aim) -> Member:
    if _still_owns(member.pending_revocation, aim):
        return _obey_subscription(member, aim)
    return _advance(member, aim)


def _start_over(member: Member, aim: Aim) -> Member:
    if aim.owned is None or aim.owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _advance(member, aim)


def _still_owns(partitions: Owned, aim: Aim) -> bool:
    if aim.owned is None:
        return True
    return any(not partitions.get(topic_id, {}).keys().isdisjoint(held) for topic_id, held in aim.owned.items())


def _drop_unsubscribed(member: Member, aim: Aim) -> Member:
    """Revoke topics that the member is no longer subscribed to, without waiting for the next target assignment."""
    gone = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in aim.topic_ids}
    if not gone:
        return member
    kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in aim.topic_ids}
    pending = dict(member.pending_revocation)
    for topic_id, held in gone.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **held}
    if _still_owns(pending, aim):
        return member.moved_to(member.epoch, UNREVOKED, kept, pending)
    return member.moved_to(member.epoch, member.state, kept, member.pending_revocation)


def _advance(member: Member, aim: Aim) -> Member:
    """Revoke partitions that are not in the target; else enter the target epoch with the target's free partitions."""
    kept: dict[bytes, dict[int, int]] = {}
    to_revoke: dict[bytes, dict[int, int]] = {}
    granted: dict[bytes, list[int]] = {}
    is_waiting = False
    for topic_id in aim.target.keys() | member.assigned.keys():
        target = aim.target.get(topic_id, frozenset()) if topic_id in aim.topic_ids else frozenset()
        held = member.assigned.get(topic_id, {})
        missing = sorted(target - held.keys())
        free = [partition for partition in missing if aim.is_free(topic_id, partition)]
        is_waiting = is_waiting or len(free) < len(missing)
        _put(kept, topic_id, {partition: epoch for partition, epoch in held.items() if partition in target})
        _put(to_revoke, topic_id, {partition: epoch for partition, epoch in held.items() if partition not in target})
        _put(granted, topic_id, free)
    if to_revoke and _still_owns(to_revoke, aim):
        return member.moved_to(member.epoch, UNREVOKED, kept, to_revoke)
    for topic_id, partitions in granted.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(partitions, aim.target_epoch)}
    return member.moved_to(aim.target_epoch, UNRELEASED if is_waiting else STABLE, kept, {})


def _put(found: dict[bytes, T], topic_id: bytes, partitions: T) -> None:
    if partitions:
        found[topic_id] = partitions


# state -> (the step of a member in the target epoch, the step of a member in another epoch)
STEPS: Mapping[MemberState, tuple[Step, Step]] = {
    STABLE: (_obey_subscription, _advance),
    UNREVOKED: (_await_revocation, _await_revocation),
    UNRELEASED: (_advance, _advance),
    UNKNOWN: (_start_over, _start_over),
}
