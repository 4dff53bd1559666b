"""The registry: every instrument of this process, by catalogue row and labels.

Components take their handles once, when they are built, and keep them; recording never comes through here. One registry
and one /metrics page belong to a process.

Three ways to be on the page: an instrument that one records into (`meter`, `histogram`, ...); a number that somebody
counts already (`gauge`, and the `..._of` methods); and a table, for what there are many of: one call tells the numbers
of all partitions.

Threads: any. `_lock` guards the tables. `scraping` is held by the scraper while it reads instruments that change as
they are read; no recording waits for either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from barnabas.common.clock import Clock, SystemClock
from barnabas.metrics.histograms import Histogram, Timer
from barnabas.metrics.meters import AvgMax, Counter, Gauge, Meter, Sensor
from barnabas.metrics.row import Kind, Metric

Instrument = Counter | Meter | Histogram | Gauge | Sensor | AvgMax | Timer
Labels = tuple[str, ...]
_I = TypeVar("_I", Counter, Meter, Histogram, Gauge, Sensor, AvgMax, Timer)


class Table(NamedTuple):
    """Rows with the same labels; `read` tells, for each set of label values, one number a row."""

    rows: tuple[Metric, ...]
    read: Callable[[], Iterable[tuple[Labels, Sequence[float]]]]


#: Tells instruments that come and go by themselves.
Source = Callable[[], Iterable[tuple[Metric, Labels, Instrument]]]


class Registry:
    """Makes and finds instruments; the exposition reads them through `collect` and `tables`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()  # fixed before start
        self._lock = threading.Lock()
        self.scraping = threading.Lock()
        self._instruments: dict[Metric, dict[Labels, Instrument]] = {}  # guarded by: _lock
        self._tables: list[Table] = []  # guarded by: _lock
        self._sources: list[Source] = []  # guarded by: _lock
        self.last_count = 0  # owner: the scraper; instruments at the last scrape, tables aside
        self._hooks: list[Callable[[], None]] = []  # guarded by: _lock

    def now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    # To record into; made at the first call with these labels

    def counter(self, row: Metric, **labels: object) -> Counter:
        return self._get(row, (Kind.COUNTER,), labels, Counter, Counter)

    def meter(self, row: Metric, **labels: object) -> Meter:
        return self._get(row, (Kind.METER, Kind.RATIO), labels, Meter, lambda: Meter(self.now_s()))

    def histogram(self, row: Metric, **labels: object) -> Histogram:
        return self._get(row, (Kind.HISTOGRAM,), labels, Histogram, lambda: Histogram(self.now_s()))

    def timer(self, row: Metric, **labels: object) -> Timer:
        return self._get(row, (Kind.TIMER,), labels, Timer, lambda: Timer(self.now_s()))

    def sensor(self, row: Metric, **labels: object) -> Sensor:
        return self._get(row, (Kind.SENSOR,), labels, Sensor, lambda: Sensor(self.now_s()))

    def avg_max(self, row: Metric, **labels: object) -> AvgMax:
        return self._get(row, (Kind.AVG_MAX,), labels, AvgMax, lambda: AvgMax(self.now_s))

    # What is counted elsewhere; `read` is called at each scrape, so it must be quick and take no long-held lock. A
    # second registration with the same labels (of a table: the same rows) replaces the first

    def gauge(self, row: Metric, read: Callable[[], float], **labels: object) -> Gauge:
        return self._set(row, (Kind.GAUGE, Kind.COUNTER), labels, Gauge(read))

    def meter_of(self, row: Metric, read: Callable[[], int], **labels: object) -> Meter:
        return self._set(row, (Kind.METER, Kind.RATIO), labels, Meter(self.now_s(), read))

    def sensor_of(self, row: Metric, read: Callable[[], int], **labels: object) -> Sensor:
        return self._set(row, (Kind.SENSOR,), labels, Sensor(self.now_s(), read))

    def histogram_of(self, row: Metric, read: Callable[[], list[list[float]]], **labels: object) -> Histogram:
        return self._set(row, (Kind.HISTOGRAM,), labels, Histogram(self.now_s(), read))

    def text(self, row: Metric, read: Callable[[], Labels]) -> None:
        """Show the words that `read` returns, one for each label of the row."""
        assert row.kind is Kind.TEXT, f"{row.name} is a {row.kind.name.lower()}"
        self._add_table(Table((row,), lambda: [(read(), (1,))]))

    def table(self, rows: Sequence[Metric], read: Callable[[], Iterable[tuple[Labels, Sequence[float]]]]) -> None:
        """Show the numbers that `read` tells: for each set of label values one a row."""
        assert {row.kind for row in rows} <= {Kind.GAUGE, Kind.COUNTER}, "a table has gauges and counters only"
        assert len({row.labels for row in rows}) == 1, "the rows of a table have the same labels"
        self._add_table(Table(tuple(rows), read))

    def source(self, read: Source) -> None:
        """Show the instruments that `read` returns at each scrape."""
        with self._lock:
            self._sources.append(read)

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Call `hook` at the beginning of each scrape, on the scraper's thread."""
        with self._lock:
            self._hooks.append(hook)

    def remove(self, row: Metric, **labels: object) -> None:
        """Forget the instruments of `row` that carry these label values (all of them when none is given)."""
        wanted = [(row.labels.index(name), str(value)) for name, value in labels.items()]
        with self._lock:
            table = self._instruments.get(row, {})
            for key in list(table):
                if all(index < len(key) and key[index] == value for index, value in wanted):
                    del table[key]

    # For the exposition

    def collect(self) -> list[tuple[Metric, list[tuple[Labels, Instrument]]]]:
        """Return every row that has instruments, with a copy of them."""
        with self._lock:
            hooks = self._hooks[:]
        for hook in hooks:
            hook()
        with self._lock:
            found = {row: list(table.items()) for row, table in self._instruments.items() if table}
            sources = self._sources[:]
        for read in sources:
            for row, labels, instrument in read():
                found.setdefault(row, []).append((labels, instrument))
        self.last_count = sum(map(len, found.values()))
        return list(found.items())

    def tables(self) -> list[Table]:
        """Return a copy of the list of tables."""
        with self._lock:
            return self._tables[:]

    def _add_table(self, table: Table) -> None:
        with self._lock:
            self._tables = [known for known in self._tables if known.rows != table.rows]
            assert not any(row in known.rows for known in self._tables for row in table.rows), "a row is in one table"
            self._tables.append(table)

    def _get(
        self,
        row: Metric,
        kinds: tuple[Kind, ...],
        labels: dict[str, object],
        cls: type[_I],
        make: Callable[[], _I],
    ) -> _I:
        _check(row, kinds, labels)
        key = _key(row, labels)
        with self._lock:
            table = self._instruments.setdefault(row, {})
            found = table.get(key)
            if found is None:
                found = table[key] = make()
        assert isinstance(found, cls)
        return found

    def _set(self, row: Metric, kinds: tuple[Kind, ...], labels: dict[str, object], instrument: _I) -> _I:
        _check(row, kinds, labels)
        with self._lock:
            self._instruments.setdefault(row, {})[_key(row, labels)] = instrument
        return instrument


def _check(row: Metric, kinds: tuple[Kind, ...], labels: dict[str, object]) -> None:
    assert row.kind in kinds, f"{row.name} is a {row.kind.name.lower()}"
    unknown = labels.keys() - set(row.labels)
    assert not unknown, f"{row.name} has no label {sorted(unknown)}"


def _key(row: Metric, labels: dict[str, object]) -> Labels:
    """Return the label values in the row's order; a label that is not given is "" (and not shown)."""
    return tuple(str(labels.get(name, "")) for name in row.labels)
