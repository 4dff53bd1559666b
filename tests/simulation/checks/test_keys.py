"""The checks of compacted and trimmed topics."""

from __future__ import annotations

from tests.simulation.checks.keys import KeyJournal, TrimmedJournal


def kinds(found: list[str]) -> list[str]:
    """The names of anomalies."""
    return [line.split(":")[0] for line in found]


def keys(*tombstones: bool) -> KeyJournal:
    """A journal with acknowledged records of one key."""
    journal = KeyJournal()
    for is_tombstone in tombstones:
        journal.acknowledge(b"k", journal.send(b"k", is_tombstone=is_tombstone))
    return journal


def test_the_last_record_of_a_key_is_kept() -> None:
    assert keys(False, False).check({b"k": 1}) == []
    assert kinds(keys(False, False).check({b"k": 0})) == ["lost"]
    assert kinds(keys(False, False).check({})) == ["lost"]


def test_a_tombstone_may_go() -> None:
    assert keys(False, True).check({}) == []
    assert keys(False, True).check({b"k": None}) == []
    assert kinds(keys(False, True).check({b"k": 0})) == ["lost"]


def test_a_later_record_without_an_acknowledgement_may_be_there() -> None:
    journal = keys(False)
    journal.send(b"k", is_tombstone=True)
    assert journal.check({}) == journal.check({b"k": 0}) == []


def test_the_numbers_of_a_key_increase() -> None:
    journal = keys(False, False)
    journal.read("r", b"k", 1)
    journal.read("r", b"k", None)
    journal.read("r", b"k", 0)
    assert kinds(journal.check({b"k": 1})) == ["reordered"]


def test_a_record_that_nobody_sent() -> None:
    journal = keys(False)
    journal.read("r", b"k", 7)
    assert kinds(journal.check({b"k": 0})) == ["invented"]


def trimmed(*values: bytes) -> TrimmedJournal:
    """A journal with acknowledged values from offset 0 on."""
    journal = TrimmedJournal()
    for offset, value in enumerate(values):
        journal.send(value)
        journal.acknowledge(offset, value)
    return journal


def test_what_is_below_the_first_offset_may_go() -> None:
    assert trimmed(b"a", b"b").check({1: b"b"}, 1, 0) == []
    assert kinds(trimmed(b"a", b"b").check({1: b"b"}, 0, 0)) == ["lost"]


def test_deleted_records_stay_deleted() -> None:
    assert kinds(trimmed(b"a", b"b").check({0: b"a", 1: b"b"}, 0, 1)) == ["kept"]


def test_an_offset_has_one_value() -> None:
    journal = trimmed(b"a", b"b")
    journal.read("r", 0, b"b")
    assert kinds(journal.check({0: b"a", 1: b"b"}, 0, 0)) == ["offset reuse"]


def test_a_value_that_nobody_sent() -> None:
    journal = trimmed(b"a")
    journal.read("r", 1, b"x")
    assert kinds(journal.check({0: b"a"}, 0, 0)) == ["invented"]


def test_a_tombstone_is_kept_for_its_retention() -> None:
    journal = KeyJournal()
    journal.acknowledge(b"k", journal.send(b"k", is_tombstone=True))
    assert journal.check({}) == []
    assert journal.check({b"k": None}, keeps_tombstones=True) == []
    assert kinds(journal.check({}, keeps_tombstones=True)) == ["lost"]


def test_what_was_aborted_is_never_read_and_excuses_nothing() -> None:
    journal = KeyJournal()
    kept, tombstone = journal.send(b"k", is_tombstone=False), journal.send(b"k", is_tombstone=True)
    journal.acknowledge(b"k", kept)
    journal.abort(b"k", tombstone)
    assert journal.check({b"k": kept}) == []
    assert journal.check({}) == ["lost: b'k' has no record; number 0 was acknowledged"]
    journal.abort(b"k", kept)
    journal.read("a", b"k", kept)
    assert journal.check({b"k": kept}) == ["aborted: a got number 0 of b'k'"]


def test_a_replica_without_the_tombstone_has_what_was_deleted() -> None:
    journal = keys(False, True)
    assert journal.check_replica({b"k": None}, keeps_tombstones=False) == []
    assert journal.check_replica({}, keeps_tombstones=False) == []
    assert kinds(journal.check_replica({b"k": 0}, keeps_tombstones=False)) == ["lost"]
