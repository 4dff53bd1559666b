"""The checks of metadata: each anomaly is found, and prefixes of one history have none."""

from __future__ import annotations

from tests.simulation.checks.metadata import MetadataJournal, Version

A, B = (b"a" * 16, 0), (b"b" * 16, 0)


def version(partition_epoch: int, leader: int = 0, leader_epoch: int | None = None) -> Version:
    """A state of a partition."""
    return Version(partition_epoch, partition_epoch if leader_epoch is None else leader_epoch, leader, (0, 1))


def kinds(found: list[str]) -> list[str]:
    """The names of anomalies."""
    return [line.split(":")[0] for line in found]


def test_prefixes_of_one_history() -> None:
    journal = MetadataJournal()
    assert journal.seen({"x": {}, "y": {A: version(0)}, "z": {A: version(1), B: version(0)}}) == []
    assert journal.seen({"x": {A: version(1)}, "y": {A: version(1), B: version(2)}, "z": {B: version(2)}}) == []


def test_two_states_of_an_epoch() -> None:
    assert kinds(MetadataJournal().seen({"x": {A: version(3, leader=1)}, "y": {A: version(3, leader=2)}})) == [
        "two states"
    ]


def test_an_epoch_that_goes_back() -> None:
    journal = MetadataJournal()
    journal.seen({"x": {A: version(3)}})
    assert kinds(journal.seen({"x": {A: version(2)}})) == ["epoch back"]
    journal = MetadataJournal()
    journal.seen({"x": {A: version(3)}})
    assert kinds(journal.seen({"x": {A: version(4, leader_epoch=2)}})) == ["epoch back"]


def test_views_of_two_histories() -> None:
    journal = MetadataJournal()
    assert kinds(journal.seen({"x": {A: version(1), B: version(2)}, "y": {A: version(2), B: version(1)}})) == [
        "no prefix"
    ]


def test_a_deleted_topic_that_comes_back() -> None:
    journal = MetadataJournal()
    journal.seen({"x": {A: version(1)}})
    assert journal.seen({"x": {}}) == []
    assert kinds(journal.seen({"x": {A: version(2)}})) == ["came back"]


def test_a_process_that_does_not_know_of_a_deletion_yet_is_behind() -> None:
    journal = MetadataJournal()
    journal.seen({"x": {A: version(1), B: version(1)}, "y": {A: version(1), B: version(1)}})
    assert journal.seen({"x": {B: version(2)}, "y": {A: version(1), B: version(1)}}) == []
    assert kinds(journal.seen({"x": {B: version(2)}, "y": {A: version(1), B: version(3)}})) == ["no prefix"]


def test_a_topic_that_the_next_controller_lacks_is_deleted() -> None:
    journal = MetadataJournal()
    journal.seen({"old": {A: version(1), B: version(1)}, "x": {A: version(1), B: version(1)}}, "old", 10)
    assert journal.seen({"new": {B: version(2)}, "x": {A: version(1), B: version(1)}}, "new", 12) == []


def test_a_topic_that_came_and_went_unseen_is_deleted() -> None:
    journal = MetadataJournal()
    assert journal.seen({"c": {B: version(2)}, "x": {A: version(1), B: version(1)}}, "c", 12) == []


def test_a_process_may_have_missed_a_topic_altogether() -> None:
    journal = MetadataJournal()
    journal.seen({"c": {A: version(1)}, "cut off": {A: version(1)}}, "c", 10)
    journal.seen({"c": {A: version(1), B: version(0)}, "cut off": {A: version(1)}}, "c", 11)
    views = {"c": {A: version(2)}, "cut off": {A: version(1)}, "slow": {A: version(2), B: version(0)}}
    assert journal.seen(views, "c", 12) == []


def test_a_controller_that_goes_back_deletes_nothing() -> None:
    journal = MetadataJournal()
    both = {A: version(1), B: version(1)}
    journal.seen({"old": both, "x": both}, "old", 10)
    assert journal.seen({"new": {}, "x": both}, "new", -1) == [], "it has not read its log yet"
    assert kinds(journal.seen({"new": {B: version(2)}, "x": both}, "new", 9)) == ["no prefix"]
