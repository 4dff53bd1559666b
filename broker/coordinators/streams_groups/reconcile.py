r"""Moves a member of a streams group to its target assignment, one step per heartbeat. Pure.

States (of a member)
                       must revoke                       revoked
    STABLE  --------------------------->  UNREVOKED  -------------------> ... as from STABLE, one epoch later
      |  ^  \                               TASKS
      |  |   \  tasks of its target are not free
      |  |    `----------------------->  UNRELEASED  ---+
      |  |        all are free              TASKS    <--+ some are free: it gets those
      |  +----------------------------------'
      +--> STABLE in the target epoch, if every task of its target is free

Rules
1. STEPS lists the step for each state, depending on whether the member is in the target epoch.
2. A member that does not report its tasks has revoked nothing.
3. A member first revokes the tasks that are not in its target, in its old epoch. Then it enters the target epoch and
   gets the free tasks of its target; the others follow as they are released.
4. A task is free for an active role while no member processes it, and for every role while the member's process does
   not have it (`owners.py`). So a task has at most one active owner, and a state directory one user.
5. A task that this step takes from the member's own process is free with the next heartbeat, not in this step.

Source: Kafka's CurrentAssignmentBuilder (4.3), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from barnabas.broker.coordinators.streams_groups.owners import TaskOwners
from barnabas.broker.coordinators.streams_groups.values import (
    NO_PARTITION,
    NOTHING_OWNED,
    Epochs,
    Member,
    MemberState,
    OwnedTasks,
    Partitions,
    TaskId,
    Tasks,
)
from barnabas.protocol.errors import ApiError, ErrorCode

Step: TypeAlias = "Callable[[Member, Aim], Member]"

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_TASKS
UNRELEASED = MemberState.UNRELEASED_TASKS
UNKNOWN = MemberState.UNKNOWN


@dataclass(slots=True, frozen=True)
class Aim:
    """The target of a member, and who has which tasks."""

    target_epoch: int
    target: Tasks
    owners: TaskOwners
    reported: Tasks | None  # the tasks that the member reports; None: not reported


def reconcile(member: Member, aim: Aim) -> Member:
    """Return the member after its next step; the same one if there is no step to take.

    Raises ApiError(FENCED_MEMBER_EPOCH) for a member in an unknown state, written by newer software, that may have
    tasks.
    """
    in_epoch, behind = STEPS[member.state]
    step = in_epoch if member.epoch == aim.target_epoch else behind
    return step(member, aim)


def _stay(member: Member, _aim: Aim) -> Member:
    return member


def _await_revocation(member: Member, aim: Aim) -> Member:
    if _still_has(member.pending_revocation, aim):
        return member
    # Why the minimum: a target that a damaged log took back must not lead to an epoch that never was
    return _advance_from(member, min(member.epoch + 1, aim.target_epoch), aim)


def _advance(member: Member, aim: Aim) -> Member:
    return _advance_from(member, member.epoch, aim)


def _start_over(member: Member, aim: Aim) -> Member:
    if aim.reported is None or not aim.reported.is_empty:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    return _advance_from(member, aim.target_epoch, aim)


def _still_has(tasks: OwnedTasks, aim: Aim) -> bool:
    return aim.reported is None or aim.reported.has_any_of(tasks)


def _advance_from(member: Member, epoch: int, aim: Aim) -> Member:
    """Revoke tasks that are not in the target; else enter the target epoch with the target's free tasks."""
    kept, to_revoke = _split(member.assigned, aim.target)
    if not to_revoke.is_empty and _still_has(to_revoke, aim):
        return member.moved_to(epoch, UNREVOKED, kept, to_revoke)
    missing = _without(aim.target, kept)
    free = _free(missing, member.process_id, aim.owners)
    assigned = OwnedTasks(
        _with_epoch(kept.active, free.active, aim.target_epoch),
        _union(kept.standby, free.standby),
        _union(kept.warmup, free.warmup),
    )
    return member.moved_to(aim.target_epoch, STABLE if free == missing else UNRELEASED, assigned, NOTHING_OWNED)


# state -> (the step of a member in the target epoch, the step of a member in another epoch)
STEPS: Mapping[MemberState, tuple[Step, Step]] = {
    STABLE: (_stay, _advance),
    UNREVOKED: (_await_revocation, _await_revocation),
    UNRELEASED: (_advance, _advance),
    UNKNOWN: (_start_over, _start_over),
}

# Sets of tasks


def _split(owned: OwnedTasks, target: Tasks) -> tuple[OwnedTasks, OwnedTasks]:
    """Return the tasks that are in the target, and those that are not."""
    kept: dict[str, dict[int, int]] = {}
    gone: dict[str, dict[int, int]] = {}
    for id_, epochs in owned.active.items():
        wanted = target.active.get(id_, NO_PARTITION)
        for partition, epoch in epochs.items():
            (kept if partition in wanted else gone).setdefault(id_, {})[partition] = epoch
    return (
        OwnedTasks(kept, _both(owned.standby, target.standby), _both(owned.warmup, target.warmup)),
        OwnedTasks(gone, _minus(owned.standby, target.standby), _minus(owned.warmup, target.warmup)),
    )


def _without(tasks: Tasks, owned: OwnedTasks) -> Tasks:
    return Tasks(
        _minus(tasks.active, {id_: frozenset(epochs) for id_, epochs in owned.active.items()}),
        _minus(tasks.standby, owned.standby),
        _minus(tasks.warmup, owned.warmup),
    )


def _free(tasks: Tasks, process_id: str, owners: TaskOwners) -> Tasks:
    return Tasks(
        _only(tasks.active, lambda task: owners.is_free_for_active(task, process_id)),
        _only(tasks.standby, lambda task: owners.is_free_for_passive(task, process_id)),
        _only(tasks.warmup, lambda task: owners.is_free_for_passive(task, process_id)),
    )


def _only(tasks: Partitions, accepts: Callable[[TaskId], bool]) -> Partitions:
    return _filled({id_: frozenset(p for p in found if accepts(TaskId(id_, p))) for id_, found in tasks.items()})


def _both(tasks: Partitions, others: Partitions) -> Partitions:
    return _filled({id_: found & others.get(id_, NO_PARTITION) for id_, found in tasks.items()})


def _minus(tasks: Partitions, others: Partitions) -> Partitions:
    return _filled({id_: found - others.get(id_, NO_PARTITION) for id_, found in tasks.items()})


def _union(tasks: Partitions, others: Partitions) -> Partitions:
    return {**tasks, **{id_: found | tasks.get(id_, NO_PARTITION) for id_, found in others.items()}}


def _with_epoch(tasks: Epochs, others: Partitions, epoch: int) -> Epochs:
    return {**tasks, **{id_: {**tasks.get(id_, {}), **dict.fromkeys(found, epoch)} for id_, found in others.items()}}


def _filled(tasks: dict[str, frozenset[int]]) -> Partitions:
    return {id_: found for id_, found in tasks.items() if found}
