"""BrokerTopicMetrics: the meters that exist for the whole broker and for each topic.

Rules
1. A topic has a cell of counts for each thread. An append or a fetch looks its cell up once and adds to several counts.
2. The same is added to the thread's cell for the whole broker, since topics can be removed.
3. As in Kafka, the broker's series exist from the start, and a topic's series from its first event.

Threads: any; a race makes the same `TopicStats` twice, and `setdefault` keeps one. The scraper reads.
Source: Kafka's BrokerTopicMetrics, BrokerTopicStats (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final

from barnabas.metrics.histograms import BOUNDS
from barnabas.metrics.meters import Meter
from barnabas.metrics.table import catalogue as c
from barnabas.metrics.tally import Tally

if TYPE_CHECKING:
    from barnabas.metrics.registry import Labels, Registry
    from barnabas.metrics.table.catalogue import Metric

# The counts of a topic, by their index in a cell.
_ROWS: Final = (
    c.TOTAL_PRODUCE_REQUESTS_PER_SEC,
    c.BYTES_IN_PER_SEC,
    c.MESSAGES_IN_PER_SEC,
    c.TOTAL_FETCH_REQUESTS_PER_SEC,
    c.BYTES_OUT_PER_SEC,
    c.BYTES_REJECTED_PER_SEC,
    c.FAILED_PRODUCE_REQUESTS_PER_SEC,
    c.FAILED_FETCH_REQUESTS_PER_SEC,
    c.FETCH_MESSAGE_CONVERSIONS_PER_SEC,
    c.PRODUCE_MESSAGE_CONVERSIONS_PER_SEC,
    c.TOTAL_SHARE_FETCH_REQUESTS_PER_SEC,
    c.FAILED_SHARE_FETCH_REQUESTS_PER_SEC,
    c.TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS_PER_SEC,
    c.FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS_PER_SEC,
)
_PRODUCES: Final = 0
_BYTES_IN: Final = 1
_RECORDS_IN: Final = 2
_FETCHES: Final = 3
_BYTES_OUT: Final = 4
_BYTES_REJECTED: Final = 5
FAILED_PRODUCE: Final = 6
FAILED_FETCH: Final = 7
SHARE_FETCHES: Final = 10
FAILED_SHARE_FETCH: Final = 11
SHARE_ACKNOWLEDGEMENTS: Final = 12
FAILED_SHARE_ACKNOWLEDGEMENT: Final = 13
# As in Kafka, no topic has series of these.
_BROKER_ROWS: Final = (
    c.REPLICATION_BYTES_IN_PER_SEC,
    c.REPLICATION_BYTES_OUT_PER_SEC,
    c.REASSIGNMENT_BYTES_IN_PER_SEC,
    c.REASSIGNMENT_BYTES_OUT_PER_SEC,
    c.NO_KEY_COMPACTED_TOPIC_RECORDS_PER_SEC,
    c.INVALID_MAGIC_NUMBER_RECORDS_PER_SEC,
    c.INVALID_MESSAGE_CRC_RECORDS_PER_SEC,
    c.INVALID_OFFSET_OR_SEQUENCE_RECORDS_PER_SEC,
)


class _Cell:
    """One thread's counts. Owner: that thread."""

    __slots__ = ("bytes_in", "counts", "produces", "records_in")

    def __init__(self) -> None:
        self.produces = 0  # Why attributes: counted for every batch, and a compiled attribute allocates no object
        self.bytes_in = 0
        self.records_in = 0
        self.counts = [0] * len(_ROWS)  # the other counts

    def appended(self, size_bytes: int, records: int) -> None:
        """Count an append."""
        self.produces += 1
        self.bytes_in += size_bytes
        self.records_in += records

    def totals(self) -> list[int]:
        """Return all counts, in the order of the rows. For any thread."""
        totals = self.counts[:]
        totals[_PRODUCES] += self.produces
        totals[_BYTES_IN] += self.bytes_in
        totals[_RECORDS_IN] += self.records_in
        return totals


class _Sizes:
    """One thread's distributions of produced batches' bytes and records, and of their records' bytes."""

    __slots__ = ("_batches", "_records")

    def __init__(self) -> None:
        self._batches = Tally((BOUNDS, BOUNDS))
        self._records = Tally((BOUNDS,))

    def add(self, size_bytes: int, records: int) -> None:
        """Count an appended batch, or several of one request and partition."""
        self._batches.count(float(size_bytes), float(records))  # Why floats: request_metrics.py
        if records > 0:
            self._records.add(0, size_bytes / records, records)

    def cells(self) -> list[list[float]]:
        """Return a histogram's cell for each of the three. For any thread."""
        return self._batches.cells() + self._records.cells()


class _Own:
    """The cells of one thread and topic."""

    __slots__ = ("broker", "sizes", "topic")

    def __init__(self, topic: _Cell, broker: _Cell, sizes: _Sizes) -> None:
        # Fixed before start.
        self.topic = topic
        self.broker = broker  # shared by all topics
        self.sizes = sizes  # likewise


class TopicStats:
    """The counts of one topic."""

    __slots__ = ("_cells", "_looked_s", "_meters", "_of_thread", "_seen")

    def __init__(self, of_thread: Callable[[], tuple[_Cell, _Sizes]], now_s: float) -> None:
        self._of_thread = of_thread  # fixed before start; returns the calling thread's cells for all topics
        self._cells: dict[int, _Own] = {}  # owner of each: the thread of that identity
        self._meters: dict[int, Meter] = {}  # owner: the scraper; by index of a count above 0
        self._seen: list[int] = []  # owner: the scraper
        self._looked_s = now_s  # owner: the scraper; when it last looked, at first when the topic was made

    def appended(self, size_bytes: int, records: int) -> None:
        """Count a produce to one partition."""
        own = self._own()
        own.topic.appended(size_bytes, records)
        own.broker.appended(size_bytes, records)
        own.sizes.add(size_bytes, records)

    def fetched(self, n: int = 1) -> None:
        """Count `n` requests for one partition."""
        self.count(_FETCHES, n)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of records sent to a client."""
        self.count(_BYTES_OUT, size_bytes)

    def refused(self, bytes_rejected: int, *, is_failure: bool) -> None:
        """Count a rejected produce, and the bytes of a batch that is too large."""
        self.count(_PRODUCES)
        if bytes_rejected:
            self.count(_BYTES_REJECTED, bytes_rejected)
        if is_failure:
            self.count(FAILED_PRODUCE)

    def count(self, index: int, n: int = 1) -> None:
        """Add to one of the counts."""
        own = self._own()
        own.topic.counts[index] += n
        own.broker.counts[index] += n

    def _own(self) -> _Own:
        """Return the calling thread's cells."""
        ident = get_ident()
        own = self._cells.get(ident)
        if own is None:
            own = self._cells[ident] = _Own(_Cell(), *self._of_thread())
        return own

    def totals(self) -> list[int]:
        """Return all counts, in the order of the rows."""
        return _sum([own.topic for own in list(self._cells.values())])

    def messages_in(self) -> int:
        """Return the number of appended records."""
        return self.totals()[_RECORDS_IN]

    def meters(self, registry: Registry) -> Iterator[tuple[Metric, Meter]]:
        """Yield a meter for each count above 0. For the scraper."""
        self._seen = self.totals()
        since_s, self._looked_s = self._looked_s, registry.now_s()
        for index, total in enumerate(self._seen):
            if total:
                meter = self._meters.get(index)
                if meter is None:
                    # Why since then: it was 0 at the last look, so these events are of the time since.
                    meter = self._meters[index] = Meter(since_s, partial(self._seen_at, index))
                yield _ROWS[index], meter

    def _seen_at(self, index: int) -> int:
        return self._seen[index]


def _sum(cells: Sequence[_Cell]) -> list[int]:
    return list(map(sum, zip([0] * len(_ROWS), *[cell.totals() for cell in cells], strict=True)))


class BatchSizes:
    """The distributions of `_Sizes` over all threads, for the page."""

    def __init__(self, registry: Registry) -> None:
        self._threads: dict[int, _Sizes] = {}  # owner of each: the thread of that identity
        self._seen: list[list[list[float]]] = []  # owner: the scraper
        registry.before_scrape(self._look)
        for index, row in enumerate((c.BATCH_BYTES, c.BATCH_RECORDS, c.RECORD_BYTES)):
            registry.histogram_of(row, partial(self._cells, index))

    def of_thread(self) -> _Sizes:
        """Return the calling thread's distributions."""
        return self._threads.setdefault(get_ident(), _Sizes())

    def _look(self) -> None:
        self._seen = [sizes.cells() for sizes in list(self._threads.values())]

    def _cells(self, index: int) -> list[list[float]]:
        return [cells[index] for cells in self._seen]


class BrokerTopicStats:
    """The counts of all topics, by `topic(name)`, and of the whole broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry  # fixed before start
        self._sizes = BatchSizes(registry)  # fixed before start
        self._broker: dict[int, _Cell] = {}  # owner of each: the thread of that identity
        self._topics: dict[str, TopicStats] = {}  # any thread sets a key to an equivalent value
        meters = {row: registry.meter(row) for row in _BROKER_ROWS}
        # Fixed before start:
        self.replication_bytes_in = meters[c.REPLICATION_BYTES_IN_PER_SEC].mark
        self.replication_bytes_out = meters[c.REPLICATION_BYTES_OUT_PER_SEC].mark
        self.reassignment_bytes_in = meters[c.REASSIGNMENT_BYTES_IN_PER_SEC].mark
        self.reassignment_bytes_out = meters[c.REASSIGNMENT_BYTES_OUT_PER_SEC].mark
        self.records_without_key = meters[c.NO_KEY_COMPACTED_TOPIC_RECORDS_PER_SEC].mark
        self.invalid_crc = meters[c.INVALID_MESSAGE_CRC_RECORDS_PER_SEC].mark
        self.invalid_offset_or_sequence = meters[c.INVALID_OFFSET_OR_SEQUENCE_RECORDS_PER_SEC].mark
        for index, row in enumerate(_ROWS):
            registry.meter_of(row, partial(self._total, index))
        registry.source(self._of_topics)

    def topic(self, name: str) -> TopicStats:
        """Return the counts of a topic."""
        stats = self._topics.get(name)
        if stats is not None:
            return stats
        return self._topics.setdefault(name, TopicStats(self._of_thread, self._registry.now_s()))

    def remove(self, name: str) -> None:
        """Drop a topic that has left this broker. Its counts stay in the broker's series."""
        self._topics.pop(name, None)

    def _of_thread(self) -> tuple[_Cell, _Sizes]:
        return self._broker.setdefault(get_ident(), _Cell()), self._sizes.of_thread()

    def _total(self, index: int) -> int:
        return _sum(list(self._broker.values()))[index]

    def _of_topics(self) -> Iterator[tuple[Metric, Labels, Meter]]:
        for name, stats in list(self._topics.items()):
            for row, meter in stats.meters(self._registry):
                yield row, (name,), meter
