"""The history of groups, from their members, an observer and the log, and its checks. Pure.

Rules
1. In one generation of a group, each partition has at most one owner.
2. A committed offset never goes back: a member that commits has read on from the last committed offset. One exception:
   a client without a response repeats its commit on another connection, and the broker may handle both. So a repetition
   of a commit in the log may come after the next commit.
3. Generations of a group only increase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class GroupHistory:
    """The history of one group. Not thread-safe: threads that share it need a lock."""

    group: str
    owners: dict[tuple[str, int, int], str] = field(default_factory=dict)  # (source, generation, partition) -> member
    reported: dict[int, int] = field(default_factory=dict)  # partition -> the offset in the last response
    logged: dict[int, int] = field(default_factory=dict)  # partition -> the offset in the log so far
    every_logged: set[tuple[int, int]] = field(default_factory=set)  # (partition, offset) in the log so far
    repeated: set[tuple[int, int]] = field(default_factory=set)  # likewise: repeated commits after later ones
    went_back: list[tuple[int, int, int]] = field(default_factory=list)  # (partition, offset, reported before)
    generation: int = -1  # the highest in the log so far
    claims: int = 0
    others: list[str] = field(default_factory=list)  # problems except those of `went_back`

    @property
    def problems(self) -> list[str]:
        """All problems; complete once the log has been read."""
        return self.others + [
            f"{self.group}: partition {partition}: offset {offset} is reported after {before}"
            for partition, offset, before in self.went_back
            if (partition, offset) not in self.repeated
        ]

    def claimed(self, source: str, member: str, generation: int, partitions: Iterable[int]) -> None:
        """According to a source (the members or the log), a member owns these partitions in this generation."""
        for partition in partitions:
            self.claims += 1
            owner = self.owners.setdefault((source, generation, partition), member)
            if owner != member:
                self._wrong(
                    f"partition {partition} has two owners in generation {generation}, "
                    f"according to {source}: {owner} and {member}"
                )

    @property
    def generations(self) -> set[int]:
        """The generations in which a member owned a partition."""
        return {generation for _, generation, _ in self.owners}

    def offset_reported(self, partition: int, offset: int) -> None:
        """The coordinator returned a committed offset to the observer."""
        before = self.reported.get(partition, -1)
        if offset < before:
            self.went_back.append((partition, offset, before))
        self.reported[partition] = max(before, offset)

    def offset_confirmed(self, partition: int, offset: int) -> None:
        """A member's commit was confirmed: later responses must not be lower."""
        self.reported[partition] = max(self.reported.get(partition, -1), offset)

    def offset_logged(self, partition: int, offset: int) -> None:
        """The log's next record with a committed offset."""
        before = self.logged.get(partition, -1)
        if offset < before:
            if (partition, offset) in self.every_logged:
                self.repeated.add((partition, offset))
            else:
                self._wrong(f"partition {partition}: the log has offset {offset} after {before}")
        self.logged[partition] = offset
        self.every_logged.add((partition, offset))

    def generation_logged(self, generation: int) -> None:
        """The log's next record of the group."""
        if generation < self.generation:
            self._wrong(f"the log has generation {generation} after {self.generation}")
        self.generation = max(self.generation, generation)

    def _wrong(self, what: str) -> None:
        self.others.append(f"{self.group}: {what}")
