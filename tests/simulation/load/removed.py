"""Parts of a load whose records the cluster may remove: a compacted topic, and one with a short retention.

Threads: the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import ControlType, iter_headers, iter_records, parse_control_type
from tests.simulation.checks.keys import KeyJournal, TrimmedJournal
from tests.simulation.load.clients.client import Client
from tests.simulation.load.clients.fetching import READ_COMMITTED
from tests.simulation.load.clients.producers import IdempotentProducer, Sent
from tests.simulation.load.clients.readers import Reader
from tests.simulation.load.clients.transactions import KeyedTransactions
from tests.simulation.load.part import Part, Setting, Topic, problems_of

if TYPE_CHECKING:
    from tests.simulation.load.clients.admin import Meddler
    from tests.simulation.load.clients.fetching import Got

COMPACTED: Final = "compacted"
TRIMMED: Final = "trimmed"
KEYS: Final = 4  # of a producer, at a time
KEYS_FOR: Final = 12  # records; then it takes other keys, so that the last records of the earlier ones get old
LONG_MS: Final = "86400000"  # longer than a life, also where clocks jump
TIMEOUT_MS: Final = 10_000  # of a transaction
TOMBSTONES: Final = 5  # one of so many records is one
COMPACTED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "8000",
    "min.cleanable.dirty.ratio": "0.01",
}
TRIMMED_CONFIG: Final = {"segment.ms": "5000"}
SHORT_MS: Final = ("3000", "15000")  # retention


class Keyed(NamedTuple):
    """A record of a compacted topic."""

    key: bytes
    number: int


class Compacted(Part):
    """Producers of keys, some of whose records are tombstones; half of the producers write in transactions."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self.journal = KeyJournal()
        self._last: dict[bytes, int | None] = {}
        self._keeps_tombstones = not setting.draw(2)
        self._counts: dict[int, int] = {}  # producer -> records sent
        config = {**COMPACTED_CONFIG, "delete.retention.ms": LONG_MS if self._keeps_tombstones else "3000"}
        self.topics = [Topic(COMPACTED, 1, config, is_whole=False)]
        for number in range(setting.story.keyed):
            if setting.draw(2):
                producer: Client = IdempotentProducer(
                    number, setting.bootstrap, COMPACTED, 1, self, setting.draw, setting.pause_s
                )
            else:
                producer = KeyedTransactions(
                    number, COMPACTED, self, f"keyed-{number}", setting.bootstrap, setting.draw, TIMEOUT_MS,
                    setting.pause_s, is_new=bool(setting.draw(2)),
                )  # fmt: skip
            self.clients.append(producer)
        self.clients.append(
            Reader("reader of keys", setting.bootstrap, COMPACTED, 1, self._read, READ_COMMITTED, is_trimmed=True)
        )

    def next(self, _partition: int, producer: int) -> Sent:
        """See Journal."""
        draw = self._setting.draw
        count = self._counts[producer] = self._counts.get(producer, 0) + 1
        key = f"{producer} {count // KEYS_FOR} {draw(KEYS)}".encode()
        is_tombstone = not draw(TOMBSTONES)
        number = self.journal.send(key, is_tombstone=is_tombstone)
        return Sent(key, None if is_tombstone else str(number).encode(), Keyed(key, number))

    def acknowledged(self, _partition: int, sent: Sent, _offset: int | None) -> None:
        """See Journal."""
        self.journal.acknowledge(*sent.record)

    def aborted(self, sent: Sent) -> None:
        """See AbortingJournal."""
        self.journal.abort(*sent.record)

    def _read(self, reader: str, _partition: int, got: Got) -> None:
        assert got.key is not None
        self.journal.read(reader, got.key, None if got.value is None else int(got.value))

    def _read_last(self, reader: str, partition: int, got: Got) -> None:
        assert got.key is not None
        self._read(reader, partition, got)
        self._last[got.key] = None if got.value is None else int(got.value)

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        reader = Reader(
            "last reader of keys", self._setting.bootstrap, COMPACTED, 1, self._read_last, READ_COMMITTED,
            is_trimmed=True,
        )  # fmt: skip
        yield reader, reader.read_to_end

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        found = self.journal.check(self._last, keeps_tombstones=self._keeps_tombstones)
        yield from (f"{COMPACTED}: {anomaly}" for anomaly in found[:10])
        # Why each: the leader may have removed a tombstone that another replica never got.
        for broker, log in self._setting.stored(TopicPartition(COMPACTED, 0)).items():
            anomalies = self.journal.check_replica(last_records(log), keeps_tombstones=self._keeps_tombstones)
            yield from (f"{COMPACTED} on {broker}: {anomaly}" for anomaly in anomalies[:10])

    def summary(self) -> str:
        """See Part."""
        return f"{sum(map(len, self.journal.sent.values()))} records of {len(self.journal.sent)} keys"


def last_records(log: bytes) -> dict[bytes, int | None]:
    """Return the number of the last record of each key in a log, None for a tombstone; what was aborted is left out."""
    records: list[tuple[bytes, int | None]] = []
    open_ones: dict[int, list[int]] = {}  # producer id -> where its open transaction has records
    aborted: set[int] = set()
    for place, header in iter_headers(log):
        for record in iter_records(log, place):
            assert record.key is not None
            if header.is_control:
                written = open_ones.pop(header.producer_id, [])
                if parse_control_type(record.key) is ControlType.ABORT:
                    aborted.update(written)
                continue
            if header.is_transactional:
                open_ones.setdefault(header.producer_id, []).append(len(records))
            records.append((record.key, None if record.value is None else int(record.value)))
    return {key: number for at, (key, number) in enumerate(records) if at not in aborted}


class Trimmed(Part):
    """Producers to a topic whose records are deleted soon; `meddlers` delete some at once."""

    def __init__(self, setting: Setting, meddlers: list[Meddler]) -> None:
        super().__init__()
        self._setting = setting
        self._meddlers = meddlers
        self.journal = TrimmedJournal()
        self._counts: dict[int, int] = {}  # producer -> records sent
        self._content: dict[int, bytes] = {}
        self._start = 0
        self._keeps_all = not setting.story.meddlers and not setting.draw(3)
        # Why the shorter one: records get too old while they wait for a follower.
        short_ms = SHORT_MS[setting.draw(len(SHORT_MS))]
        config = {**TRIMMED_CONFIG, "retention.ms": LONG_MS if self._keeps_all else short_ms}
        self.topics = [Topic(TRIMMED, 1, config, is_whole=False)]
        self.clients = [
            IdempotentProducer(number, setting.bootstrap, TRIMMED, 1, self, setting.draw, setting.pause_s)
            for number in range(setting.story.trimmed)
        ]
        self.clients.append(Reader("trimmed reader", setting.bootstrap, TRIMMED, 1, self._read, is_trimmed=True))

    def next(self, _partition: int, producer: int) -> Sent:
        """See Journal."""
        number = self._counts[producer] = self._counts.get(producer, 0) + 1
        value = f"{producer} {number}".encode()
        self.journal.send(value)
        return Sent(None, value, value)

    def acknowledged(self, _partition: int, sent: Sent, offset: int | None) -> None:
        """See Journal."""
        if offset is not None:
            self.journal.acknowledge(offset, sent.record)

    def _read(self, reader: str, _partition: int, got: Got) -> None:
        assert got.value is not None
        self.journal.read(reader, got.offset, got.value)

    def _read_last(self, reader: str, partition: int, got: Got) -> None:
        self._read(reader, partition, got)
        assert got.value is not None
        self._content[got.offset] = got.value

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        reader = Reader("last trimmed reader", self._setting.bootstrap, TRIMMED, 1, self._read_last, is_trimmed=True)
        yield reader, lambda: self._read_all(reader)

    def _read_all(self, reader: Reader) -> None:
        reader.read_to_end()
        # Why afterwards: what was read may be deleted meanwhile, but what is kept was read.
        start = None
        while start is None:
            start = reader.start_of(TRIMMED, 0)
        self._start = start
        reader.close()

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        if self._keeps_all and self._start:
            yield f"{TRIMMED}: lost: the log begins at {self._start}, although nothing is older than its retention"
        low = 0
        # Why not with faults: a process that ends without a stop knows the start of the last checkpoint, up to a minute
        # old, as in Kafka. If it was the last one in sync, its log begins there again.
        if not self._setting.story.faults:
            low = max((each.low_watermarks.get((TRIMMED, 0), 0) for each in self._meddlers), default=0)
        yield from (f"{TRIMMED}: {anomaly}" for anomaly in self.journal.check(self._content, self._start, low)[:10])

    def summary(self) -> str:
        """See Part."""
        return f"{len(self.journal.sent)} records trimmed to {len(self._content)} from {self._start}"
