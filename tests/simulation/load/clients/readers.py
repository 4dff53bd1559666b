"""Readers without a group, of both isolation levels. Each reads its partitions in turn, from their start.

Threads: a client has one task; what a reader learns belongs to all.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.load.clients.client import Address
from tests.simulation.load.clients.fetching import READ_UNCOMMITTED, Fetcher, Got

Note = Callable[[str, int, Got], object]


class Reader(Fetcher):
    """Reads all partitions of a topic."""

    def __init__(
        self, name: str, bootstrap: list[Address], topic: str, partitions: int, note: Note,
        isolation: int = READ_UNCOMMITTED, *, is_trimmed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap)
        self.topic = topic
        self._note = note  # called with the reader's name, the partition and the record
        self._isolation = isolation
        self._is_trimmed = is_trimmed
        self.positions = [0] * partitions
        self.told = [0] * partitions  # the highest high watermark that a leader has answered
        self.problems: list[str] = []

    def run(self) -> None:
        """Read until it is asked to stop."""
        while not self.is_stopping:
            for partition in range(len(self.positions)):
                self.read(partition)
        self.close()

    def read_to_end(self) -> None:
        """Read every partition up to its high watermark, also with read_committed: open transactions end meanwhile."""
        for partition in range(len(self.positions)):
            end = None
            while end is None:
                end = self.end_of(self.topic, partition)
            while self.positions[partition] < end:
                self.read(partition)
        self.close()

    def read(self, partition: int) -> None:
        """Read some of a partition, if there is an answer."""
        position = self.positions[partition]
        fetched = self.fetch(self.topic, partition, position, self._isolation, is_trimmed=self._is_trimmed)
        if fetched is None:
            return
        self.problems += [f"{self.name}, {self.topic}-{partition}: {problem}" for problem in fetched.problems]
        self.told[partition] = max(self.told[partition], fetched.high_watermark)
        for got in fetched.records:
            self._note(self.name, partition, got)
        self.positions[partition] = fetched.next_offset
