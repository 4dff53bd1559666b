"""The reconciliation of a member: every state of the table, in and behind the target epoch, in all variants."""

from __future__ import annotations

import itertools

import pytest

from barnabas.broker.coordinators.consumer.reconcile import STEPS, Aim, reconcile
from barnabas.broker.coordinators.consumer.values import (
    Assignment,
    Member,
    MemberState,
    Owned,
    partitions_of,
    with_epochs,
    without_epochs,
)
from barnabas.protocol.errors import ApiError, ErrorCode

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
T, U = b"t" * 16, b"u" * 16
EPOCH, TARGET = 4, 5


def of(*partitions: int, topic: bytes = T) -> Assignment:
    return {topic: frozenset(partitions)} if partitions else {}


def member(state: MemberState, *assigned: int, pending: tuple[int, ...] = (), epoch: int = EPOCH) -> Member:
    """A member that was assigned these partitions in epoch 3."""
    return Member(
        "m", epoch=epoch, previous_epoch=3, state=state, assigned=with_epochs(of(*assigned), 3),
        pending_revocation=with_epochs(of(*pending), 3),
    )  # fmt: skip


def step(
    before: Member, *target: int, taken: tuple[int, ...] = (), owned: tuple[int, ...] | None = None,
    epoch: int = TARGET, topics: tuple[bytes, ...] = (T,), changed: bool = False,
) -> Member:  # fmt: skip
    """One step towards these partitions, of which others have `taken`; the member reports `owned`."""
    aim = Aim(
        epoch, of(*target), frozenset(topics), changed, lambda _topic, partition: partition not in taken,
        None if owned is None else of(*owned),
    )  # fmt: skip
    return reconcile(before, aim)


def seen(m: Member) -> tuple[MemberState, int, set[int], set[int]]:
    """Return the state, the epoch, the owned partitions, and those to revoke."""
    held, pending = (
        {partition for _, partition in partitions_of(owned)} for owned in (m.assigned, m.pending_revocation)
    )
    return m.state, m.epoch, held, pending


# (state, owned, pending) x (target, taken by others, reported) -> (state, epoch, owned, pending)
TABLE = [
    # Behind the target epoch
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
    (UNREVOKED, (0, 2), (1,), (0,), (), (0, 2), (UNREVOKED, EPOCH, {0}, {2})),  # a newer target takes more away
    (UNRELEASED, (0,), (), (0, 2), (2,), None, (UNRELEASED, TARGET, {0}, set())),
    (UNRELEASED, (0,), (), (0, 2), (), None, (STABLE, TARGET, {0, 2}, set())),
    (UNRELEASED, (0, 1), (), (0, 2), (2,), (0, 1), (UNREVOKED, EPOCH, {0}, {1})),
    (UNKNOWN, (0,), (), (0, 1), (), (), (STABLE, TARGET, {0, 1}, set())),
]


@pytest.mark.parametrize(("state", "held", "pending", "target", "taken", "owned", "after"), TABLE)
def test_behind_the_target_epoch(
    state: MemberState, held: tuple[int, ...], pending: tuple[int, ...], target: tuple[int, ...],
    taken: tuple[int, ...], owned: tuple[int, ...] | None, after: tuple[MemberState, int, set[int], set[int]],
) -> None:  # fmt: skip
    before = member(state, *held, pending=pending)
    now = step(before, *target, taken=taken, owned=owned)
    assert seen(now) == after
    if now != before:
        assert now.previous_epoch == EPOCH


@pytest.mark.parametrize(
    ("before", "owned", "taken", "after"),
    [
        (member(STABLE, 0, epoch=TARGET), None, (), (STABLE, TARGET, {0}, set())),
        (member(UNRELEASED, 0, epoch=TARGET), None, (1,), (UNRELEASED, TARGET, {0}, set())),
        (member(UNRELEASED, 0, epoch=TARGET), None, (), (STABLE, TARGET, {0, 1}, set())),
        (member(UNREVOKED, 0, pending=(3,), epoch=TARGET), (0, 3), (), (UNREVOKED, TARGET, {0}, {3})),
        (member(UNREVOKED, 0, pending=(3,), epoch=TARGET), (0,), (), (STABLE, TARGET, {0, 1}, set())),
    ],
)
def test_in_the_target_epoch(
    before: Member, owned: tuple[int, ...] | None, taken: tuple[int, ...], after: tuple[object, ...]
) -> None:
    assert seen(step(before, 0, 1, taken=taken, owned=owned)) == after


def test_the_epochs_of_assignments_tell_since_when() -> None:
    now = step(member(STABLE, 0, 1), 0, 2, owned=(0,))
    assert now.assigned == {T: {0: 3, 2: TARGET}}
    assert (now.assignment_epoch(T, 0), now.assignment_epoch(T, 2), now.assignment_epoch(T, 1)) == (3, TARGET, None)
    revoking = step(member(STABLE, 0, 1), 0)
    assert revoking.assignment_epoch(T, 1) == 3


class TestSubscriptionChanged:
    """It takes effect at once, whatever the target still says."""

    def test_topics_that_are_no_longer_wanted_are_revoked(self) -> None:
        now = step(member(STABLE, 0, 1, epoch=TARGET), 0, 1, topics=(U,), changed=True, owned=(0, 1))
        assert seen(now) == (UNREVOKED, TARGET, set(), {0, 1})

    def test_they_are_gone_when_the_member_has_them_no_more(self) -> None:
        now = step(member(STABLE, 0, 1, epoch=TARGET), 0, 1, topics=(U,), changed=True, owned=())
        assert seen(now) == (STABLE, TARGET, set(), set())

    def test_what_is_revoked_already_is_added_to(self) -> None:
        before = member(UNREVOKED, 0, pending=(1,))
        assert seen(step(before, 0, topics=(U,), changed=True, owned=(0, 1))) == (UNREVOKED, EPOCH, set(), {0, 1})
        assert step(before, 0, topics=(U,), changed=False, owned=(0, 1)) == before

    def test_nothing_happens_to_what_is_still_wanted(self) -> None:
        before = member(STABLE, 0, 1, epoch=TARGET)
        assert step(before, 0, 1, topics=(T, U), changed=True, owned=(0, 1)) is before

    def test_a_target_that_names_it_gives_nothing_of_it(self) -> None:
        assert seen(step(member(STABLE), 0, 1, topics=(U,))) == (STABLE, TARGET, set(), set())


@pytest.mark.parametrize("owned", [None, (0,)])
def test_a_member_in_an_unknown_state_starts_over(owned: tuple[int, ...] | None) -> None:
    with pytest.raises(ApiError) as caught:
        step(member(UNKNOWN, 0), 0, owned=owned)
    assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH


def test_every_state_is_in_the_table() -> None:
    assert set(STEPS) == set(MemberState)
    assert {MemberState.of(value) for value in (0, 1, 2, 3, -1)} == set(MemberState)


@pytest.mark.parametrize("state", [STABLE, UNREVOKED, UNRELEASED])
def test_no_step_grants_what_another_has_or_forgets_what_it_has(state: MemberState) -> None:
    """Over all targets, owners and claims of three partitions."""
    subsets = [tuple(c) for size in range(4) for c in itertools.combinations(range(3), size)]
    for held, target, taken, owned in itertools.product(subsets, repeat=4):
        if set(held) & set(taken):
            continue
        pending = (3,) if state is UNREVOKED else ()
        before = member(state, *held, pending=pending)
        now = step(before, *target, taken=taken, owned=owned)
        has = {partition for _, partition in partitions_of(without_epochs(now.assigned))}
        _, _, _, revoking = seen(now)
        assert not has & set(taken)
        assert has <= set(held) | set(target)
        assert set(held) & set(owned) <= has | revoking, "its partitions stay its own until it reports otherwise"
        assert (now.state is UNREVOKED) == bool(revoking)
        assert now.epoch == (EPOCH if now.state is UNREVOKED else TARGET)
        if now.state is STABLE:
            assert has == set(target)


def test_owned_of_other_topics_does_not_matter() -> None:
    owned: Owned = with_epochs(of(1, topic=U), 1)
    aim = Aim(TARGET, of(0), frozenset({T}), False, lambda _t, _p: True, without_epochs(owned))
    assert seen(reconcile(member(STABLE, 0, 1), aim)) == (STABLE, TARGET, {0}, set())
