"""The quorum of controllers: what its replicas promise each other. Pure.

1. two leaders      An epoch has one leader, ever.
2. voted twice      A disk holds one vote in an epoch, and forgets it only for the epoch's leader.
3. epoch back       The epoch on a disk never goes back.
4. two histories    Every replica has the same batches up to what it knows to be committed, at all times.
5. not durable      What a replica knows to be committed is durable on the disks of a majority.
6. incomplete       The leader of the newest epoch has everything that any replica knew to be committed.
7. two states       Two replicas that have applied the same offset have the same image.
8. not elected      A majority of the disks has the vote for the leader of an epoch, or knows that it leads.
9. early commit     A leader takes nothing for committed before a record of its own epoch is.

*Threads*: none. No clock, no client.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple


class Stored(NamedTuple):
    """A batch in a log; offsets are inclusive."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


class QuorumJournal:
    """What was seen of the replicas of one quorum."""

    def __init__(self, size: int) -> None:
        self._majority = size // 2 + 1
        self._leaders: dict[int, str] = {}  # epoch -> who led it
        self._votes: dict[tuple[Hashable, int], object] = {}  # (disk, epoch) -> candidate
        self._epochs: dict[Hashable, int] = {}  # disk -> its epoch
        self._history: dict[int, tuple[Stored, str]] = {}  # base offset -> committed batch, who knew it first
        self._images: dict[int, tuple[object, str]] = {}  # offset -> image of the last look, who has it

    @property
    def committed(self) -> int:
        """How many batches were seen to be committed."""
        return len(self._history)

    def led(self, name: str, epoch: int) -> list[str]:
        """A replica led an epoch."""
        known = self._leaders.setdefault(epoch, name)
        return [] if known == name else [f"two leaders: {known} and {name} in epoch {epoch}"]

    def elected(self, name: str, epoch: int, votes: int) -> list[str]:
        """A replica leads an epoch, and so many disks have its vote, know its lead, or are in a later epoch."""
        return [] if votes >= self._majority else [f"not elected: {name} leads epoch {epoch} with {votes} votes"]

    def leader_commits(self, name: str, epoch: int, start: int, committed: int) -> list[str]:
        """A leader's epoch begins at an offset, and it takes everything below another one for committed (-1: none)."""
        if committed < 0 or committed > start:
            return []
        return [f"early commit: {name} takes {committed} for committed; its epoch {epoch} begins at {start}"]

    def stored_state(self, name: str, disk: Hashable, epoch: int, leader: int | None, voted: object) -> list[str]:
        """A disk has this epoch, leader and vote; None is no vote, or no leader."""
        found = []
        if epoch < self._epochs.get(disk, 0):
            found.append(f"epoch back: {name} had epoch {self._epochs[disk]}, and has {epoch}")
        self._epochs[disk] = epoch
        known = self._votes.get((disk, epoch))
        # Why the leader: with it, no vote is given in the epoch any more. A leader that resigned has no vote.
        if known is not None and voted != known and not (voted is None and leader is not None):
            found.append(f"voted twice: {name} has voted for {known} in epoch {epoch}, and has the vote {voted}")
        elif voted is not None:
            self._votes[disk, epoch] = voted
        return found

    def knows_committed(self, name: str, log: Iterable[Stored], end_offset: int) -> list[str]:
        """A replica has this log, and knows that everything below an offset is committed."""
        next_offset: int | None = None
        for batch in log:
            if batch.base_offset >= end_offset:
                break
            if next_offset is not None and batch.base_offset != next_offset:
                return [f"two histories: {name} lacks offset {next_offset}"]
            known, witness = self._history.setdefault(batch.base_offset, (batch, name))
            if known != batch:
                return [f"two histories: {known} for {witness}, {batch} for {name}"]
            next_offset = batch.last_offset + 1
        if next_offset is not None and next_offset < end_offset:
            return [f"two histories: {name} ends at {next_offset}, and knows {end_offset} to be committed"]
        return []

    def durable(self, ends: Mapping[str, int], committed: int) -> list[str]:
        """The disks have everything up to these ends, and everything below an offset is committed."""
        if sum(end >= committed for end in ends.values()) >= self._majority:
            return []
        return [f"not durable: everything below {committed} is committed, but the disks end at {dict(ends)}"]

    def leads(self, name: str, log: Sequence[Stored]) -> list[str]:
        """The leader of the newest epoch has this log, perhaps after a snapshot."""
        if not log:
            return []
        by_offset = {batch.base_offset: batch for batch in log}
        start = log[0].base_offset
        for offset, (batch, witness) in self._history.items():
            if offset >= start and by_offset.get(offset) != batch:
                return [f"incomplete: {name} leads with {by_offset.get(offset)}, but {witness} had committed {batch}"]
        return []

    def applied(self, name: str, offset: int, image: object) -> list[str]:
        """A replica has this image at an offset."""
        known, witness = self._images.setdefault(offset, (image, name))
        for old in [each for each in self._images if each < offset - 1000]:
            del self._images[old]
        if known is image or known == image:
            return []
        return [f"two states: {witness} and {name} differ at offset {offset}"]
