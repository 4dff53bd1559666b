"""The outline of the replicated log: its ends, its epochs, its snapshot and its voter sets; no records.

Rules
1. The replica keeps it in step with the effects that it asks for, so that it decides without reading a file.
2. A voter set counts from the moment its record is in the log, committed or not (KIP-853). A truncation takes it back.
3. The snapshot replaces everything before `start_offset`. It has an epoch of its own, that of its last record.

Source: ReplicatedLog, KafkaMetadataLog, VoterSetHistory (Kafka 4.3); KIP-595, KIP-630.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from typing import NamedTuple

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.voter_set import VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord, VotersRecord


class OffsetAndEpoch(NamedTuple):
    """The end of a log or of a snapshot: the next offset, and the epoch of the last record before it."""

    offset: int
    epoch: int

    def is_up_to_date_with(self, other: OffsetAndEpoch) -> bool:
        """Return whether a log that ends here is as new as one that ends at `other`: the epoch decides first."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


class Membership(NamedTuple):
    """A voter set, the kraft.version with it, and the offset of its record (-1: from the configuration)."""

    offset: int
    kraft_version: int
    voters: VoterSet


class Validity(Enum):
    """How a fetch position relates to this log (Kafka's ValidOffsetAndEpoch)."""

    VALID = 0
    DIVERGING = 1
    SNAPSHOT = 2


class LogOutline:
    """The outline of one log. See the module."""

    __slots__ = (
        "_epochs", "_history", "_starts", "committed_at_start", "end_offset", "last_epoch", "snapshot", "start_offset",
    )  # fmt: skip

    def __init__(self, bootstrap: Membership) -> None:
        self.start_offset = 0
        self.end_offset = 0
        #: The epoch of the last record, or of the snapshot; 0 in an empty log.
        self.last_epoch = 0
        self.snapshot: OffsetAndEpoch | None = None
        #: The committed end at the start, known without the quorum; -1 if there is none.
        self.committed_at_start = -1
        self._epochs: list[int] = []  # ascending; `_starts` has the first offset of each
        self._starts: list[int] = []
        self._history = [bootstrap]  # ascending by offset, never empty

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def membership(self) -> Membership:
        """The voters that count now (rule 2)."""
        return self._history[-1]

    @property
    def voters(self) -> VoterSet:
        """The voters that count now (rule 2)."""
        return self._history[-1].voters

    def membership_at(self, end_offset: int) -> Membership:
        """Return the membership after the records below `end_offset`."""
        return next((found for found in reversed(self._history) if found.offset < end_offset), self._history[0])

    def append(self, batch: Batch) -> None:
        """Note a batch at the end of the log; it begins there, and no earlier epoch follows a later one."""
        assert batch.base_offset == self.end_offset
        assert batch.epoch >= self.last_epoch
        if batch.epoch > self.last_epoch or not self._epochs:
            self._epochs.append(batch.epoch)
            self._starts.append(batch.base_offset)
            self.last_epoch = batch.epoch
        if batch.control:
            self._note_control(batch)
        self.end_offset = batch.last_offset + 1

    def _note_control(self, batch: Batch) -> None:
        version = self._history[-1].kraft_version
        for record in batch.control:
            if isinstance(record, KRaftVersionRecord):
                version = record.kraft_version
            elif isinstance(record, VotersRecord):
                self._history.append(Membership(batch.last_offset, version, VoterSet.from_record(record)))

    def truncate(self, offset: int) -> None:
        """Take back the records from `offset` on."""
        assert self.start_offset <= offset <= self.end_offset
        keep = bisect_left(self._starts, offset)
        # Why: after a snapshot the first epoch stands for it, even when no record of the log has it.
        if self.snapshot is not None:
            keep = max(keep, 1)
        del self._epochs[keep:], self._starts[keep:]
        self.last_epoch = self._epochs[-1] if self._epochs else 0
        self.end_offset = offset
        while len(self._history) > 1 and self._history[-1].offset >= offset:
            self._history.pop()

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of `epoch`, or of the last epoch before it (KIP-101)."""
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return OffsetAndEpoch(self.start_offset, epoch)
        end = self._starts[above] if above < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[above - 1])

    def validate(self, offset: int, epoch: int) -> tuple[Validity, OffsetAndEpoch]:
        """Return whether a log that ends at `offset` with `epoch` is a prefix of this one, and else what to do."""
        if self.snapshot is not None and (
            offset < self.start_offset
            or (offset == self.start_offset and epoch != self.snapshot.epoch)
            or epoch < self.snapshot.epoch
        ):
            return Validity.SNAPSHOT, self.snapshot
        if offset == 0 and self.start_offset == 0:
            return Validity.VALID, OffsetAndEpoch(0, 0)
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Validity.DIVERGING, end
        return Validity.VALID, OffsetAndEpoch(offset, epoch)

    def truncation_for(self, diverging: OffsetAndEpoch) -> int:
        """Return where to truncate a log that diverges from one whose epoch ends there."""
        ours = self.end_offset_for_epoch(diverging.epoch)
        return min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset

    def snapshot_id(self, end_offset: int) -> OffsetAndEpoch:
        """Return the id of a snapshot of everything below `end_offset`, which is after the log's start."""
        assert self.start_offset < end_offset <= self.end_offset
        return OffsetAndEpoch(end_offset, self._epochs[bisect_left(self._starts, end_offset) - 1])

    def cover(self, end_offset: int) -> OffsetAndEpoch:
        """Let a snapshot of everything below `end_offset` replace it; return the snapshot's id."""
        snapshot = self.snapshot_id(end_offset)
        first = bisect_left(self._starts, end_offset) - 1
        self._history = [self.membership_at(end_offset), *(m for m in self._history if m.offset >= end_offset)]
        del self._epochs[:first], self._starts[:first]
        self.snapshot, self.start_offset = snapshot, end_offset
        return snapshot

    def replace(self, snapshot: OffsetAndEpoch, membership: Membership) -> None:
        """Let a snapshot from elsewhere replace the whole log."""
        self.snapshot = snapshot
        self.start_offset = self.end_offset = snapshot.offset
        self.last_epoch = snapshot.epoch
        self._epochs, self._starts = [snapshot.epoch], [snapshot.offset]
        self._history = [membership]
