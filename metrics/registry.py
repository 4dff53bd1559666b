"""The registry: every instrument of this process, by catalogue row and labels.

A component takes its instruments once, when it is built, and keeps them; recording does not use the registry. A process
has one registry and one /metrics page.

There are four ways onto the page:

- an instrument that a component records into (`meter`, `histogram`, ...);
- a number that a component counts already (`gauge`, and the `..._of` methods);
- a table, where there are many series: one call returns the numbers of all partitions;
- `foreign`: families that are no rows of the catalogue, since clients name them.

Threads: any. `_lock` guards the tables. The scraper holds `scraping` while it reads instruments that change as they are
read. No recording waits for either lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from barnabas.common.clock import Clock, SystemClock
from barnabas.metrics.histograms import Histogram, Timer
from barnabas.metrics.meters import AvgMax, Counter, Gauge, Meter, Sensor
from barnabas.metrics.table.row import Kind, Metric

Instrument = Counter | Meter | Histogram | Gauge | Sensor | AvgMax | Timer
Labels = tuple[str, ...]
_I = TypeVar("_I", Counter, Meter, Histogram, Gauge, Sensor, AvgMax, Timer)


class Table(NamedTuple):
    """Rows with the same labels. `read` returns, for each set of label values, one number for each row."""

    rows: tuple[Metric, ...]
    read: Callable[[], Iterable[tuple[Labels, Sequence[float]]]]


class ForeignFamily(NamedTuple):
    """A family that clients named: its Prometheus name and type, and its series.

    The component that makes it ensures that the name is valid, and that it is not one of the catalogue's.
    """

    name: str
    type: str
    doc: str
    series: list[tuple[dict[str, str], float]]


#: Returns instruments that another component creates and removes.
Source = Callable[[], Iterable[tuple[Metric, Labels, Instrument]]]


class Registry:
    """Makes and finds instruments. The /metrics page reads them through `collect` and `tables`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()  # fixed before start
        self._lock = threading.Lock()
        self.scraping = threading.Lock()
        self._instruments: dict[Metric, dict[Labels, Instrument]] = {}  # guarded by: _lock
        self._tables: list[Table] = []  # guarded by: _lock
        self._sources: list[Source] = []  # guarded by: _lock
        self._foreign: list[Callable[[], Iterable[ForeignFamily]]] = []  # guarded by: _lock
        self.last_count = 0  # owner: the scraper; instruments at the last scrape, tables aside
        self._hooks: list[Callable[[], None]] = []  # guarded by: _lock

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock.monotonic_ns() / 1e9

    def now_ns(self) -> int:
        """Return the monotonic time in nanoseconds."""
        return self._clock.monotonic_ns()

    # Instruments to record into. The first call with these labels makes the instrument, later ones return it.

    def counter(self, row: Metric, **labels: object) -> Counter:
        """Return the counter of the row with these labels."""
        return self._get(row, (Kind.COUNTER,), labels, Counter, Counter)

    def meter(self, row: Metric, **labels: object) -> Meter:
        """Return the meter (or meter of nanoseconds) of the row with these labels."""
        return self._get(row, (Kind.METER, Kind.RATIO), labels, Meter, lambda: Meter(self.now_s()))

    def histogram(self, row: Metric, **labels: object) -> Histogram:
        """Return the histogram of the row with these labels."""
        return self._get(row, (Kind.HISTOGRAM,), labels, Histogram, lambda: Histogram(self.now_s()))

    def timer(self, row: Metric, **labels: object) -> Timer:
        """Return the timer of the row with these labels."""
        return self._get(row, (Kind.TIMER,), labels, Timer, lambda: Timer(self.now_s()))

    def sensor(self, row: Metric, **labels: object) -> Sensor:
        """Return the sensor of the row with these labels."""
        return self._get(row, (Kind.SENSOR,), labels, Sensor, lambda: Sensor(self.now_s()))

    def avg_max(self, row: Metric, **labels: object) -> AvgMax:
        """Return the average and maximum of the row with these labels."""
        return self._get(row, (Kind.AVG_MAX,), labels, AvgMax, lambda: AvgMax(self.now_s))

    # Numbers that are counted elsewhere. Each scrape calls `read`, so it must be quick and take no long-held lock. A
    # second registration with the same labels (of a table: the same rows) replaces the first.

    def gauge(self, row: Metric, read: Callable[[], float], **labels: object) -> Gauge:
        """Show the number that `read` returns, as a gauge or a counter."""
        return self._set(row, (Kind.GAUGE, Kind.COUNTER), labels, Gauge(read))

    def meter_of(self, row: Metric, read: Callable[[], int], **labels: object) -> Meter:
        """Show the count that `read` returns, and its rates, as a meter."""
        return self._set(row, (Kind.METER, Kind.RATIO), labels, Meter(self.now_s(), read))

    def sensor_of(self, row: Metric, read: Callable[[], int], **labels: object) -> Sensor:
        """Show the count that `read` returns, and its rate, as a sensor."""
        return self._set(row, (Kind.SENSOR,), labels, Sensor(self.now_s(), read))

    def histogram_of(self, row: Metric, read: Callable[[], list[list[float]]], **labels: object) -> Histogram:
        """Show the cells that `read` returns, merged, as a histogram. A cell is laid out as in `histograms.py`."""
        return self._set(row, (Kind.HISTOGRAM,), labels, Histogram(self.now_s(), read))

    def text(self, row: Metric, read: Callable[[], Labels]) -> None:
        """Show the words that `read` returns: one for each label of the row."""
        assert row.kind is Kind.TEXT, f"{row.name} is a {row.kind.name.lower()}"
        self._add_table(Table((row,), lambda: [(read(), (1,))]))

    def table(self, rows: Sequence[Metric], read: Callable[[], Iterable[tuple[Labels, Sequence[float]]]]) -> None:
        """Show the numbers that `read` returns: for each set of label values, one for each row."""
        assert {row.kind for row in rows} <= {Kind.GAUGE, Kind.COUNTER}, "a table has gauges and counters only"
        assert len({row.labels for row in rows}) == 1, "the rows of a table have the same labels"
        self._add_table(Table(tuple(rows), read))

    def source(self, read: Source) -> None:
        """Show the instruments that `read` returns at each scrape."""
        with self._lock:
            self._sources.append(read)

    def foreign(self, read: Callable[[], Iterable[ForeignFamily]]) -> None:
        """Show the families that `read` returns at each scrape."""
        with self._lock:
            self._foreign.append(read)

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Call `hook` at the start of each scrape, on the scraper's thread."""
        with self._lock:
            self._hooks.append(hook)

    def remove(self, row: Metric, **labels: object) -> None:
        """Remove the instruments of `row` that have these label values (all of them if none is given)."""
        wanted = [(row.labels.index(name), str(value)) for name, value in labels.items()]
        with self._lock:
            table = self._instruments.get(row, {})
            for key in list(table):
                if all(index < len(key) and key[index] == value for index, value in wanted):
                    del table[key]

    # For the /metrics page

    def collect(self) -> list[tuple[Metric, list[tuple[Labels, Instrument]]]]:
        """Run the hooks; then return every row that has instruments, with a copy of its table of instruments."""
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

    def foreign_families(self) -> list[ForeignFamily]:
        """Return the families that clients named."""
        with self._lock:
            every = self._foreign[:]
        return [family for read in every for family in read()]

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
    """Return the label values in the row's order. A label that is not given is "", and the page does not show it."""
    return tuple(str(labels.get(name, "")) for name in row.labels)
