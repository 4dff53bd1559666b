"""History: the operations of concurrent clients of one topic, and whether a correct cluster could have caused them.

Each producer sends records 0, 1, 2, ... to each partition. A record is (producer, number) of a partition, and is sent
once. An operation is noted after the client knows its outcome. At the end, `check` compares all of them with the final
content, which is read after the cluster was healed. The names of the anomalies and the rules that they break:

1. lost            An acknowledged record is in the final content, at its acknowledged offset.
2. duplicated      No record is in the final content twice.
3. reordered       A producer's records are in the order in which it sent them.
4. offset reuse    Acknowledgements, readers and the final content agree on the record at an offset.
5. unstable read   A record that a reader got is in the final content: no rollback below the high watermark.
6. skipped         A reader gets every record between its first and its last one, in order, once.
7. watermark back  An observer's high watermark never goes back.
8. invented        Every record that is read was sent.

A record that the client gave up on (`refused`), or whose outcome it inferred, may or may not be in the final content.

*Threads*: none; threads that share a history need a lock. No clock, no client.

Source: the checks of Jepsen's workload for Kafka (jepsen/tests/kafka.clj), for clients without transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a partition: the producer, and the number of its records before this one."""

    producer: int
    number: int


class Anomaly(NamedTuple):
    """A behaviour that a correct cluster cannot show; `kind` is a name from the module's list."""

    kind: str
    partition: int
    detail: str


Content = Mapping[int, Record]  # offset -> record


class History:
    """The operations on one topic and their results."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], int] = {}  # (partition, producer) -> how many records were sent
        self.acknowledged: dict[int, dict[Record, int | None]] = {}  # partition -> record -> offset
        self.refused: dict[int, set[Record]] = {}  # partition -> records that the client gave up on
        self.inferred: dict[int, set[Record]] = {}  # partition -> those whose acknowledgement it inferred
        self._seen: dict[int, dict[int, tuple[Record, str]]] = {}  # partition -> offset -> record, who saw it first
        self._read_to: dict[tuple[str, int], int] = {}  # (reader, partition) -> the last offset it got
        self._read_from: dict[tuple[str, int], int] = {}  # ... and the first
        self._read_count: dict[tuple[str, int], int] = {}  # ... and how many records
        self._read_offsets: dict[int, set[int]] = {}  # partition -> offsets that any reader got
        self._watermarks: dict[tuple[str, int], int] = {}
        self._found: list[Anomaly] = []

    # Operations

    def send(self, partition: int, producer: int) -> Record:
        """A producer passes its next record for the partition to its client."""
        key = (partition, producer)
        number = self.sent.get(key, 0)
        self.sent[key] = number + 1
        return Record(producer, number)

    def acknowledge(self, partition: int, record: Record, offset: int | None) -> None:
        """The record was acknowledged at this offset (None: the acknowledgement had no offset)."""
        known = self.acknowledged.setdefault(partition, {})
        if record in known:
            self._note("duplicated", partition, f"{record} was acknowledged at {known[record]} and at {offset}")
        known[record] = offset
        if offset is not None:
            self._see(partition, offset, record, f"the acknowledgement of producer {record.producer}")

    def refuse(self, partition: int, record: Record) -> None:
        """The client gave up on the record."""
        self.refused.setdefault(partition, set()).add(record)

    def infer(self, partition: int, record: Record) -> None:
        """The client takes the record for acknowledged without a broker's answer."""
        self.inferred.setdefault(partition, set()).add(record)

    def inferred_count(self) -> int:
        """The number of records whose acknowledgement was inferred."""
        return sum(map(len, self.inferred.values()))

    def read(self, reader: str, partition: int, offset: int, record: Record) -> None:
        """A reader got this record next."""
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
        """An observer got a high watermark (or, under another name, a last stable offset)."""
        key = (observer, partition)
        known = self._watermarks.get(key, -1)
        if offset < known:
            self._note("watermark back", partition, f"{observer} got {known}, then {offset}")
        self._watermarks[key] = max(known, offset)

    def acknowledged_count(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged.values()))

    def sent_count(self) -> int:
        """The number of sent records."""
        return sum(self.sent.values())

    def watermark_count(self) -> int:
        """The number of (observer, partition) pairs with a watermark."""
        return len(self._watermarks)

    # Checks

    def check(self, final: Mapping[int, Content]) -> list[Anomaly]:
        """All anomalies, given the final content of each partition."""
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
    """The number of sorted offsets in [first, last]."""
    return sum(1 for offset in offsets if first <= offset <= last)


def summary(anomalies: Iterable[Anomaly], shown: int = 10) -> str:
    """The anomalies for people: counts by kind, and the first few of each."""
    kinds: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        kinds.setdefault(anomaly.kind, []).append(anomaly)
    lines = []
    for kind, found in kinds.items():
        lines.append(f"{kind}: {len(found)}")
        lines += [f"  partition {anomaly.partition}: {anomaly.detail}" for anomaly in found[:shown]]
    return "\n".join(lines)
