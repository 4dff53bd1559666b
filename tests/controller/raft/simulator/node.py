"""A controller of the simulator: its disk, its clock, and the replica while it runs.

The disk loses what was appended and not flushed, all of it or a part. Batches are kept as they were appended, so that
two logs hold the same batch if it is the same object.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import Any

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.effects import Persist
from barnabas.controller.raft.election_state import decode_quorum_state, encode_quorum_state
from barnabas.controller.raft.log_outline import LogOutline, Membership, OffsetAndEpoch
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode

LISTENER = "CONTROLLER"
CLUSTER = "simulated"


def listeners_of(node_id: int) -> tuple[Listener, ...]:
    return (Listener(LISTENER, f"n{node_id}", 9000 + node_id),)


def voter_of(key: ReplicaKey) -> VoterNode:
    return VoterNode(key, listeners_of(key.id), (0, 1))


def directory(number: int) -> bytes:
    return number.to_bytes(16, "big")


def batches(records: Any) -> Any:
    """What the simulator's Fetch responses hold: the batches themselves."""
    return records


class Disk:
    """What outlives a process."""

    def __init__(self, key: ReplicaKey, bootstrap: Membership) -> None:
        self.key = key
        self.bootstrap = bootstrap
        self.election: Persist | None = None
        self.log: list[Batch] = []
        self.starts: list[int] = []  # the base offset of each batch
        self.durable = 0  # so many batches are
        #: The snapshot, the membership in it, and the last batch that it covers.
        self.snapshot: tuple[OffsetAndEpoch, Membership, Batch] | None = None

    def last(self) -> Batch | None:
        if self.log:
            return self.log[-1]
        return self.snapshot[2] if self.snapshot else None

    def ending_at(self, offset: int) -> Batch | None:
        """The batch that ends at `offset`."""
        position = bisect_left(self.starts, offset)
        if position:
            found = self.log[position - 1]
        elif self.snapshot:
            found = self.snapshot[2]
        else:
            return None
        return found if found.last_offset + 1 == offset else None

    def has_durable(self, batch: Batch) -> bool:
        """Whether the batch would survive a crash, in the log or in the snapshot."""
        position = bisect_left(self.starts, batch.base_offset)
        if position < self.durable and self.log[position] is batch:
            return True
        return self.snapshot is not None and self.snapshot[0].offset > batch.last_offset

    def append(self, batch: Batch) -> None:
        self.log.append(batch)
        self.starts.append(batch.base_offset)

    def truncate(self, offset: int) -> None:
        keep = bisect_left(self.starts, offset)
        del self.log[keep:], self.starts[keep:]
        self.durable = min(self.durable, keep)

    def cover(self, snapshot: OffsetAndEpoch, membership: Membership) -> None:
        """Replace what the snapshot covers by it."""
        last = self.ending_at(snapshot.offset)
        assert last is not None
        self.snapshot = (snapshot, membership, last)
        gone = bisect_left(self.starts, snapshot.offset)
        del self.log[:gone], self.starts[:gone]
        self.durable -= gone

    def replace(self, snapshot: tuple[OffsetAndEpoch, Membership, Batch]) -> None:
        self.snapshot = snapshot
        self.log.clear()
        self.starts.clear()
        self.durable = 0

    def crash(self, chance: Random, *, loses_tail: bool) -> None:
        if loses_tail and self.durable < len(self.log):
            self.truncate(self.log[chance.randrange(self.durable, len(self.log))].base_offset)
        self.durable = len(self.log)

    def outline(self, *, is_durable: bool = False) -> LogOutline:
        """What a replica makes of the log, or of its part that would survive a crash."""
        outline = LogOutline(self.bootstrap)
        if self.snapshot:
            outline.replace(self.snapshot[0], self.snapshot[1])
        for batch in self.log[: self.durable] if is_durable else self.log:
            outline.append(batch)
        return outline


class Node:
    """One controller."""

    def __init__(self, node_id: int, disk: Disk, config: RaftConfig, chance: Random) -> None:
        self.id = node_id
        self.disk = disk
        self.config = config
        self.chance = chance
        self.replica: RaftReplica | None = None
        self.generation = 0
        self.scheduled_us = -1
        self.paused_until_us = 0
        self.clock_rate = 1.0
        self._clock_offset = float(chance.randrange(1_000_000))
        self.down_until_us = 0
        self.has_led = False

    def now_ms(self, now_us: int) -> int:
        return int(self._clock_offset + now_us * self.clock_rate / 1000)

    def at_us(self, local_ms: int) -> int:
        return int((local_ms - self._clock_offset) * 1000 / self.clock_rate) + 1

    def set_clock_rate(self, rate: float, now_us: int) -> None:
        self._clock_offset += now_us * (self.clock_rate - rate) / 1000
        self.clock_rate = rate

    def move_clock(self, duration_ms: int) -> None:
        self._clock_offset += duration_ms

    def build(self) -> RaftReplica:
        self.generation += 1
        self.scheduled_us = -1
        stored = self.disk.election
        election = None if stored is None else decode_quorum_state(encode_quorum_state(*stored))
        random = Random(self.chance.random())
        self.replica = RaftReplica(self.config, self.disk.key, self.disk.outline(), election, random, batches)
        return self.replica
