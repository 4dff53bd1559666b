"""What members, an onlooker and the log say of groups, and what must never be among it. Pure.

Rules
1. In one generation of a group each partition has at most one owner.
2. A committed offset never goes back by itself: who commits has read on from the offset committed before, so what is
   told later is never less. But a client that is not answered in time commits again on another connection, and the
   broker, when it gets on, finds both: a repetition of a commit that the log has may come after the next one.
3. Generations of a group only go up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class GroupHistory:
    """One group. Not thread-safe: whoever shares it locks."""

    group: str
    owners: dict[tuple[str, int, int], str] = field(default_factory=dict)  # (source, generation, partition) -> member
    told: dict[int, int] = field(default_factory=dict)  # partition -> the offset told last
    logged: dict[int, int] = field(default_factory=dict)  # partition -> the offset in the log so far
    every_logged: set[tuple[int, int]] = field(default_factory=set)  # (partition, offset) in the log so far
    repeated: set[tuple[int, int]] = field(default_factory=set)  # likewise: commits that came again, after others
    told_back: list[tuple[int, int, int]] = field(default_factory=list)  # (partition, offset, what was told before)
    generation: int = -1  # the highest in the log so far
    claims: int = 0
    others: list[str] = field(default_factory=list)  # problems without those of `told_back`

    @property
    def problems(self) -> list[str]:
        """What is wrong; known when the log has been read."""
        return self.others + [
            f"{self.group}: partition {partition}: offset {offset} is told after {before}"
            for partition, offset, before in self.told_back
            if (partition, offset) not in self.repeated
        ]

    def claimed(self, source: str, member: str, generation: int, partitions: Iterable[int]) -> None:
        """A member believes that it owns these partitions in this generation; or the log, another source, says so."""
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
        """Those in which somebody owned something."""
        return {generation for _, generation, _ in self.owners}

    def offset_told(self, partition: int, offset: int) -> None:
        """The coordinator told an onlooker a committed offset."""
        before = self.told.get(partition, -1)
        if offset < before:
            self.told_back.append((partition, offset, before))
        self.told[partition] = max(before, offset)

    def offset_confirmed(self, partition: int, offset: int) -> None:
        """A member's commit was answered: from now on nobody may be told less."""
        self.told[partition] = max(self.told.get(partition, -1), offset)

    def offset_logged(self, partition: int, offset: int) -> None:
        """The next record of a committed offset in the log."""
        before = self.logged.get(partition, -1)
        if offset < before:
            if (partition, offset) in self.every_logged:
                self.repeated.add((partition, offset))
            else:
                self._wrong(f"partition {partition}: the log has offset {offset} after {before}")
        self.logged[partition] = offset
        self.every_logged.add((partition, offset))

    def generation_logged(self, generation: int) -> None:
        """The next record of the group in the log."""
        if generation < self.generation:
            self._wrong(f"the log has generation {generation} after {self.generation}")
        self.generation = max(self.generation, generation)

    def _wrong(self, what: str) -> None:
        self.others.append(f"{self.group}: {what}")
