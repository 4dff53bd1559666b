"""Snapshots that come late or damaged."""

from __future__ import annotations

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.effects import Note, ReplaceLog
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.replica import RaftReplica
from tests.controller.raft.rig import replica


def with_log(records: int, epoch: int) -> RaftReplica:
    found = replica(2)
    found.quorum.outline.append(Batch(0, records - 1, epoch, (), None))
    found.start(0)
    return found


def received(found: RaftReplica, offset: int, epoch: int) -> list[type]:
    membership = Membership(0, 1, found.quorum.outline.voters)
    return [type(effect) for effect in found.snapshot_received(OffsetAndEpoch(offset, epoch), membership, 1)]


def test_a_snapshot_never_replaces_a_newer_log() -> None:
    for offset, epoch in ((5, 3), (4, 3), (9, 2)):
        found = with_log(5, 3)
        assert received(found, offset, epoch) == [Note]
        assert found.quorum.outline.end == (5, 3)


def test_a_newer_snapshot_replaces_the_log() -> None:
    for offset, epoch in ((6, 3), (4, 4)):
        found = with_log(5, 3)
        assert ReplaceLog in received(found, offset, epoch)
        assert found.quorum.outline.end == (offset, epoch)
        assert found.quorum.high_watermark == offset


def test_a_damaged_snapshot_is_fetched_again() -> None:
    found = with_log(5, 3)
    effects = found.snapshot_received(OffsetAndEpoch(9, 4), None, 1)
    assert any(isinstance(effect, Note) for effect in effects)
    assert found.quorum.outline.end == (5, 3)
