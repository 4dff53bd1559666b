"""Records that the cluster may remove: a compacted topic, and one whose beginning is deleted.

A key of the compacted topic is written by one producer, with numbers that count up. Rules:

1. lost        The last acknowledged record of a key, or a later one, is in the final content; or it is a tombstone, of
               which nothing may be left once its retention is over.
2. reordered   The numbers of a key increase, for each reader and in the final content.
3. invented    Only what was sent is there.
4. aborted     A reader of committed records gets none of an aborted transaction.

Rules of the trimmed topic:

5. lost        An acknowledged record at or above the log's first offset is there, at its offset.
6. offset reuse, invented   As above.
7. kept        After DeleteRecords was answered, the log begins at or above the answered offset, if no process crashes.

*Threads*: none. No clock, no client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class KeyJournal:
    """What is known of the keys of a compacted topic."""

    def __init__(self) -> None:
        self.sent: dict[bytes, list[bool]] = {}  # key -> for each number, whether it is a tombstone
        self.acknowledged: dict[bytes, int] = {}  # key -> the highest acknowledged number
        self._aborted: set[tuple[bytes, int]] = set()
        self._read: dict[tuple[str, bytes], int] = {}  # (reader, key) -> the last number
        self._seen: dict[tuple[bytes, int], str] = {}  # -> who read it first
        self._found: list[str] = []

    def send(self, key: bytes, *, is_tombstone: bool) -> int:
        """Return the number of the next record of a key."""
        numbers = self.sent.setdefault(key, [])
        numbers.append(is_tombstone)
        return len(numbers) - 1

    def acknowledge(self, key: bytes, number: int) -> None:
        """The record was acknowledged."""
        self.acknowledged[key] = max(number, self.acknowledged.get(key, -1))

    def abort(self, key: bytes, number: int) -> None:
        """The record's transaction was aborted."""
        self._aborted.add((key, number))

    def read(self, reader: str, key: bytes, number: int | None) -> None:
        """A reader got a record next; a tombstone has no number."""
        if number is None:
            return
        if number >= len(self.sent.get(key, ())):
            self._found.append(f"invented: {reader} got number {number} of {key!r}")
        before = self._read.get((reader, key), -1)
        if number <= before:
            self._found.append(f"reordered: {reader} got number {number} of {key!r} after {before}")
        self._read[(reader, key)] = number
        self._seen.setdefault((key, number), reader)

    def check(self, final: Mapping[bytes, int | None], *, keeps_tombstones: bool = False) -> list[str]:
        """Return all anomalies, given the last record of each key: its number, None for a tombstone."""
        aborted = [
            f"aborted: {reader} got number {number} of {key!r}"
            for (key, number), reader in self._seen.items()
            if (key, number) in self._aborted
        ]
        return [*self._found, *aborted, *self._check_last(final, keeps_tombstones)]

    def check_replica(self, final: Mapping[bytes, int | None], *, keeps_tombstones: bool) -> list[str]:
        """Return the anomalies of one replica, given the last record of each key in its log."""
        return list(self._check_last(final, keeps_tombstones))

    def _check_last(self, final: Mapping[bytes, int | None], keeps_tombstones: bool) -> Iterator[str]:
        for key, number in self.acknowledged.items():
            tombstones = self.sent[key]
            last = final.get(key)
            if last is None:
                # Why any later one: a record without an acknowledgement may be there.
                later = range(number, len(tombstones))
                if not any(tombstones[n] and (key, n) not in self._aborted for n in later) or (
                    keeps_tombstones and key not in final
                ):
                    yield f"lost: {key!r} has no record; number {number} was acknowledged"
            elif last < number:
                yield f"lost: the last record of {key!r} is number {last}; {number} was acknowledged"


class TrimmedJournal:
    """What is known of a partition whose beginning is deleted."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: dict[int, bytes] = {}  # by offset
        self._read: dict[int, tuple[str, bytes]] = {}  # by offset: who got it first
        self._found: list[str] = []

    def send(self, value: bytes) -> None:
        """A producer sends this value."""
        self.sent.add(value)

    def acknowledge(self, offset: int, value: bytes) -> None:
        """The value was acknowledged at this offset."""
        self._see("a producer", offset, value)
        self.acknowledged[offset] = value

    def read(self, reader: str, offset: int, value: bytes) -> None:
        """A reader got a value."""
        if value not in self.sent:
            self._found.append(f"invented: {reader} got {value!r} at {offset}")
        self._see(reader, offset, value)

    def _see(self, reader: str, offset: int, value: bytes) -> None:
        first, known = self._read.setdefault(offset, (reader, value))
        if known != value:
            self._found.append(f"offset reuse: {offset} was {known!r} for {first}, and is {value!r} for {reader}")

    def check(self, final: Mapping[int, bytes], start: int, low_watermark: int) -> list[str]:
        """Return all anomalies, given the final content, the first offset, and what DeleteRecords was answered."""
        found = list(self._found)
        found += [
            f"lost: {value!r} at {offset}, above the first offset {start}"
            for offset, value in self.acknowledged.items()
            if offset >= start and final.get(offset) != value
        ]
        if start < low_watermark:
            found.append(f"kept: the log begins at {start}, below the answered {low_watermark}")
        return found
