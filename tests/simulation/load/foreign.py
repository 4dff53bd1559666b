"""The parts of a load whose clients are other people's libraries, unmodified: kafka-python and aiokafka.

A producer's records have the history of tests/stress. The members of a group must get every record below an offset that
they commit, and no acknowledged commit may be taken back. Once nothing breaks, members must get what is acknowledged.

Threads: the driver's task.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from barnabas.common.topic_partition import TopicPartition
from tests.simulation.load.clients.client import Client
from tests.simulation.load.clients.fetching import Fetcher, Got
from tests.simulation.load.clients.outsider import Outsider
from tests.simulation.load.clients.producers import Sent
from tests.simulation.load.clients.readers import Reader
from tests.simulation.load.numbered import HistoryJournal, record_of
from tests.simulation.load.part import Part, Setting, Topic, problems_of
from tests.stress.checks.history import Record, summary


class ForeignJournal(HistoryJournal):
    """What the clients of a library learn of their topic."""

    def __init__(self, topic: str, partitions: int, on_acknowledged: Callable[[TopicPartition, int], None]) -> None:
        super().__init__()
        self._topic = topic
        self._on_stored = on_acknowledged
        self._numbers = itertools.count()
        self.ends = [0] * partitions  # the end of what is acknowledged
        self.delivered_offsets: list[set[int]] = [set() for _ in range(partitions)]
        self.commits = [0] * partitions  # the greatest acknowledged one

    def begin(self) -> int:
        """See OutsideJournal."""
        return next(self._numbers)

    def acknowledged(self, partition: int, sent: Sent, offset: int | None) -> None:
        """See OutsideJournal."""
        super().acknowledged(partition, sent, offset)
        if offset is not None:
            self.ends[partition] = max(self.ends[partition], offset + 1)
            self._on_stored(TopicPartition(self._topic, partition), offset)

    def delivered(self, partition: int, got: Got) -> None:
        """See OutsideJournal."""
        self.delivered_offsets[partition].add(got.offset)

    def committed(self, partition: int, offset: int) -> None:
        """See OutsideJournal."""
        self.commits[partition] = max(self.commits[partition], offset)


class Foreign(Part):
    """The clients of one library; `kinds` are made in this order, members last."""

    def __init__(self, setting: Setting, library: str, kinds: Iterable[tuple[type[Outsider], int]]) -> None:
        super().__init__()
        self._setting = setting
        self._group = library  # also the topic
        partitions = setting.story.partitions
        self.journal = ForeignJournal(library, partitions, setting.acknowledged)
        self._content: list[dict[int, Record]] = [{} for _ in range(partitions)]
        self._committed = [0] * partitions
        self._due: list[int] | None = None  # what members must get; set once nothing breaks
        self.topics = [Topic(library, partitions)]
        self.clients = [
            kind(f"{kind.__name__}-{number}", setting.bootstrap, library, partitions, self.journal, setting.draw,
                 setting.pause_s)
            for kind, count in kinds
            for number in range(count)
        ]  # fmt: skip

    def is_settled(self) -> bool:
        """See Part."""
        if self._due is None:
            self._due = list(self.journal.ends)
        delivered = self.journal.delivered_offsets
        return all(not end or max(delivered[each], default=-1) >= end - 1 for each, end in enumerate(self._due))

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        reader = Reader(
            f"last reader of {self._group}", self._setting.bootstrap, self._group, len(self._content), self._read
        )
        yield reader, reader.read_to_end
        asker = Fetcher(f"asker of {self._group}", self._setting.bootstrap)
        yield asker, lambda: self._ask(asker)

    def _read(self, reader: str, partition: int, got: Got) -> None:
        self.journal.read(reader, partition, got)
        self._content[partition][got.offset] = record_of(got)

    def _ask(self, asker: Fetcher) -> None:
        for partition in range(len(self._content)):
            self._committed[partition] = asker.committed_offset(self._group, self._group, partition)
        asker.close()

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        anomalies = self.journal.history.check(dict(enumerate(self._content)))
        if anomalies:
            yield f"{self._group}: {summary(anomalies)}"
        for partition, content in enumerate(self._content):
            committed, acknowledged = self._committed[partition], self.journal.commits[partition]
            if committed < acknowledged:
                yield f"{self._group}-{partition}: offset {acknowledged} was committed, and {committed} is in the end"
            missed = {offset for offset in content if offset < committed} - self.journal.delivered_offsets[partition]
            if missed:
                yield f"{self._group}-{partition}: committed up to {committed}, but no member got {sorted(missed)[:10]}"

    def summary(self) -> str:
        """See Part."""
        acknowledged = self.journal.history.acknowledged_count()
        return f"{self._group}: {acknowledged} records acknowledged, {sum(self.journal.commits)} committed"


def kafka_python(setting: Setting) -> Foreign:
    """Clients by kafka-python: one producer, one reader without a group, and members."""
    from tests.simulation.load.clients.with_kafka_python import (  # Why here: few lives need it
        KafkaPythonMember,
        KafkaPythonProducer,
        KafkaPythonReader,
    )

    members = setting.story.kafka_python
    return Foreign(
        setting, "kafka-python", ((KafkaPythonProducer, 1), (KafkaPythonReader, 1), (KafkaPythonMember, members))
    )


def aiokafka(setting: Setting) -> Foreign:
    """Clients by aiokafka: one producer, and members."""
    from tests.simulation.load.clients.with_aiokafka import AiokafkaMember, AiokafkaProducer  # Why here: likewise

    return Foreign(setting, "aiokafka", ((AiokafkaProducer, 1), (AiokafkaMember, setting.story.aiokafka)))
