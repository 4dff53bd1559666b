"""What must hold after each step, whatever happens to messages, processes and disks.

Rules
1. Election safety: an epoch has at most one leader.
2. Log matching: two logs that have a batch of the same offset and epoch are equal up to it.
3. Leader completeness: a leader has every batch that was committed in an earlier epoch.
4. State-machine safety: what a replica reports as committed is what every other one reports at that offset.
5. A committed batch is on the durable disks of a majority of the voters; disks that were lost since count.
6. Voter sets follow one another by one change, and at most one is not committed.
7. A directory votes once in an epoch, and its epoch does not go back.
8. A vote is on disk before the candidate hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.effects import Persist
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.voter_set import ReplicaKey
from tests.controller.raft.simulator.node import Disk, Node
from tests.controller.raft.simulator.violation import check


class Invariants:
    """Watches all nodes of one world."""

    def __init__(self) -> None:
        self._leaders: dict[int, ReplicaKey] = {}
        self._batches: dict[tuple[int, int], tuple[Batch, Batch | None]] = {}
        self._votes: dict[ReplicaKey, tuple[int, ReplicaKey | None]] = {}
        self._committed: dict[int, Batch] = {}  # by end offset
        self._last_of_epoch: dict[int, Batch] = {}  # the last batch that was committed in each epoch
        self.committed_end = 0
        self.voter_changes = 0
        self.lost_disks: list[Disk] = []

    @property
    def elections(self) -> int:
        return len(self._leaders)

    def appended(self, node: Node, batch: Batch) -> None:
        """A batch is about to be appended to a node's disk (rules 2 and 6)."""
        previous = node.disk.last()
        known, before = self._batches.setdefault((batch.base_offset, batch.epoch), (batch, previous))
        check(known is batch and before is previous, "log matching")
        check(batch.base_offset == (0 if previous is None else previous.last_offset + 1), "log without gaps")
        if batch.control:
            self._check_voters(node, batch)

    def _check_voters(self, node: Node, batch: Batch) -> None:
        assert node.replica is not None
        quorum = node.replica.quorum
        outline = quorum.outline
        before, after = outline.membership_at(batch.base_offset), outline.membership_at(batch.last_offset + 1)
        if before.offset >= 0 and before is not after:
            self.voter_changes += 1
            check(before.voters.has_overlapping_majority(after.voters), "one voter changes at a time")
            check(abs(len(before.voters) - len(after.voters)) <= 1, "one voter changes at a time")
            if isinstance(quorum.role, Leader):
                check(before.offset < quorum.role.high_watermark, "one voter change in flight")

    def persisted(self, node: Node, persist: Persist) -> None:
        """An election state is about to be written (rule 7)."""
        state = persist.election
        epoch, voted = self._votes.get(node.disk.key, (-1, None))
        check(state.epoch >= epoch, "the epoch does not go back")
        if state.epoch == epoch and voted is not None:
            # Why `matches`: quorum-state of version 0 keeps no directory.
            is_same = state.voted is not None and state.voted.matches(voted)
            check(is_same or state.leader_id == node.id, "one vote in an epoch")
        if state.epoch > epoch or state.voted is not None:
            self._votes[node.disk.key] = (state.epoch, state.voted)

    def elected(self, node: Node, epoch: int) -> None:
        """A node leads an epoch (rules 1 and 3)."""
        check(self._leaders.setdefault(epoch, node.disk.key) == node.disk.key, "election safety")
        earlier = [found for found in self._last_of_epoch if found < epoch]
        if earlier:
            self._check_complete(node, self._last_of_epoch[max(earlier)])

    def _check_complete(self, node: Node, batch: Batch) -> None:
        disk = node.disk
        if disk.snapshot is not None and batch.last_offset < disk.snapshot[0].offset - 1:
            check(self._committed.get(disk.snapshot[0].offset) is disk.snapshot[2], "leader completeness")
            return
        check(disk.ending_at(batch.last_offset + 1) is batch, "leader completeness")

    def committed(self, node: Node, offset: int, nodes: Iterable[Node]) -> None:
        """A node reports a committed offset (rules 3, 4, 5)."""
        batch = node.disk.ending_at(offset)
        check(batch is not None, "a committed offset ends a batch")
        assert batch is not None
        if offset <= self.committed_end:
            check(self._committed.get(offset) is batch, "state-machine safety")
            return
        step: Batch | None = batch
        while step is not None and step.last_offset >= self.committed_end:
            self._committed[step.last_offset + 1] = step
            step = self._batches[step.base_offset, step.epoch][1]
        check(step is self._committed.get(self.committed_end), "state-machine safety")
        self.committed_end = offset
        # Why the last one alone: those before it, perhaps of earlier epochs, are committed in its epoch, too. A
        # candidate of an epoch between, to which the last vote comes late, need not have them.
        self._last_of_epoch[batch.epoch] = batch
        self._check_durable(node, batch, nodes)

    def _check_durable(self, node: Node, batch: Batch, nodes: Iterable[Node]) -> None:
        assert node.replica is not None
        voters = node.replica.quorum.outline.voters
        holders = sum(voters.is_voter(disk.key) and disk.has_durable(batch) for disk in self.lost_disks)
        for other in nodes:
            holders += voters.is_voter(other.disk.key) and other.disk.has_durable(batch)
            if other is not node and other.replica is not None:
                role = other.replica.quorum.role
                if isinstance(role, Leader) and role.epoch > batch.epoch:
                    self._check_complete(other, batch)
        check(holders >= voters.majority, "committed on a majority")

    def answered_vote(self, node: Node, *, is_granted: bool) -> None:
        """A vote or a pre-vote is about to be answered (rule 8)."""
        assert node.replica is not None
        voted = node.replica.quorum.role.voted
        if is_granted and voted is not None:
            stored = node.disk.election
            kept = None if stored is None else stored.election.voted
            check(kept is not None and voted.matches(kept), "a vote is on disk before it is given")
