"""The checks of share groups."""

from __future__ import annotations

from tests.simulation.checks.shares import ACCEPT, REJECT, RELEASE, ShareJournal


def kinds(journal: ShareJournal, end: int = 0) -> list[str]:
    """The names of anomalies, of a partition that ends there."""
    return [line.split(":")[0] for line in journal.check({0: end})]


def delivered(journal: ShareJournal, first: int, last: int, count: int = 1) -> None:
    """A member got records."""
    journal.delivered("m", 0, first, last, count, range(first, last + 1))


def test_a_record_is_settled_once() -> None:
    journal = ShareJournal(5)
    first, late = journal.asking(), journal.asking()
    delivered(journal, 0, 2)
    journal.confirmed("m", 0, 0, 1, ACCEPT, first)
    journal.confirmed("m", 0, 2, 2, RELEASE, first)
    journal.confirmed("n", 0, 2, 2, REJECT, journal.asking())
    journal.confirmed("n", 0, 1, 1, REJECT, late)
    assert kinds(journal, 3) == []
    assert (journal.settled, journal.deliveries) == (3, 3)
    journal.confirmed("n", 0, 1, 1, REJECT, journal.asking())
    assert kinds(journal, 3) == ["settled twice"]


def test_no_record_is_skipped() -> None:
    journal = ShareJournal(5)
    delivered(journal, 0, 0)
    journal.confirmed("m", 0, 0, 0, ACCEPT, journal.asking())
    delivered(journal, 2, 2, 4)
    assert journal.left({0: 3}) == [(0, 1), (0, 2)]
    assert kinds(journal, 3) == ["skipped", "skipped"]
    journal.unanswered(0, 1, 1, ACCEPT)
    journal.unanswered(0, 2, 2, RELEASE)
    assert journal.left({0: 3}) == [(0, 2)]


def test_a_record_that_was_delivered_as_often_as_it_may_be_is_done() -> None:
    journal = ShareJournal(2)
    delivered(journal, 0, 0, 2)
    delivered(journal, 1, 1, 1)
    assert journal.left({0: 3}) == [(0, 1), (0, 2)]
    journal.lost([0])
    assert journal.left({0: 3}) == [(0, 2)], "its last delivery was perhaps lost"
    delivered(journal, 2, 2, 1)
    assert journal.left({0: 3}) == [(0, 2)], "what was lost before was another delivery"


def test_a_delivery_too_many() -> None:
    journal = ShareJournal(2)
    delivered(journal, 0, 0, 3)
    assert kinds(journal) == ["too often"]


def test_acquired_records_are_sent() -> None:
    journal = ShareJournal(2)
    journal.delivered("m", 0, 3, 5, 1, [3, 5])
    assert kinds(journal) == ["not sent"]
