"""`replication/role.py`: roles from pushes, and the states of an ISR change."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.role import (
    GIVEN_UP,
    RECOVERED,
    ROLLED_BACK,
    IsrOutcome,
    IsrProposal,
    LeadershipChange,
    concluded,
    expanding,
    follower_role,
    leader_role,
    resigned,
    shrinking,
)
from barnabas.protocol.errors import ErrorCode

CHANGE = LeadershipChange(1, 4, 7, (1, 2), (1, 2, 3), leader_recovery_state=1)
LEADER = leader_role(CHANGE, start=100)
EXPANDING = expanding(LEADER, frozenset({1, 2, 3}))
PROPOSAL = IsrProposal(4, 7, ((1, -1), (2, 5), (3, 6)), 0, is_expansion=True)


def test_roles_of_a_leader_and_of_a_follower() -> None:
    assert (LEADER.isr, LEADER.maximal_isr, LEADER.leader_epoch_start_offset) == ({1, 2}, {1, 2}, 100)
    assert LEADER.leader_recovery_state == RECOVERED
    assert LEADER.is_under_replicated
    follower = follower_role(CHANGE)
    assert (follower.isr, follower.leader_recovery_state, follower.is_leader) == (frozenset(), 1, False)
    assert not follower.is_under_replicated


def test_a_resigned_leader_keeps_its_epochs() -> None:
    role = resigned(EXPANDING)
    assert (role.is_leader, role.maximal_isr, role.is_isr_change_in_flight) == (False, frozenset(), False)
    assert (role.leader_epoch, role.partition_epoch) == (4, 7)


def test_an_expansion_counts_at_once_and_a_shrink_only_when_accepted() -> None:
    assert (EXPANDING.isr, EXPANDING.maximal_isr) == ({1, 2}, {1, 2, 3})
    role = shrinking(LEADER)
    assert (role.isr, role.maximal_isr, role.is_isr_change_in_flight) == ({1, 2}, {1, 2}, True)


def test_an_accepted_change_is_the_controllers_isr() -> None:
    outcome = IsrOutcome(ErrorCode.NONE, 1, 4, (1, 2, 3), partition_epoch=8)
    role, is_retried = concluded(EXPANDING, PROPOSAL, outcome)
    assert (role.isr, role.maximal_isr, role.partition_epoch) == ({1, 2, 3}, {1, 2, 3}, 8)
    assert not role.is_isr_change_in_flight
    assert not is_retried


def test_a_smaller_isr_stays_in_flight_until_its_push() -> None:
    role = shrinking(LEADER)
    outcome = IsrOutcome(ErrorCode.NONE, 1, 4, (1,), partition_epoch=8)
    assert concluded(role, PROPOSAL._replace(isr=((1, -1),), is_expansion=False), outcome) == (role, False)


@pytest.mark.parametrize("error", sorted(ROLLED_BACK))
def test_a_rolled_back_change_leaves_the_old_isr(error: ErrorCode) -> None:
    assert concluded(EXPANDING, PROPOSAL, IsrOutcome(error)) == (LEADER, False)


@pytest.mark.parametrize("error", sorted(GIVEN_UP))
def test_a_change_that_is_given_up_stays_in_flight(error: ErrorCode) -> None:
    assert concluded(EXPANDING, PROPOSAL, IsrOutcome(error)) == (EXPANDING, False)


def test_another_error_sends_the_proposal_again() -> None:
    assert concluded(EXPANDING, PROPOSAL, IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)) == (EXPANDING, True)


@pytest.mark.parametrize(
    ("role", "proposal", "outcome"),
    [
        (LEADER, PROPOSAL, IsrOutcome(ErrorCode.NONE, 1, 4, (1,), 8)),  # a push has ended the change
        (EXPANDING, PROPOSAL._replace(partition_epoch=6), IsrOutcome(ErrorCode.NONE, 1, 4, (1,), 8)),
        (EXPANDING, PROPOSAL, IsrOutcome(ErrorCode.NONE, 1, 5, (1,), 8)),  # of another leader epoch
        (EXPANDING, PROPOSAL, IsrOutcome(ErrorCode.NONE, 1, 4, (1,), 6)),  # an older partition epoch
    ],
)
def test_an_overtaken_answer_changes_nothing(role, proposal, outcome) -> None:  # type: ignore[no-untyped-def]
    assert concluded(role, proposal, outcome) == (role, False)
