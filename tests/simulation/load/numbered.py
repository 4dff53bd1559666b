"""Parts of a load whose records are numbered: idempotent producers, and those that may lose records.

`Numbered` has the history of tests/stress: nothing may be lost, duplicated, reordered, rolled back or invented.
`Loose` has producers with acks=1 and acks=0, which send each record once: it may be lost, but never be there twice, be
invented, or vanish after it was read.

Threads: the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.common.topic_partition import TopicPartition
from tests.simulation.load.clients.client import Client
from tests.simulation.load.clients.fetching import READ_COMMITTED, Got
from tests.simulation.load.clients.pipelining import PipeliningProducer
from tests.simulation.load.clients.producers import IdempotentProducer, PlainProducer, Sent, SilentProducer
from tests.simulation.load.clients.readers import Reader
from tests.simulation.load.part import Part, Setting, Topic, problems_of
from tests.stress.checks.history import History, Record, summary

NUMBERED: Final = "t"
LOOSE: Final = "loose"
#: What `Loose` may not show. A record may be reordered: a request that timed out may be carried out late.
NEVER: Final = frozenset({"duplicated", "offset reuse", "unstable read", "skipped", "invented"})


class HistoryJournal:
    """A history as producers and readers see it."""

    def __init__(self, on_acknowledged: Callable[[TopicPartition, int], None] | None = None) -> None:
        self.history = History()
        self._on_acknowledged = on_acknowledged

    def next(self, partition: int, producer: int) -> Sent:
        """See Journal."""
        record = self.history.send(partition, producer)
        return Sent(None, f"{record.producer} {record.number}".encode(), record)

    def acknowledged(self, partition: int, sent: Sent, offset: int | None) -> None:
        """See Journal."""
        self.history.acknowledge(partition, sent.record, offset)
        if offset is not None and self._on_acknowledged is not None:
            self._on_acknowledged(TopicPartition(NUMBERED, partition), offset)

    def refused(self, partition: int, sent: Sent) -> None:
        """A producer gave the record up, which may be there."""
        self.history.refuse(partition, sent.record)

    def read(self, reader: str, partition: int, got: Got) -> None:
        """A reader got a record."""
        self.history.read(reader, partition, got.offset, record_of(got))


class SilentJournal(HistoryJournal):
    """The history of producers whose acknowledgements promise nothing."""

    def acknowledged(self, partition: int, sent: Sent, offset: int | None) -> None:
        """See Journal. Why nothing: a leader that acknowledged alone may lose the record, and its offset."""


def record_of(got: Got) -> Record:
    """Return the record that was read."""
    assert got.value is not None
    producer, number = got.value.split()
    return Record(int(producer), int(number))


class Numbered(Part):
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        story = setting.story
        self._setting = setting
        self.journal = HistoryJournal(setting.acknowledged)
        self.content: list[dict[int, Record]] = [{} for _ in range(story.partitions)]
        self.topics = [Topic(NUMBERED, story.partitions)]
        self.clients = [
            IdempotentProducer(
                number, setting.bootstrap, NUMBERED, story.partitions, self.journal, setting.draw, setting.pause_s
            )
            for number in range(story.producers)
        ]
        self.clients += [
            PipeliningProducer(
                story.producers + number, setting.bootstrap, NUMBERED, story.partitions, self.journal, setting.draw,
                setting.pause_s, era=setting.era,
            )
            for number in range(story.pipelining)
        ]  # fmt: skip
        self.clients += [
            Reader(f"reader-{number}", setting.bootstrap, NUMBERED, story.partitions, self.journal.read, number % 2)
            for number in range(story.readers)
        ]

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        reader = Reader("last reader", self._setting.bootstrap, NUMBERED, len(self.content), self._read, READ_COMMITTED)
        self.clients.append(reader)
        yield reader, reader.read_to_end

    def _read(self, reader: str, partition: int, got: Got) -> None:
        self.journal.read(reader, partition, got)
        self.content[partition][got.offset] = record_of(got)

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        anomalies = self.journal.history.check(dict(enumerate(self.content)))
        if anomalies:
            yield f"{NUMBERED}: {summary(anomalies)}"

    def summary(self) -> str:
        """See Part."""
        return f"{self.journal.history.acknowledged_count()} records acknowledged, {sum(map(len, self.content))} read"


class Loose(Part):
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        story = setting.story
        self._setting = setting
        self.journal = SilentJournal()
        self._content: dict[int, Record] = {}
        self.topics = [Topic(LOOSE, 1)]
        kinds: list[Any] = [PlainProducer] * story.plain + [SilentProducer] * story.silent
        self.clients = [
            kind(number, setting.bootstrap, LOOSE, 1, self.journal, setting.draw, setting.pause_s)
            for number, kind in enumerate(kinds)
        ]
        self.clients.append(Reader("loose reader", setting.bootstrap, LOOSE, 1, self.journal.read))

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        reader = Reader("last loose reader", self._setting.bootstrap, LOOSE, 1, self._read)
        yield reader, reader.read_to_end

    def _read(self, reader: str, partition: int, got: Got) -> None:
        self.journal.read(reader, partition, got)
        self._content[got.offset] = record_of(got)

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        anomalies = [each for each in self.journal.history.check({0: self._content}) if each.kind in NEVER]
        if anomalies:
            yield f"{LOOSE}: {summary(anomalies)}"
        sent = self.journal.history.sent_count()
        if not self._setting.story.faults and len(self._content) < sent:
            yield f"{LOOSE}: {len(self._content)} of {sent} records are there, although nothing broke"

    def summary(self) -> str:
        """See Part."""
        return f"{len(self._content)} of {self.journal.history.sent_count()} loose records kept"
