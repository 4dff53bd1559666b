"""Transactions: what clients did and saw, and whether transactions that are atomic and isolated could have caused it.

A value is (producer, transaction, index) and is written once. The final log has every record with the outcome that its
marker gave it. The names of the anomalies and the rules that they break:

1. lost               Every record of a committed transaction is in the log.
2. torn               All records of a transaction have one outcome, in all partitions, and a committed one has all.
3. wrong outcome      The outcome in the log is the one that the producer was told.
4. duplicated         No record is in the log twice.
5. G0                 The transactions of one producer are in their order in every partition, and so are their records.
6. G1a                A read_committed reader gets no record of an aborted transaction.
7. G1b                It gets every committed record between its first and its last one: no part of a transaction.
8. G1c                Transactions that read each other's records form no circle, with the order of each producer.
9. precommitted read  A record is read only after its producer asked for the commit.
10. unstable read     What it got is in the log in the end, at the same offset.
11. nonmonotonic poll A reader's offsets only increase.

G0 between different producers is no anomaly: Kafka's transactions may interleave in their partitions.

*Threads*: none. No clock, no client.

Source: the checks of Jepsen's workload for Kafka (jepsen/tests/kafka.clj); Adya's thesis has the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

Place = tuple[str, int]  # topic, partition


class Outcome(Enum):
    """How a transaction ended, as far as is known."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # a commit was sent, and no answer came before the producer was fenced


class Value(NamedTuple):
    """A record: the producer, the number of its transaction, and the index in that."""

    producer: str
    transaction: int
    index: int

    def encoded(self) -> bytes:
        """Return the bytes of the record's value."""
        return f"{self.producer} {self.transaction} {self.index}".encode()

    @classmethod
    def decoded(cls, data: bytes) -> Value:
        """Return the value of these bytes."""
        producer, transaction, index = data.decode().split()
        return cls(producer, int(transaction), int(index))


class Logged(NamedTuple):
    """A record of the final log."""

    offset: int
    value: Value
    is_committed: bool


class Transaction:
    """A transaction, as its producer knows it."""

    def __init__(self, producer: str, number: int) -> None:
        self.producer = producer
        self.number = number
        self.writes: list[tuple[Place, Value]] = []
        self.reads: list[Value] = []
        self.is_commit_sent = False
        self.outcome = Outcome.OPEN

    @property
    def key(self) -> tuple[str, int]:
        """The producer and the number."""
        return (self.producer, self.number)

    def write(self, place: Place) -> Value:
        """Note the next record, before it is sent."""
        value = Value(self.producer, self.number, len(self.writes))
        self.writes.append((place, value))
        return value


class TransactionJournal:
    """What the clients of transactional topics did and saw."""

    def __init__(self) -> None:
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self._next: dict[str, int] = {}  # producer -> number of its next transaction
        self._read: dict[tuple[str, Place], list[tuple[int, Value]]] = {}  # by reader and partition
        self._found: list[str] = []

    def begin(self, producer: str) -> Transaction:
        """A producer begins its next transaction."""
        number = self._next.get(producer, 0)
        self._next[producer] = number + 1
        transaction = self.transactions[(producer, number)] = Transaction(producer, number)
        return transaction

    def read(self, reader: str, place: Place, offset: int, value: Value, within: Transaction | None = None) -> None:
        """A read_committed reader got this record next, perhaps within a transaction."""
        read = self._read.setdefault((reader, place), [])
        if read and offset <= read[-1][0]:
            self._found.append(f"nonmonotonic poll: {reader} got {place} at {offset} after {read[-1][0]}")
        read.append((offset, value))
        writer = self.transactions.get((value.producer, value.transaction))
        if writer is None or not writer.is_commit_sent:
            self._found.append(f"precommitted read: {reader} got {value} of {place} at {offset} before its commit")
        if within is not None:
            within.reads.append(value)

    def count(self, outcome: Outcome) -> int:
        """Return how many transactions ended so."""
        return sum(1 for each in self.transactions.values() if each.outcome is outcome)

    def read_count(self) -> int:
        """Return how many records readers got."""
        return sum(map(len, self._read.values()))

    def check(self, final: Mapping[Place, Iterable[Logged]]) -> list[str]:
        """Return all anomalies, given the final log."""
        logs = {place: list(records) for place, records in final.items()}
        return [
            *self._found,
            *self._check_log(logs),
            *self._check_outcomes(logs),
            *self._check_readers(logs),
            *self._check_circles(),
        ]

    def _check_log(self, logs: Mapping[Place, list[Logged]]) -> Iterator[str]:
        for place, records in logs.items():
            seen: dict[Value, int] = {}
            newest: dict[str, tuple[int, int]] = {}
            for record in records:
                value = record.value
                order = (value.transaction, value.index)
                if value in seen:
                    yield f"duplicated: {value} of {place} at {seen[value]} and at {record.offset}"
                elif order < newest.get(value.producer, (-1, -1)):
                    yield f"G0: {value} of {place} at {record.offset} comes after {newest[value.producer]}"
                seen[value] = record.offset
                newest[value.producer] = max(order, newest.get(value.producer, (-1, -1)))

    def _check_outcomes(self, logs: Mapping[Place, list[Logged]]) -> Iterator[str]:
        kept = {(place, record.value): record for place, records in logs.items() for record in records}
        for transaction in self.transactions.values():
            found = [kept.get(write) for write in transaction.writes]
            committed = sum(1 for record in found if record is not None and record.is_committed)
            if transaction.outcome is Outcome.COMMITTED:
                for write, record in zip(transaction.writes, found, strict=True):
                    if record is None:
                        yield f"lost: {write[1]} of {write[0]}, of a committed transaction"
                    elif not record.is_committed:
                        yield f"wrong outcome: {write[1]} of {write[0]} is aborted, but its commit was confirmed"
            elif transaction.outcome is Outcome.UNKNOWN:
                if committed not in (0, len(found)):
                    yield f"torn: {committed} of the {len(found)} records of {transaction.key} are committed"
            elif committed:
                yield f"wrong outcome: {committed} records of {transaction.key}, which was aborted, are committed"

    def _check_readers(self, logs: Mapping[Place, list[Logged]]) -> Iterator[str]:
        for (reader, place), read in self._read.items():
            log = {record.offset: record for record in logs.get(place, ())}
            for offset, value in read:
                now = log.get(offset)
                if now is None or now.value != value:
                    yield f"unstable read: {reader} got {value} of {place} at {offset}, where now is {now}"
                elif not now.is_committed:
                    yield f"G1a: {reader} got {value} of {place} at {offset}, which is aborted"
            got = {offset for offset, _ in read}
            for offset, record in log.items():
                if record.is_committed and read[0][0] <= offset <= read[-1][0] and offset not in got:
                    yield f"G1b: {reader} did not get {record.value} of {place} at {offset}"

    def _check_circles(self) -> Iterator[str]:
        """Look for circles of transactions, each of which read from, or came after, the one before."""
        committed = {key for key, each in self.transactions.items() if each.is_commit_sent}
        after: dict[tuple[str, int], set[tuple[str, int]]] = {key: set() for key in committed}
        for key in committed:
            for value in self.transactions[key].reads:
                writer = (value.producer, value.transaction)
                if writer in committed:
                    after[writer].add(key)
            following = (key[0], key[1] + 1)
            if following in committed:
                after[key].add(following)
        yield from (f"G1c: {' -> '.join(map(str, circle))}" for circle in circles(after))


def circles(after: Mapping[tuple[str, int], Iterable[tuple[str, int]]]) -> Iterator[list[tuple[str, int]]]:
    """Yield circles of a graph; none if it has none."""
    done: set[tuple[str, int]] = set()
    for start in sorted(after):
        if start in done:
            continue
        path = [start]
        places = {start: 0}  # of the path
        stack = [iter(sorted(after[start]))]
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                done.add(node := path.pop())
                del places[node]
            elif following in places:
                yield [*path[places[following] :], following]
            elif following not in done:
                places[following] = len(path)
                path.append(following)
                stack.append(iter(sorted(after[following])))
