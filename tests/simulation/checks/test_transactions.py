"""The checks of transactions: each anomaly is found, and a correct history has none."""

from __future__ import annotations

import pytest

from tests.simulation.checks.transactions import Logged, Outcome, Transaction, TransactionJournal, Value, circles

X0, X1 = ("x", 0), ("x", 1)


def committed(journal: TransactionJournal, producer: str, *places: tuple[str, int]) -> Transaction:
    """A transaction that was committed."""
    transaction = journal.begin(producer)
    for place in places:
        transaction.write(place)
    transaction.is_commit_sent = True
    transaction.outcome = Outcome.COMMITTED
    return transaction


def aborted(journal: TransactionJournal, producer: str, *places: tuple[str, int]) -> Transaction:
    """A transaction that was aborted."""
    transaction = committed(journal, producer, *places)
    transaction.is_commit_sent = False
    transaction.outcome = Outcome.ABORTED
    return transaction


def kinds(found: list[str]) -> list[str]:
    """The names of anomalies."""
    return [line.split(":")[0] for line in found]


def test_a_correct_history_has_no_anomaly() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0, X1)
    aborted(journal, "b", X0)
    journal.read("r", X0, 0, Value("a", 0, 0))
    final = {
        X0: [Logged(0, Value("a", 0, 0), True), Logged(1, Value("b", 0, 0), False)],
        X1: [Logged(0, Value("a", 0, 1), True)],
    }
    assert journal.check(final) == []
    assert journal.count(Outcome.COMMITTED) == journal.read_count() == 1


def test_a_lost_record_of_a_committed_transaction() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0, X1)
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), True)]})) == ["lost"]


def test_a_confirmed_commit_that_became_an_abort() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0)
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), False)]})) == ["wrong outcome"]


def test_an_abort_that_became_a_commit() -> None:
    journal = TransactionJournal()
    aborted(journal, "a", X0)
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), True)]})) == ["wrong outcome"]


def test_a_transaction_with_two_outcomes() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0, X1).outcome = Outcome.UNKNOWN
    final = {X0: [Logged(0, Value("a", 0, 0), True)], X1: [Logged(0, Value("a", 0, 1), False)]}
    assert kinds(journal.check(final)) == ["torn"]


def test_a_record_that_is_there_twice() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0)
    value = Value("a", 0, 0)
    assert kinds(journal.check({X0: [Logged(0, value, True), Logged(1, value, True)]})) == ["duplicated"]


def test_transactions_of_a_producer_in_another_order() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0)
    committed(journal, "a", X0)
    final = {X0: [Logged(0, Value("a", 1, 0), True), Logged(1, Value("a", 0, 0), True)]}
    assert kinds(journal.check(final)) == ["G0"]


def test_an_aborted_record_that_was_read() -> None:
    journal = TransactionJournal()
    aborted(journal, "a", X0)
    journal.read("r", X0, 0, Value("a", 0, 0))
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), False)]})) == ["precommitted read", "G1a"]


def test_a_part_of_a_transaction_that_was_read() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0, X0, X0)
    journal.read("r", X0, 0, Value("a", 0, 0))
    journal.read("r", X0, 2, Value("a", 0, 2))
    final = {X0: [Logged(index, Value("a", 0, index), True) for index in range(3)]}
    assert kinds(journal.check(final)) == ["G1b"]


def test_transactions_that_read_each_other() -> None:
    journal = TransactionJournal()
    first, second = committed(journal, "a", X0), committed(journal, "b", X1)
    journal.read("a", X1, 0, Value("b", 0, 0), first)
    journal.read("b", X0, 0, Value("a", 0, 0), second)
    final = {X0: [Logged(0, Value("a", 0, 0), True)], X1: [Logged(0, Value("b", 0, 0), True)]}
    assert kinds(journal.check(final)) == ["G1c"]


def test_a_read_that_was_rolled_back() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0)
    journal.read("r", X0, 5, Value("a", 0, 0))
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), True)]})) == ["unstable read"]


def test_a_reader_that_goes_back() -> None:
    journal = TransactionJournal()
    committed(journal, "a", X0)
    journal.read("r", X0, 0, Value("a", 0, 0))
    journal.read("r", X0, 0, Value("a", 0, 0))
    assert kinds(journal.check({X0: [Logged(0, Value("a", 0, 0), True)]})) == ["nonmonotonic poll"]


def test_a_value_is_its_bytes() -> None:
    value = Value("p", 3, 7)
    assert Value.decoded(value.encoded()) == value


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({("a", 0): [("a", 1)], ("a", 1): []}, []),
        ({("a", 0): [("a", 1), ("b", 0)], ("a", 1): [("b", 0)], ("b", 0): []}, []),
        ({("a", 0): [("a", 0)]}, [[("a", 0), ("a", 0)]]),
        ({("a", 0): [("b", 0)], ("b", 0): [("a", 0)]}, [[("a", 0), ("b", 0), ("a", 0)]]),
    ],
)
def test_circles(after: dict[tuple[str, int], list[tuple[str, int]]], found: list[list[tuple[str, int]]]) -> None:
    assert list(circles(after)) == found
