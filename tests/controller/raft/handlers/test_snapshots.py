"""Snapshots that come late or damaged, or have no end."""

from __future__ import annotations

from typing import Any

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.effects import Effect, LoadSnapshot, Note, ReplaceLog, Send, WriteSnapshot
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.messages import TOPIC
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.roles import Follower
from barnabas.protocol.messages import k01_fetch as fetch
from barnabas.protocol.messages import k59_fetch_snapshot as wire
from barnabas.protocol.messages.k01_fetch import FetchRequest
from barnabas.protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest
from tests.controller.raft.rig import replica
from tests.controller.raft.simulator.node import listeners_of


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


LEADER, EPOCH, NOW = 1, 4, 10


def following() -> tuple[RaftReplica, Send]:
    """A follower of controller 1 in epoch 4, and the fetch that it has sent."""
    found = replica(2)
    found.start(0)
    found.quorum.become_follower(EPOCH, LEADER, listeners_of(LEADER), NOW)
    return found, asked(found.poll(NOW), FetchRequest)


def asked(effects: list[Effect], kind: type) -> Send:
    (found,) = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.request, kind)]
    return found


def offered(found: RaftReplica, sent: Send, offset: int, epoch: int) -> list[Effect]:
    """What the follower does when the leader offers a snapshot."""
    partition = fetch.PartitionData(
        partition_index=0,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH),
        snapshot_id=fetch.SnapshotId(end_offset=offset, epoch=epoch),
    )
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic=TOPIC, partitions=[partition])])
    return found.handle_response(LEADER, sent.correlation_id, response, NOW)


def part(found: RaftReplica, sent: Send, *, position: int, size: int, data: bytes) -> list[Effect]:
    """What the follower does with a part of snapshot (9, 4)."""
    partition = wire.ResponsePartitionSnapshot(
        index=0,
        snapshot_id=wire.SnapshotId(end_offset=9, epoch=EPOCH),
        current_leader=wire.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH),
        size=size,
        position=position,
        unaligned_records=data,
    )
    response = wire.FetchSnapshotResponse(topics=[wire.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])])
    return found.handle_response(LEADER, sent.correlation_id, response, NOW)


def kinds(effects: list[Effect]) -> list[Any]:
    return [type(effect) for effect in effects if not isinstance(effect, Send)]


def test_a_snapshot_of_a_later_epoch_than_the_leaders_is_refused() -> None:
    """Its records cannot be of an epoch that has not been. With the last epoch, no election would ever follow."""
    for epoch in (EPOCH + 1, (1 << 31) - 1):
        found, sent = following()
        assert kinds(offered(found, sent, 9, epoch)) == [Note]
        assert isinstance(found.quorum.role, Follower)
        assert found.quorum.role.snapshot is None


def test_a_snapshot_is_fetched_in_parts() -> None:
    found, sent = following()
    first = asked(offered(found, sent, 9, EPOCH), FetchSnapshotRequest)
    effects = part(found, first, position=0, size=5, data=b"abc")
    assert kinds(effects) == [WriteSnapshot]
    second = asked(effects, FetchSnapshotRequest)
    assert kinds(part(found, second, position=3, size=5, data=b"de")) == [WriteSnapshot, LoadSnapshot]


def test_a_snapshot_that_grows_while_it_is_fetched_has_no_end_and_is_given_up() -> None:
    found, sent = following()
    first = asked(offered(found, sent, 9, EPOCH), FetchSnapshotRequest)
    second = asked(part(found, first, position=0, size=5, data=b"abc"), FetchSnapshotRequest)
    assert kinds(part(found, second, position=3, size=6, data=b"de")) == [Note]
    assert isinstance(found.quorum.role, Follower)
    assert found.quorum.role.snapshot is None


def test_what_exceeds_the_size_of_a_snapshot_is_not_written_and_the_next_fetch_pauses() -> None:
    for data, size in ((b"abcdef", 5), (b"", 5)):
        found, sent = following()
        first = asked(offered(found, sent, 9, EPOCH), FetchSnapshotRequest)
        effects = part(found, first, position=0, size=size, data=data)
        assert kinds(effects) == [Note]
        assert not [effect for effect in effects if isinstance(effect, Send)]
        assert asked(found.poll(NOW + found.quorum.config.retry_backoff_ms), FetchRequest)
