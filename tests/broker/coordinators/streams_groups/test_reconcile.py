"""The reconciliation of a member: every state of the table, in and behind the target epoch, in each role."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.streams_groups.owners import TaskOwners
from barnabas.broker.coordinators.streams_groups.reconcile import STEPS, Aim, reconcile
from barnabas.broker.coordinators.streams_groups.values import (
    NOTHING_OWNED,
    Member,
    MemberState,
    OwnedTasks,
    Tasks,
)
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.streams_groups.walk import ROLES, Walk

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
EPOCH, TARGET = 4, 6


def tasks(role: str, *partitions: int) -> Tasks:
    found = {"0": frozenset(partitions)} if partitions else {}
    return Tasks(**{role: found})


def owned(role: str, *partitions: int, epoch: int = 3) -> OwnedTasks:
    if role == "active":
        return OwnedTasks({"0": dict.fromkeys(partitions, epoch)} if partitions else {})
    return OwnedTasks(**{role: {"0": frozenset(partitions)} if partitions else {}})


def in_role(role: str, found: OwnedTasks) -> set[int]:
    plain = found.without_epochs()
    assert {other for other in ROLES if getattr(plain, other)} <= {role}
    return set(getattr(plain, role).get("0", ()))


def member(role: str, state: MemberState, has: tuple[int, ...], pending: tuple[int, ...], epoch: int = EPOCH) -> Member:
    return Member(
        "m", process_id="p", epoch=epoch, previous_epoch=3, state=state, assigned=owned(role, *has),
        pending_revocation=owned(role, *pending),
    )  # fmt: skip


def aim(role: str, target: tuple[int, ...], taken: tuple[int, ...], reported: tuple[int, ...] | None) -> Aim:
    """Others of the process have the `taken` tasks, in the same role."""
    others = Member("n", process_id="p", assigned=owned(role, *taken))
    return Aim(
        TARGET, tasks(role, *target), TaskOwners.of([others]), None if reported is None else tasks(role, *reported)
    )


# (state, tasks, pending) x (target, taken by others, reported) -> (state, epoch, tasks, pending)
BEHIND = [
    (STABLE, (0, 1), (), (0, 1), (), None, (STABLE, TARGET, {0, 1}, set())),
    (STABLE, (0, 1), (), (0, 1, 2), (), None, (STABLE, TARGET, {0, 1, 2}, set())),
    (STABLE, (0, 1), (), (0, 1, 2), (2,), None, (UNRELEASED, TARGET, {0, 1}, set())),
    (STABLE, (0, 1), (), (0, 1, 2, 3), (2,), None, (UNRELEASED, TARGET, {0, 1, 3}, set())),
    (STABLE, (0, 1), (), (0,), (), None, (UNREVOKED, EPOCH, {0}, {1})),
    (STABLE, (0, 1), (), (0,), (), (0, 1), (UNREVOKED, EPOCH, {0}, {1})),
    (STABLE, (0, 1), (), (0,), (), (0,), (STABLE, TARGET, {0}, set())),
    (STABLE, (0, 1), (), (2,), (), (0, 1), (UNREVOKED, EPOCH, set(), {0, 1})),
    (STABLE, (0, 1), (), (0, 2), (2,), (0,), (UNRELEASED, TARGET, {0}, set())),
    (STABLE, (), (), (), (), (), (STABLE, TARGET, set(), set())),
    (UNREVOKED, (0,), (1,), (0,), (), None, (UNREVOKED, EPOCH, {0}, {1})),
    (UNREVOKED, (0,), (1,), (0,), (), (0, 1), (UNREVOKED, EPOCH, {0}, {1})),
    (UNREVOKED, (0,), (1,), (0,), (), (0,), (STABLE, TARGET, {0}, set())),
    (UNREVOKED, (0,), (1,), (0, 2), (2,), (0,), (UNRELEASED, TARGET, {0}, set())),
    (UNREVOKED, (0,), (1,), (0, 2), (), (0,), (STABLE, TARGET, {0, 2}, set())),
    (UNREVOKED, (0, 2), (1,), (0,), (), (0, 2), (UNREVOKED, EPOCH + 1, {0}, {2})),  # a newer target takes more away
    (UNRELEASED, (0,), (), (0, 2), (2,), None, (UNRELEASED, TARGET, {0}, set())),
    (UNRELEASED, (0,), (), (0, 2), (), None, (STABLE, TARGET, {0, 2}, set())),
    (UNRELEASED, (0, 1), (), (0, 2), (2,), (0, 1), (UNREVOKED, EPOCH, {0}, {1})),
    (UNKNOWN, (0,), (), (0, 1), (), (), (STABLE, TARGET, {0, 1}, set())),
    (UNKNOWN, (0,), (), (0, 1), (1,), (), (UNRELEASED, TARGET, {0}, set())),
]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("state", "has", "pending", "target", "taken", "reported", "expected"), BEHIND)
def test_behind_the_target_epoch(
    role: str, state: MemberState, has: tuple[int, ...], pending: tuple[int, ...], target: tuple[int, ...],
    taken: tuple[int, ...], reported: tuple[int, ...] | None, expected: tuple[MemberState, int, set[int], set[int]],
) -> None:  # fmt: skip
    before = member(role, state, has, pending)
    after = reconcile(before, aim(role, target, taken, reported))
    found = (after.state, after.epoch, in_role(role, after.assigned), in_role(role, after.pending_revocation))
    assert found == expected
    if after != before:
        assert after.previous_epoch == EPOCH


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("state", "has", "pending", "taken", "reported", "expected"),
    [
        (STABLE, (0,), (), (), None, (STABLE, TARGET, {0}, set())),
        (UNRELEASED, (0,), (), (1,), None, (UNRELEASED, TARGET, {0}, set())),
        (UNRELEASED, (0,), (), (), None, (STABLE, TARGET, {0, 1}, set())),
        (UNREVOKED, (0,), (3,), (), (0, 3), (UNREVOKED, TARGET, {0}, {3})),
        (UNREVOKED, (0,), (3,), (), (0,), (STABLE, TARGET, {0, 1}, set())),
        (UNREVOKED, (0, 4), (3,), (), (0, 4), (UNREVOKED, TARGET, {0}, {4})),  # not beyond the target epoch
        (UNKNOWN, (0,), (), (), (), (STABLE, TARGET, {0, 1}, set())),
    ],
)
def test_in_the_target_epoch(
    role: str, state: MemberState, has: tuple[int, ...], pending: tuple[int, ...], taken: tuple[int, ...],
    reported: tuple[int, ...] | None, expected: tuple[MemberState, int, set[int], set[int]],
) -> None:  # fmt: skip
    after = reconcile(member(role, state, has, pending, TARGET), aim(role, (0, 1), taken, reported))
    found = (after.state, after.epoch, in_role(role, after.assigned), in_role(role, after.pending_revocation))
    assert found == expected


@pytest.mark.parametrize("reported", [None, (0,)])
def test_a_member_in_an_unknown_state_starts_without_tasks(reported: tuple[int, ...] | None) -> None:
    with pytest.raises(ApiError) as caught:
        reconcile(member("active", UNKNOWN, (0,), ()), aim("active", (0,), (), reported))
    assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_every_state_has_its_steps() -> None:
    assert set(STEPS) == set(MemberState)


def test_the_epochs_of_active_tasks_tell_since_when() -> None:
    after = reconcile(member("active", STABLE, (0, 1), ()), aim("active", (0, 2), (), (0,)))
    assert after.assigned == OwnedTasks({"0": {0: 3, 2: TARGET}})
    revoking = reconcile(member("active", STABLE, (0, 1), ()), aim("active", (0,), (), None))
    assert revoking.pending_revocation == OwnedTasks({"0": {1: 3}})


def test_a_task_changes_its_role_in_a_process_with_two_heartbeats() -> None:
    """The member drops the standby task; its process has the task until that is written."""
    before = member("standby", STABLE, (0,), ())
    target = Aim(TARGET, tasks("active", 0), TaskOwners.of([before]), tasks("standby"))
    waiting = reconcile(before, target)
    assert (waiting.state, waiting.assigned) == (UNRELEASED, NOTHING_OWNED)
    after = reconcile(waiting, Aim(TARGET, tasks("active", 0), TaskOwners.of([waiting]), tasks("standby")))
    assert (after.state, after.assigned) == (STABLE, owned("active", 0, epoch=TARGET))


# Properties


@pytest.mark.parametrize("seed", range(20))
def test_no_task_has_two_owners_and_all_members_get_their_target(seed: int) -> None:
    walk = Walk(seed)
    walk.run(300)
    for _ in range(12):
        for name in walk.members:
            walk.obey(name)
            walk.heartbeat(name, reports=True)
            walk.check()
    for name, found in walk.members.items():
        assert found.is_reconciled_to(walk.epoch)
        assert found.assigned.without_epochs() == walk.targets[name]
