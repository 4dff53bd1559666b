"""History: what concurrent clients of one topic did and saw, and whether a correct cluster could have shown it.

Each producer sends records 0, 1, 2, ... to each partition, so a record is (producer, number) of a partition, and is
sent once. An operation is noted after the client was told of its outcome. `check` at the end compares all of it with
the final content, which was read afresh when everything was healed. What must hold:

1. lost            an acknowledged record is in the final content, at the offset it was acknowledged with.
2. duplicated      no record is in the final content twice.
3. reordered       a producer's records stand in the order in which it sent them.
4. offset reuse    whoever saw an offset (an acknowledgement, a reader, the final content) saw the same record there.
5. unstable read   what a reader was given is in the final content: nothing is taken back below the high watermark.
6. skipped         a reader gets every record between the first and the last that it got, in order, once.
7. watermark back  an observer's high watermark never goes back.
8. invented        nobody reads what nobody sent.

A record that the client gave up on (`refused`) may be in the final content or not.

Threads: none; whoever shares a history locks around it. No clock, no client.
Source: the checks of Jepsen's workload for Kafka (jepsen/tests/kafka.clj), for clients without transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Record(NamedTuple):
    """One record of a partition: the number-th that this producer sent to it."""

    producer: int
    number: int


class Anomaly(NamedTuple):
    """Something that a correct cluster cannot do; `kind` is one of the names in the module's list."""

    kind: str
    partition: int
    detail: str


Content = Mapping[int, Record]  # offset -> record


class History:
    """What was done to one topic and what was seen of it."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], int] = {}  # (partition, producer) -> how many records were sent
        self.acknowledged: dict[int, dict[Record, int | None]] = {}  # partition -> record -> offset
        self.refused: dict[int, set[Record]] = {}  # partition -> records that the client gave up on
        self._seen: dict[int, dict[int, tuple[Record, str]]] = {}  # partition -> offset -> record, who saw it first
        self._read_to: dict[tuple[str, int], int] = {}  # (reader, partition) -> the last offset it got
        self._read_from: dict[tuple[str, int], int] = {}  # ... and the first
        self._read_count: dict[tuple[str, int], int] = {}  # ... and how many records
        self._read_offsets: dict[int, set[int]] = {}  # partition -> offsets that any reader got
        self._watermarks: dict[tuple[str, int], int] = {}
        self._found: list[Anomaly] = []

    # What happened

    def send(self, partition: int, producer: int) -> Record:
        """A producer hands the next record for the partition to its client."""
        key = (partition, producer)
        number = self.sent.get(key, 0)
        self.sent[key] = number + 1
        return Record(producer, number)

    def acknowledge(self, partition: int, record: Record, offset: int | None) -> None:
        """The client was told that the record is safe, at this offset (None: it was not told where)."""
        known = self.acknowledged.setdefault(partition, {})
        if record in known:
            self._note("duplicated", partition, f"{record} was acknowledged at {known[record]} and at {offset}")
        known[record] = offset
        if offset is not None:
            self._see(partition, offset, record, f"the acknowledgement of producer {record.producer}")

    def refuse(self, partition: int, record: Record) -> None:
        """The client gave up on the record."""
        self.refused.setdefault(partition, set()).add(record)

    def read(self, reader: str, partition: int, offset: int, record: Record) -> None:
        """A reader that goes on from where it was got this record."""
        key = (reader, partition)
        last = self._read_to.get(key)
        if last is not None and offset <= last:
            self._note("skipped", partition, f"{reader} got offset {offset} after {last}")
        if last is None:
            self._read_from[key] = offset
        self._read_to[key] = offset
        self._read_count[key] = self._read_count.get(key, 0) + 1
        self._read_offsets.setdefault(partition, set()).add(offset)
        self._see(partition, offset, record, reader)

    def watermark(self, observer: str, partition: int, offset: int) -> None:
        """An observer was told a high watermark (or last stable offset, under another name)."""
        key = (observer, partition)
        known = self._watermarks.get(key, -1)
        if offset < known:
            self._note("watermark back", partition, f"{observer} was told {known}, then {offset}")
        self._watermarks[key] = max(known, offset)

    def acknowledged_count(self) -> int:
        """How many records are acknowledged in all."""
        return sum(map(len, self.acknowledged.values()))

    def sent_count(self) -> int:
        """How many records were sent in all."""
        return sum(self.sent.values())

    def watermark_count(self) -> int:
        """How many observers, by partition, were told something."""
        return len(self._watermarks)

    # What to make of it

    def check(self, final: Mapping[int, Content]) -> list[Anomaly]:
        """Everything that is wrong, given the final content of each partition."""
        return [*self._found, *self._check_all(final)]

    def _check_all(self, final: Mapping[int, Content]) -> Iterator[Anomaly]:
        partitions = {partition for partition, _ in self.sent} | final.keys() | self._seen.keys()
        for partition in sorted(partitions):
            content = final.get(partition, {})
            yield from self._check_acknowledged(partition, content)
            yield from self._check_order(partition, content)
            yield from self._check_seen(partition, content)
            yield from self._check_readers(partition, content)

    def _check_acknowledged(self, partition: int, content: Content) -> Iterator[Anomaly]:
        kept = set(content.values())
        for record, offset in self.acknowledged.get(partition, {}).items():
            if record not in kept or (offset is not None and content.get(offset) != record):
                yield Anomaly("lost", partition, f"{record}, acknowledged at {offset}")

    def _check_order(self, partition: int, content: Content) -> Iterator[Anomaly]:
        places: dict[Record, int] = {}
        newest: dict[int, int] = {}
        for offset, record in sorted(content.items()):
            if record.number >= self.sent.get((partition, record.producer), 0):
                yield Anomaly("invented", partition, f"{record} at {offset}")
            if record in places:
                yield Anomaly("duplicated", partition, f"{record} at {places[record]} and at {offset}")
            elif record.number < newest.get(record.producer, -1):
                before = newest[record.producer]
                yield Anomaly("reordered", partition, f"{record} at {offset}, after number {before}")
            places[record] = offset
            newest[record.producer] = max(record.number, newest.get(record.producer, -1))

    def _check_seen(self, partition: int, content: Content) -> Iterator[Anomaly]:
        read = self._read_offsets.get(partition, set())
        for offset, (record, who) in self._seen.get(partition, {}).items():
            now = content.get(offset)
            if now is not None and now != record:
                yield Anomaly("offset reuse", partition, f"{offset} was {record} for {who}, and is {now} in the end")
            elif now is None and offset in read:
                yield Anomaly("unstable read", partition, f"{record} was at {offset} for {who}, and is gone")

    def _check_readers(self, partition: int, content: Content) -> Iterator[Anomaly]:
        offsets = sorted(content)
        for (reader, index), last in self._read_to.items():
            if index == partition:
                first, count = self._read_from[reader, index], self._read_count[reader, index]
                expected = _count_between(offsets, first, last)
                if count < expected:
                    yield Anomaly("skipped", partition, f"{reader} got {count} of {expected} in [{first}, {last}]")

    def _see(self, partition: int, offset: int, record: Record, who: str) -> None:
        known = self._seen.setdefault(partition, {}).setdefault(offset, (record, who))
        if known[0] != record:
            self._note("offset reuse", partition, f"{offset} was {known[0]} for {known[1]}, and {record} for {who}")

    def _note(self, kind: str, partition: int, detail: str) -> None:
        self._found.append(Anomaly(kind, partition, detail))


def _count_between(offsets: list[int], first: int, last: int) -> int:
    """How many of the sorted offsets are in [first, last]."""
    return sum(1 for offset in offsets if first <= offset <= last)


def summary(anomalies: Iterable[Anomaly], shown: int = 10) -> str:
    """The anomalies for a person: counts by kind, and the first few of each."""
    kinds: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        kinds.setdefault(anomaly.kind, []).append(anomaly)
    lines = []
    for kind, found in kinds.items():
        lines.append(f"{kind}: {len(found)}")
        lines += [f"  partition {anomaly.partition}: {anomaly.detail}" for anomaly in found[:shown]]
    return "\n".join(lines)
