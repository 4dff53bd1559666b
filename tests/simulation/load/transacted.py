"""Parts of a load in transactions: producers whose transactions are checked one by one, and copiers with their sums.

Threads: the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tests.eos.proof import differences
from tests.simulation.checks.transactions import Logged, Outcome, Place, TransactionJournal, Value
from tests.simulation.load.clients.client import Client
from tests.simulation.load.clients.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, Got
from tests.simulation.load.clients.readers import Reader
from tests.simulation.load.clients.transactions import Copier, TransactionalProducer
from tests.simulation.load.numbered import NUMBERED
from tests.simulation.load.part import Part, Setting, Topic, problems_of

TRANSACTED: Final = "x"
TIMEOUTS_MS: Final = (3_000, 20_000, 60_000)


class Transacted(Part):
    """Producers that write and read in transactions."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        story, draw = setting.story, setting.draw
        self._setting = setting
        self.journal = TransactionJournal()
        self._all: dict[Place, dict[int, Value]] = {(TRANSACTED, each): {} for each in range(story.partitions)}
        self._committed: dict[Place, set[int]] = {place: set() for place in self._all}
        self.topics = [Topic(TRANSACTED, story.partitions)]
        self.clients = [
            TransactionalProducer(
                TRANSACTED, story.partitions, self.journal, f"transactional-{number}", setting.bootstrap, draw,
                TIMEOUTS_MS[draw(len(TIMEOUTS_MS))], setting.pause_s, is_new=bool(draw(2)),
            )
            for number in range(story.transactional)
        ]  # fmt: skip
        self.clients.append(
            Reader(
                "committed reader", setting.bootstrap, TRANSACTED, story.partitions, self._read_committed,
                READ_COMMITTED,
            )
        )  # fmt: skip

    def _read_committed(self, reader: str, partition: int, got: Got) -> None:
        self.journal.read(reader, (TRANSACTED, partition), got.offset, value_of(got))

    def _note_committed(self, reader: str, partition: int, got: Got) -> None:
        self._read_committed(reader, partition, got)
        self._committed[(TRANSACTED, partition)].add(got.offset)

    def _note_any(self, _reader: str, partition: int, got: Got) -> None:
        self._all[(TRANSACTED, partition)][got.offset] = value_of(got)

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        for name, note, isolation in (
            ("last committed reader", self._note_committed, READ_COMMITTED),
            ("last uncommitted reader", self._note_any, READ_UNCOMMITTED),
        ):
            reader = Reader(name, self._setting.bootstrap, TRANSACTED, len(self._all), note, isolation)
            self.clients.append(reader)
            yield reader, reader.read_to_end

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        yield from _fenced_early(self._setting, self.clients)
        final = {
            place: [
                Logged(offset, value, offset in self._committed[place]) for offset, value in sorted(records.items())
            ]
            for place, records in self._all.items()
        }
        yield from (f"{TRANSACTED}: {anomaly}" for anomaly in self.journal.check(final)[:10])

    def summary(self) -> str:
        """See Part."""
        counts = ", ".join(f"{self.journal.count(outcome)} {outcome.value}" for outcome in Outcome)
        return f"transactions: {counts}; {self.journal.read_count()} of their records read"


class Copied(Part):
    """Copiers of the numbered records. Each has a target of its own."""

    def __init__(self, setting: Setting, content: list[dict[int, object]]) -> None:
        super().__init__()
        story, draw = setting.story, setting.draw
        self._setting = setting
        self._content = content  # of the source, filled in the end
        self._partitions = range(story.partitions)
        self._copiers = [
            Copier(
                NUMBERED, f"copy-{number}", story.partitions, f"copier-{number}", setting.bootstrap, draw,
                TIMEOUTS_MS[draw(len(TIMEOUTS_MS))], setting.pause_s, is_new=bool(draw(2)),
            )
            for number in range(story.copiers)
        ]  # fmt: skip
        self.clients = [*self._copiers]
        self.topics = [Topic(f"copy-{number}", story.partitions) for number in range(story.copiers)]
        self._copies: dict[tuple[int, int], list[bytes | None]] = {}  # (copier, partition) -> values
        self._ends: dict[tuple[int, int], int] = {}  # -> the committed offset of the source

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        for number, topic in enumerate(self.topics):
            reader = Reader(
                f"last reader of {topic.name}", self._setting.bootstrap, topic.name, topic.partitions,
                partial(self._note, number), READ_COMMITTED,
            )  # fmt: skip
            self.clients.append(reader)
            yield reader, reader.read_to_end
        for number, copier in enumerate(self._copiers):
            asker = Fetcher(f"asker of {copier.group}", self._setting.bootstrap)
            yield asker, partial(self._ask, asker, number, copier.group)

    def _ask(self, asker: Fetcher, number: int, group: str) -> None:
        for partition in self._partitions:
            self._ends[(number, partition)] = asker.committed_offset(group, NUMBERED, partition)
        asker.close()

    def _note(self, number: int, _reader: str, partition: int, got: Got) -> None:
        self._copies.setdefault((number, partition), []).append(got.value)

    def check(self) -> Iterable[str]:
        """See Part: what was copied is what is below the committed offset, once and in order."""
        yield from problems_of(self.clients)
        yield from _fenced_early(self._setting, self.clients)
        for (number, partition), end in self._ends.items():
            source = [
                "{} {}".format(*record).encode()
                for offset, record in sorted(self._content[partition].items())
                if offset < end
            ]
            copy = self._copies.get((number, partition), [])
            if copy != source:
                found = ", ".join(differences(source, copy))
                yield f"sums: copy-{number}-{partition}: {len(copy)} of {len(source)} records: {found}"

    def summary(self) -> str:
        """See Part."""
        return f"{sum(map(len, self._copies.values()))} records copied exactly once"


def _fenced_early(setting: Setting, clients: Iterable[Any]) -> Iterable[str]:
    """Yield who lost a transaction although nothing broke, and its time was not up.

    Why not with faults: a request to begin anew that was repeated may be carried out late, and clocks may jump.
    """
    if not setting.story.faults:
        for client in clients:
            yield from getattr(client, "fenced_early", ())


def value_of(got: Got) -> Value:
    """Return the value that was read."""
    assert got.value is not None
    return Value.decoded(got.value)
