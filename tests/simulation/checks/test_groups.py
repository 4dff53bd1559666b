"""The checks of groups: each anomaly is found, and a correct history has none."""

from __future__ import annotations

from tests.simulation.checks.groups import GroupJournal


def kinds(found: list[str]) -> list[str]:
    """The names of anomalies."""
    return [line.split(":")[0] for line in found]


def test_a_correct_history_has_no_anomaly() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0])
    journal.claimed("b", 1, [1])
    journal.consumed("a", 0, [0, 1])
    journal.confirmed(journal.committing("a", {0: 2}))
    journal.claimed("b", 2, [0, 1])
    journal.fetched("b", journal.asking(), {0: 2, 1: -1})
    assert journal.check({0: [0, 1, 2]}, {0: 2}) == []
    assert (journal.claims, journal.commits) == (4, 1)


def test_two_owners_in_a_generation() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0])
    journal.claimed("b", 1, [0])
    assert kinds(journal.check({}, {})) == ["two owners"]


def test_a_commit_of_a_former_owner() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0])
    journal.claimed("b", 2, [0])
    journal.confirmed(journal.committing("a", {0: 1}))
    assert kinds(journal.check({}, {})) == ["former owner"]


def test_a_commit_that_was_sent_before_another_owner_came() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0])
    commit = journal.committing("a", {0: 1})
    journal.claimed("b", 2, [0])
    journal.confirmed(commit)
    assert journal.check({}, {}) == []


def test_a_committed_offset_that_goes_back() -> None:
    journal = GroupJournal("g")
    journal.confirmed(journal.committing("a", {0: 5}))
    journal.fetched("b", journal.asking(), {0: 3})
    assert kinds(journal.check({}, {})) == ["offset went back"]


def test_a_coordinator_that_was_replaced_may_report_an_older_offset() -> None:
    seats = {"now": ("a", 1)}
    journal = GroupJournal("g", lambda: seats["now"])
    journal.confirmed(journal.committing("m", {0: 5}))
    journal.fetched("b", journal.asking(), {0: 3}, by="former")
    asked = journal.asking()
    seats["now"] = ("a", 3)
    journal.fetched("b", asked, {0: 3}, by="a")  # it may have answered while another one led
    assert journal.check({}, {}) == []
    journal.fetched("b", journal.asking(), {0: 3}, by="a")
    assert kinds(journal.check({}, {})) == ["offset went back"]


def test_a_commit_without_an_answer_may_come_late() -> None:
    journal = GroupJournal("g")
    journal.committing("a", {0: 3})
    journal.confirmed(journal.committing("a", {0: 5}))
    journal.fetched("b", journal.asking(), {0: 3})
    assert journal.check({}, {}) == []


def test_a_refused_commit_may_not_come_late() -> None:
    journal = GroupJournal("g")
    journal.refused(journal.committing("a", {0: 3}))
    journal.confirmed(journal.committing("a", {0: 5}))
    journal.fetched("b", journal.asking(), {0: 3})
    assert kinds(journal.check({}, {})) == ["offset went back"]


def test_an_answer_to_an_earlier_question_may_be_older() -> None:
    journal = GroupJournal("g")
    asked = journal.asking()
    journal.confirmed(journal.committing("a", {0: 5}))
    journal.fetched("b", asked, {0: -1})
    assert journal.check({}, {}) == []


def test_a_record_that_no_member_got() -> None:
    journal = GroupJournal("g")
    journal.consumed("a", 0, [0, 2])
    assert kinds(journal.check({0: [0, 1, 2, 3]}, {0: 3})) == ["unread"]


def test_a_member_that_keeps_what_another_one_owns() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0, 1])
    journal.claimed("b", 2, [0])
    journal.kept("a", journal.reporting("a", [0, 1]))
    assert kinds(journal.check({}, {})) == ["owned at a time"]


def test_a_report_that_was_sent_before_another_owner_came() -> None:
    journal = GroupJournal("g")
    journal.claimed("a", 1, [0])
    given = journal.reporting("a", [0])
    journal.claimed("b", 2, [0])
    journal.kept("a", given)
    assert journal.check({}, {}) == []


def test_a_partition_that_is_given_while_another_member_has_it() -> None:
    journal = GroupJournal("g")
    journal.heard("a", "broker", 0)
    journal.given("a", [0, 1], "broker", 10, 100)
    journal.given("b", [1], "broker", 20, 100)
    assert journal.check({}, {}) == ["given too early: g: partition 1 to b, while a owned it"]


def test_a_partition_that_was_given_up_is_given() -> None:
    journal = GroupJournal("g")
    journal.heard("a", "broker", 0)
    journal.given("a", [0, 1], "broker", 10, 100)
    journal.gave_up("a", [0])
    journal.given("b", [1], "broker", 20, 100)
    journal.given("a", [0], "broker", 30, 100)  # again
    journal.given("b", [0], "broker", 100, 100)  # the session of a is over
    journal.gave_up("b", [])
    journal.given("c", [0, 1], "broker", 110, 100)
    assert journal.check({}, {}) == []


def test_a_coordinator_that_was_replaced_may_have_answered_the_former_owner() -> None:
    journal = GroupJournal("g")
    journal.given("a", [0], "former", 10, 100)
    journal.heard("a", "former", 20)
    journal.given("b", [0], "next", 30, 100)
    assert journal.check({}, {}) == []


def test_an_offset_that_was_reported_does_not_go_back() -> None:
    journal = GroupJournal("g")
    journal.fetched("a", journal.asking(), {0: 5, 1: -1})
    journal.fetched("b", journal.asking(), {0: 3, 1: -1})
    assert journal.check({}, {}) == ["offset went back: g: b got 3 for partition 0 after 5"]
