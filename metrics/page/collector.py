"""The registry as a collector of prometheus-client: one `Metric` for each family of series.

The names come from `names.py`. Only `exposition.py` imports this module, at the first scrape: it loads
prometheus-client.

Threads: the HTTP server's, one page at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from barnabas.metrics.histograms import QUANTILES, Histogram, HistogramSnapshot, Timer, bucket_of
from barnabas.metrics.meters import AvgMax, Counter, Gauge, Meter, Sensor
from barnabas.metrics.names import Dialect, all_families, base_names, spelt
from barnabas.metrics.table.row import Kind, Metric

if TYPE_CHECKING:
    from barnabas.metrics.registry import Instrument, Labels, Registry, Table

log = logging.getLogger("barnabas.metrics")

_N = TypeVar("_N", float, HistogramSnapshot)

#: Label names and values of a series, in every spelling.
Spelt = dict[str, str]

#: Upper bounds of Prometheus histograms, by the unit that ends their names; times the scale each is one of `BOUNDS`.
_SECONDS: Final = tuple(step * 10.0**decade for decade in range(-4, 1) for step in (1, 2.5, 5)) + (10.0,)
_BYTES: Final = tuple(step * 10.0**decade for decade in range(1, 7) for step in (1, 2.5, 5)) + (1e7, 1e8)
_RECORDS: Final = tuple(step * 10.0**decade for decade in range(5) for step in (1, 2.5, 5)) + (1e5,)
_BOUNDS: Final = {"seconds": (_SECONDS, 1000.0), "bytes": (_BYTES, 1.0), "records": (_RECORDS, 1.0)}
_BUCKETS: Final = {
    unit: [(f"{bound:g}", bucket_of(bound * scale)) for bound in bounds] for unit, (bounds, scale) in _BOUNDS.items()
}


class _Kept(NamedTuple):
    """A family of the last scrape, and what it was made of."""

    labels: list[Spelt]
    numbers: Sequence[float] | Sequence[HistogramSnapshot]
    family: Family


class RegistryCollector(Collector):
    """Yields the families of one registry, in one dialect.

    Spelt labels and families are kept from scrape to scrape: most partitions are idle, and most numbers are the same.
    """

    def __init__(self, registry: Registry, dialect: Dialect) -> None:
        self._registry = registry  # fixed before start
        self._dialect = dialect  # fixed before start
        self._labels: dict[tuple[str, ...], dict[Labels, Spelt]] = {}  # owner: the scraper; by names, then values
        self._used: dict[tuple[str, ...], dict[Labels, Spelt]] = {}  # owner: the scraper; those of this scrape
        self._families: dict[str, _Kept] = {}  # owner: the scraper; by name
        self._yielded: dict[str, _Kept] = {}  # owner: the scraper; those of this scrape
        self._reported: set[str] = set()  # owner: the scraper; rows whose failure is in the log

    def collect(self) -> Iterator[Family]:
        """Yield a family for each row of the registry that has instruments, in every name of the dialect.

        Those that clients named come last.
        """
        now_s = self._registry.now_s()
        self._used, self._yielded = {}, {}
        found = self._registry.collect()
        with self._registry.scraping:
            for row, instruments in found:
                if row.kind in (Kind.HISTOGRAM, Kind.TIMER):
                    yield from self._histograms(row, instruments, now_s)
                else:
                    yield from self._instruments(row, instruments, now_s)
            for table in self._registry.tables():
                yield from self._table(table)
            yield from self._foreign()
        self._labels, self._families = self._used, self._yielded  # drops what was not on this page

    def _spelt(self, names: tuple[str, ...], each: Iterable[Labels]) -> list[Spelt]:
        """Return the labels of each series. Series with equal values share one dict, on this scrape and the next."""
        known = self._labels.get(names, {})
        used = self._used.setdefault(names, {})
        result = []
        for values in each:
            labels = used.get(values)
            if labels is None:
                labels = used[values] = known.get(values) or spelt(zip(names, values, strict=True))
            result.append(labels)
        return result

    def _instruments(self, row: Metric, instruments: list[tuple[Labels, Instrument]], now_s: float) -> Iterator[Family]:
        values, numbers = [], []
        for labels, instrument in instruments:
            read = self._read(row, instrument, now_s)
            if read is not None:
                values.append(labels)
                numbers.append(read)
        if values:
            yield from self._simple(row, self._spelt(row.labels, values), list(zip(*numbers, strict=True)))

    def _table(self, table: Table) -> Iterator[Family]:
        try:
            lines = list(table.read())
        except Exception as error:  # a table is read by another component's code; its failure must not stop the scrape
            self._report(table.rows[0].name, error)
            return
        if lines:
            labels = self._spelt(table.rows[0].labels, [values for values, _ in lines])
            columns = zip(*[numbers for _, numbers in lines], strict=True)
            for row, column in zip(table.rows, columns, strict=True):
                yield from self._simple(row, labels, [column])

    def _foreign(self) -> Iterator[Family]:
        try:
            found = self._registry.foreign_families()
        except Exception as error:  # likewise
            self._report("what clients pushed", error)
            return
        for name, type_, doc, series in found:
            labels, numbers = [one for one, _ in series], [number for _, number in series]
            yield self._family(name, type_, doc, labels, numbers, _plain)

    def _simple(self, row: Metric, labels: list[Spelt], columns: Sequence[Sequence[float]]) -> Iterator[Family]:
        """Yield the row's families of one series for each set of labels; `columns` are an instrument's numbers."""
        for name, type_, index, _ in all_families(row, self._dialect):
            yield self._family(name, type_, row.doc, labels, columns[index], _plain)

    def _family(
        self,
        name: str,
        type_: str,
        doc: str,
        labels: list[Spelt],
        numbers: Sequence[_N],
        samples: Callable[[str, Spelt, _N], Iterable[Sample]],
    ) -> Family:
        """Return the family of that name: the last one, if nothing in it has changed."""
        kept = self._families.get(name)
        if kept is None or kept.numbers != numbers or kept.labels != labels:
            # Why the suffix goes: prometheus-client keeps a counter's name without _total and adds it to the text.
            family = Family(name.removesuffix("_total") if type_ == "counter" else name, doc, type_)
            family.samples = [s for one, n in zip(labels, numbers, strict=True) for s in samples(name, one, n)]
            kept = _Kept(labels, numbers, family)
        self._yielded[name] = kept
        return kept.family

    def _read(self, row: Metric, instrument: Instrument, now_s: float) -> tuple[float, ...] | None:
        """Return an instrument's numbers, in the order of `names.py`; None if it cannot be read."""
        if isinstance(instrument, Gauge):
            try:
                return (instrument.read(),)
            except Exception as error:  # a gauge is another component's code; its failure must not stop the scrape
                self._report(row.name, error)
                return None
        if isinstance(instrument, Meter):
            count, rates = instrument.snapshot(now_s)
            # Why the bound: handlers report their idle time late, so a minute may seem to have more than 60 s of it.
            return (min(1.0, rates.one_minute / 1e9), count) if row.kind is Kind.RATIO else (count, *rates)
        if isinstance(instrument, Counter):
            return (instrument.count,)
        if isinstance(instrument, Sensor):
            return instrument.snapshot(now_s)
        assert isinstance(instrument, AvgMax)
        return instrument.snapshot()

    def _histograms(self, row: Metric, instruments: list[tuple[Labels, Instrument]], now_s: float) -> Iterator[Family]:
        labels = self._spelt(row.labels, [values for values, _ in instruments])
        snapshots = []
        numbers = []
        for _, instrument in instruments:
            assert isinstance(instrument, (Histogram, Timer))
            histogram = instrument.histogram if isinstance(instrument, Timer) else instrument
            snapshot = histogram.snapshot(now_s)
            snapshots.append(snapshot)
            rates = instrument.meter.snapshot(now_s)[1] if isinstance(instrument, Timer) else ()
            numbers.append((*snapshot.moments(), *rates))
        if row.group != "barnabas":
            for base in base_names(row):
                yield self._family(base, "summary", row.doc, labels, snapshots, _quantiles)
            yield from self._simple(row, labels, list(zip(*numbers, strict=True)))
        if row.buckets:
            yield self._family(row.buckets, "histogram", row.doc, labels, snapshots, _buckets)

    def _report(self, name: str, error: Exception) -> None:
        """Log the first failure of a row."""
        if name not in self._reported:
            self._reported.add(name)
            log.warning("%s cannot be read", name, exc_info=error)


def _plain(name: str, labels: Spelt, number: float) -> tuple[Sample]:
    """Return the one series of a counter, a gauge or an untyped number."""
    return (Sample(name, labels, number),)


def _quantiles(name: str, labels: Spelt, snapshot: HistogramSnapshot) -> Iterator[Sample]:
    """Yield the series of a summary."""
    for quantile, value in zip(QUANTILES, snapshot.usual_quantiles(), strict=True):
        yield Sample(name, {**labels, "quantile": quantile}, value)
    yield Sample(f"{name}_sum", labels, snapshot.sum)
    yield Sample(f"{name}_count", labels, snapshot.count)


def _buckets(name: str, labels: Spelt, snapshot: HistogramSnapshot) -> Iterator[Sample]:
    """Yield the series of a Prometheus histogram, in the base unit that ends its name."""
    unit = name.rpartition("_")[2]
    for bound, bucket in _BUCKETS[unit]:
        yield Sample(f"{name}_bucket", {**labels, "le": bound}, snapshot.cumulative(bucket))
    yield Sample(f"{name}_bucket", {**labels, "le": "+Inf"}, snapshot.count)
    yield Sample(f"{name}_sum", labels, snapshot.sum / _BOUNDS[unit][1])
    yield Sample(f"{name}_count", labels, snapshot.count)
