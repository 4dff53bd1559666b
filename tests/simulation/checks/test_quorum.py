"""What the journal of a quorum notices."""

from __future__ import annotations

import pytest

from tests.simulation.checks.quorum import QuorumJournal, Stored

A0, A1, B1 = Stored(0, 1, 1, 10), Stored(2, 2, 1, 11), Stored(2, 2, 2, 12)


@pytest.fixture
def journal() -> QuorumJournal:
    """The journal of three replicas."""
    return QuorumJournal(3)


def test_an_epoch_has_one_leader(journal: QuorumJournal) -> None:
    assert journal.led("a", 1) == journal.led("a", 1) == journal.led("b", 2) == []
    assert journal.led("b", 1) == ["two leaders: a and b in epoch 1"]


def test_a_disk_keeps_its_vote_until_the_leader_is_known(journal: QuorumJournal) -> None:
    assert journal.stored_state("a", "disk", 1, None, None) == []
    assert journal.stored_state("a", "disk", 1, None, 5) == []
    assert journal.stored_state("a", "disk", 1, 5, None) == []
    assert journal.stored_state("a", "disk", 2, None, 6) == []
    assert journal.stored_state("a", "another disk", 2, None, 7) == []
    (problem,) = journal.stored_state("a", "disk", 2, None, 7)
    assert problem == "voted twice: a has voted for 6 in epoch 2, and has the vote 7"
    assert journal.stored_state("a", "disk", 2, None, None)[0].startswith("voted twice: ")


def test_the_epoch_of_a_disk_rises(journal: QuorumJournal) -> None:
    assert journal.stored_state("a", "disk", 4, None, None) == []
    assert journal.stored_state("a", "disk", 3, None, None) == ["epoch back: a had epoch 4, and has 3"]


def test_committed_batches_are_one_history(journal: QuorumJournal) -> None:
    assert journal.knows_committed("a", [A0, A1], 3) == journal.knows_committed("b", [A0, B1], 2) == []
    assert journal.committed == 2
    assert journal.knows_committed("c", [A1], 3) == []  # after a snapshot
    assert journal.knows_committed("b", [A0, B1], 3) == [f"two histories: {A1} for a, {B1} for b"]
    assert journal.knows_committed("b", [A0, Stored(3, 3, 1, 1)], 4) == ["two histories: b lacks offset 2"]
    assert journal.knows_committed("b", [A0], 3) == ["two histories: b ends at 2, and knows 3 to be committed"]


def test_what_is_committed_is_on_a_majority_of_the_disks(journal: QuorumJournal) -> None:
    assert journal.durable({"a": 3, "b": 3, "c": 0}, 3) == []
    (problem,) = journal.durable({"a": 3, "b": 2, "c": 2}, 3)
    assert problem.startswith("not durable: everything below 3 ")


def test_a_leader_has_everything(journal: QuorumJournal) -> None:
    journal.knows_committed("a", [A0, A1], 3)
    assert journal.leads("b", [A0, A1]) == journal.leads("b", [A1]) == journal.leads("b", []) == []
    (problem,) = journal.leads("b", [A0])
    assert problem == f"incomplete: b leads with None, but a had committed {A1}"


def test_one_offset_has_one_state(journal: QuorumJournal) -> None:
    assert journal.applied("a", 7, {"t": 1}) == journal.applied("b", 7, {"t": 1}) == journal.applied("b", 8, {}) == []
    assert journal.applied("c", 7, {"t": 2}) == ["two states: a and c differ at offset 7"]


def test_a_leader_has_the_votes_of_a_majority_of_the_disks(journal: QuorumJournal) -> None:
    assert journal.elected("a", 3, 2) == []
    assert journal.elected("a", 3, 1) == ["not elected: a leads epoch 3 with 1 votes"]


def test_a_leader_commits_nothing_before_a_record_of_its_own(journal: QuorumJournal) -> None:
    assert journal.leader_commits("a", 3, 7, -1) == journal.leader_commits("a", 3, 7, 8) == []
    (problem,) = journal.leader_commits("a", 3, 7, 7)
    assert problem == "early commit: a takes 7 for committed; its epoch 3 begins at 7"
