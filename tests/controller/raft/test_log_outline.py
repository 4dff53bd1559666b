"""The outline of the log."""

from __future__ import annotations

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.log_outline import LogOutline, Membership, OffsetAndEpoch, Validity
from barnabas.controller.raft.voter_set import ReplicaKey, VoterNode, VoterSet

ONE = VoterSet([VoterNode(ReplicaKey(1, b"a" * 16))])
TWO = VoterSet([*ONE, VoterNode(ReplicaKey(2, b"b" * 16))])


def outline(*batches: tuple[int, int]) -> LogOutline:
    """An outline with batches of (records, epoch)."""
    found = LogOutline(Membership(-1, 1, ONE))
    for records, epoch in batches:
        found.append(Batch(found.end_offset, found.end_offset + records - 1, epoch, (), None))
    return found


def test_the_end_of_an_epoch() -> None:
    log = outline((2, 1), (3, 1), (1, 4))
    assert log.end == OffsetAndEpoch(6, 4)
    assert log.end_offset_for_epoch(1) == (5, 1)
    assert log.end_offset_for_epoch(3) == (5, 1)
    assert log.end_offset_for_epoch(9) == (6, 4)
    assert log.end_offset_for_epoch(0) == (0, 0)


def test_a_position_is_valid_diverges_or_needs_the_snapshot() -> None:
    log = outline((5, 1), (1, 4))
    assert log.validate(0, 0) == (Validity.VALID, (0, 0))
    assert log.validate(5, 1) == (Validity.VALID, (5, 1))
    assert log.validate(6, 1) == (Validity.DIVERGING, (5, 1))
    assert log.validate(6, 2) == (Validity.DIVERGING, (5, 1))
    assert log.cover(5) == (5, 1)
    assert log.validate(4, 1)[0] is Validity.SNAPSHOT
    assert log.validate(0, 0)[0] is Validity.SNAPSHOT
    assert log.validate(5, 1)[0] is Validity.VALID
    assert log.validate(5, 0)[0] is Validity.SNAPSHOT
    assert log.validate(6, 4)[0] is Validity.VALID


def test_a_log_is_newer_by_its_epoch_first() -> None:
    assert OffsetAndEpoch(1, 3).is_up_to_date_with(OffsetAndEpoch(9, 2))
    assert not OffsetAndEpoch(9, 2).is_up_to_date_with(OffsetAndEpoch(1, 3))
    assert OffsetAndEpoch(5, 2).is_up_to_date_with(OffsetAndEpoch(5, 2))


def test_a_truncation_takes_back_epochs_and_voters() -> None:
    log = outline((2, 1))
    log.append(Batch(2, 2, 3, (TWO.to_record(),), None))
    assert log.voters == TWO
    assert log.membership_at(2).voters == ONE
    assert log.truncation_for(OffsetAndEpoch(2, 2)) == 2
    assert log.truncation_for(OffsetAndEpoch(1, 1)) == 1
    log.truncate(2)
    assert log.voters == ONE
    assert log.end == (2, 1)


def test_a_snapshot_keeps_the_voters_of_its_end() -> None:
    log = outline((2, 1))
    log.append(Batch(2, 2, 3, (TWO.to_record(),), None))
    log.append(Batch(3, 3, 3, (), None))
    assert log.cover(3) == (3, 3)
    assert log.membership_at(3).voters == TWO
    assert log.voters == TWO
    log.truncate(3)
    assert log.end == (3, 3)


def test_a_snapshot_from_elsewhere_replaces_everything() -> None:
    log = outline((2, 1))
    log.replace(OffsetAndEpoch(9, 4), Membership(7, 1, TWO))
    assert (log.start_offset, log.end, log.voters) == (9, (9, 4), TWO)
    assert log.validate(9, 4)[0] is Validity.VALID
