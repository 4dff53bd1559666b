"""A quorum of controllers without elections: a test says who leads, and when something is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from barnabas.common.clock import FakeClock
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, RaftListener
from barnabas.controller.raft.client.status import Member, RaftStatus
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.records.batch import read_header
from tests.controller.rig import FakeBroker, Rig


@dataclass
class Snapshot:
    """A snapshot, as a list of records."""

    id: OffsetAndEpoch
    contents: list[MetadataRecord]
    path: str = "a.checkpoint"

    def records(self) -> Iterator[MetadataRecord]:
        """Return the records."""
        return iter(self.contents)


@dataclass
class FakeQuorum:
    """The log of all, and what its leader has appended that is not committed."""

    is_automatic: bool = True  # whether each append is committed at once
    epoch: int = 0
    leader_id: int | None = None
    committed: list[CommittedBatch] = field(default_factory=list)
    pending: list[CommittedBatch] = field(default_factory=list)
    members: dict[int, FakeClient] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        log = self.pending or self.committed
        return log[-1].last_offset + 1 if log else 0

    def elect(self, leader_id: int, *, keeps: int = 0) -> None:
        """Make a node the leader of the next epoch; it has `keeps` of the batches that are not committed."""
        self.lose()
        del self.pending[keeps:]
        self.epoch += 1
        self.leader_id = leader_id
        self.add_control()
        self.commit()
        self._tell()

    def lose(self) -> None:
        """Let the leader lose the lead."""
        self.leader_id = None
        self._tell()

    def add_control(self) -> None:
        """Append a batch of control records."""
        self.pending.append(CommittedBatch(self.end_offset, self.end_offset, self.epoch, is_control=True, data=b"c"))

    def commit(self, count: int | None = None) -> None:
        """Commit what was appended, or the first `count` batches of it."""
        taken = self.pending[:count]
        self.committed += taken
        del self.pending[: len(taken)]
        for member in self.members.values():
            member.catch_up()

    def _tell(self) -> None:
        for member in self.members.values():
            member.tell()


@dataclass
class FakeClient:
    """The client of one controller."""

    quorum: FakeQuorum
    node_id: int
    listener: RaftListener | None = None
    delivered: int = 0  # batches
    is_cut_off: bool = False

    def register(self, listener: RaftListener) -> None:
        """Note the listener."""
        self.listener = listener

    def start(self) -> None:
        """Deliver everything so far."""
        self.quorum.members[self.node_id] = self
        self.catch_up()
        self.tell()

    def catch_up(self) -> None:
        """Deliver what is committed."""
        batches = self.quorum.committed[self.delivered :]
        if batches and self.listener is not None and not self.is_cut_off:
            self.delivered += len(batches)
            self.listener.handle_commit(batches)

    def tell(self) -> None:
        """Name the leader."""
        if self.listener is not None and not self.is_cut_off:
            self.listener.handle_leader_change(LeaderAndEpoch(self.quorum.leader_id, self.quorum.epoch))

    def append(self, epoch: int, batch: bytearray) -> int:
        """Append a batch."""
        quorum = self.quorum
        if (quorum.leader_id, quorum.epoch) != (self.node_id, epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another one leads")
        base = quorum.end_offset
        last = base + read_header(batch).last_offset_delta
        quorum.pending.append(CommittedBatch(base, last, epoch, is_control=False, data=batch))
        if quorum.is_automatic:
            quorum.commit()
        return last

    def holds(self, offset: int, epoch: int) -> bool:
        """Whether the committed log has this record."""
        return any(
            batch.base_offset <= offset <= batch.last_offset and epoch in (-1, batch.epoch)
            for batch in self.quorum.committed
        )

    def create_snapshot(self, end_offset: int, records: Iterable[MetadataRecord], epoch: int) -> int | None:
        """Note a snapshot."""
        self.quorum.snapshots.append(Snapshot(OffsetAndEpoch(end_offset, epoch), list(records)))
        return 1

    def status(self) -> RaftStatus:
        """What this controller knows."""
        quorum = self.quorum
        key = ReplicaKey(self.node_id)
        leads = quorum.leader_id == self.node_id
        high_watermark = quorum.committed[-1].last_offset + 1 if quorum.committed else 0
        return RaftStatus(
            key, "leader" if leads else "follower", quorum.epoch, quorum.leader_id, None, high_watermark,
            quorum.end_offset, quorum.epoch, 1, tuple(Member(ReplicaKey(node_id)) for node_id in quorum.members),
        )  # fmt: skip

    def shutdown(self, timeout_ms: int) -> None:
        """Leave."""
        self.quorum.members.pop(self.node_id, None)


class QuorumRig:
    """Controllers 100, 101 and so on, with one clock and the same brokers; the first is elected."""

    def __init__(self, count: int = 3, **overrides: str) -> None:
        self.quorum = FakeQuorum()
        self.clock = FakeClock()
        self.brokers: dict[int, FakeBroker] = {}
        self.rigs = {
            node_id: Rig(
                clock=self.clock,
                raft=FakeClient(self.quorum, node_id),
                **{"node_id": str(node_id), **overrides},
            )
            for node_id in range(100, 100 + count)
        }
        for rig in self.rigs.values():
            rig.brokers = self.brokers
        self.elect(100)

    def __getitem__(self, node_id: int) -> Rig:
        return self.rigs[node_id]

    @property
    def active(self) -> Rig:
        """The controller that is active."""
        (active,) = (rig for rig in self.rigs.values() if rig.controller.is_active)
        return active

    def elect(self, node_id: int, *, keeps: int = 0) -> None:
        """Elect a controller, and let all take note of it."""
        self.quorum.elect(node_id, keeps=keeps)
        self.step()

    def commit(self, count: int | None = None) -> None:
        """Commit what was appended."""
        self.quorum.commit(count)
        self.step()

    def step(self) -> None:
        """Let every controller handle its events."""
        for rig in self.rigs.values():
            rig.controller.loop.step()
