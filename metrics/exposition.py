"""From the registry to the text of /metrics (exposition format 0.0.4). The names are in `names.py`.

The text is put together here, not by prometheus_client: a broker with a thousand partitions has tens of thousands of
lines, and what a scrape takes from the interpreter is taken from requests. So labels are spelt once and kept
(`_labels`), and each family is one join over numbers gathered before.

Threads: `render` by the HTTP thread.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.histograms import QUANTILES, Histogram, HistogramSnapshot, Timer, bucket_of
from barnabas.metrics.meters import AvgMax, Counter, Gauge, Meter, Sensor
from barnabas.metrics.names import Dialect, all_families, base_names, label_text
from barnabas.metrics.row import Kind, Metric
from barnabas.metrics.rows_own import SCRAPE_SECONDS

if TYPE_CHECKING:
    from barnabas.metrics.registry import Instrument, Labels, Registry, Table

log = logging.getLogger("barnabas.metrics")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Upper bounds of true histograms, by the unit that ends their names; times the scale each is one of `BOUNDS`.
_SECONDS: Final = tuple(step * 10.0**decade for decade in range(-4, 1) for step in (1, 2.5, 5)) + (10.0,)
_BYTES: Final = tuple(step * 10.0**decade for decade in range(1, 7) for step in (1, 2.5, 5)) + (1e7, 1e8)
_RECORDS: Final = tuple(step * 10.0**decade for decade in range(5) for step in (1, 2.5, 5)) + (1e5,)
_TRUE_BOUNDS: Final = {"seconds": (_SECONDS, 1000.0), "bytes": (_BYTES, 1.0), "records": (_RECORDS, 1.0)}
_TRUE_BUCKETS: Final = {
    unit: [(f"{bound:g}", bucket_of(bound * scale)) for bound in bounds]
    for unit, (bounds, scale) in _TRUE_BOUNDS.items()
}

_reported: set[str] = set()  # owner: the HTTP thread


class Exposition:
    """Makes the page of one registry, and keeps the spelling of its labels from page to page."""

    def __init__(self, registry: Registry, dialect: Dialect = Dialect.BOTH) -> None:
        self._registry = registry  # fixed before start
        self._dialect = dialect  # fixed before start
        self._labels: dict[tuple[str, ...], dict[Labels, str]] = {}  # owner: the HTTP thread; by names, then values
        self._families: dict[str, _Family] = {}  # owner: the HTTP thread; by name, as on the last page
        self._took_s = 0.0  # owner: the HTTP thread; what the last page took
        registry.gauge(SCRAPE_SECONDS, lambda: self._took_s)

    def render(self) -> bytes:
        """Return the page: every instrument and every table of the registry."""
        with _no_collections():
            return self._render()

    def _render(self) -> bytes:
        page = _Page(self._labels, self._families, self._dialect)
        now_s = self._registry.now_s()
        found = self._registry.collect()
        with self._registry.scraping:
            for row, instruments in found:
                _add_row(page, row, instruments, now_s)
            for table in self._registry.tables():
                _add_table(page, table)
        self._labels, self._families = page.used, page.families
        whole = "".join(page.parts).encode()
        self._took_s = self._registry.now_s() - now_s
        return whole


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Hold cyclic garbage collection back.

    Why: a page takes tens of thousands of tuples, all of them short-lived and in no cycle. Counted as allocations they
    would bring on full collections, each of which stops every thread for longer than the page takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def render(registry: Registry) -> bytes:
    """Return the page of a registry, once."""
    return Exposition(registry).render()


class _Family(NamedTuple):
    """A family of simple series and its text."""

    texts: Sequence[str]
    numbers: Sequence[float]
    text: str


class _Page:
    """The text so far, and what is on it: labels and families, to be used again on the next page."""

    def __init__(
        self, known: dict[tuple[str, ...], dict[Labels, str]], families: dict[str, _Family], dialect: Dialect
    ) -> None:
        self.dialect = dialect
        self.parts: list[str] = []
        self.used: dict[tuple[str, ...], dict[Labels, str]] = {}
        self.families: dict[str, _Family] = {}
        self._known = known
        self._known_families = families

    def spelt(self, names: tuple[str, ...], each: Sequence[Labels]) -> list[str]:
        """Return the texts of labels, without braces: as spelt for the last page where they were on it."""
        known = self._known.get(names, {})
        used = self.used.setdefault(names, {})
        texts = []
        for values in each:
            text = used.get(values)
            if text is None:
                text = known.get(values)
                if text is None:
                    text = label_text(names, values)
                used[values] = text
            texts.append(text)
        return texts

    def family(self, name: str, type_: str, doc: str, texts: Sequence[str], numbers: Sequence[float]) -> None:
        """Add a family of one series for each text of labels in braces."""
        known = self._known_families.get(name)
        if known is not None and known.numbers == numbers and known.texts == texts:
            self.families[name] = known  # Why: of a thousand partitions most numbers stay what they were
            self.parts.append(known.text)
            return
        # Why `+`: a bool shall be shown as a number.
        lines = "\n".join([f"{name}{text} {+number}" for text, number in zip(texts, numbers, strict=True)])
        text = f"# HELP {name} {doc}\n# TYPE {name} {type_}\n{lines}\n"
        self.families[name] = _Family(texts, numbers, text)
        self.parts.append(text)


def _add_row(page: _Page, row: Metric, instruments: list[tuple[Labels, Instrument]], now_s: float) -> None:
    if row.kind in (Kind.HISTOGRAM, Kind.TIMER):
        _add_histograms(page, row, instruments, now_s)
        return
    labels, numbers = [], []
    for values, instrument in instruments:
        found = _numbers(row, instrument, now_s)
        if found is not None:
            labels.append(values)
            numbers.append(found)
    if labels:
        texts = _braced(page.spelt(row.labels, labels))
        columns = list(zip(*numbers, strict=True))
        for name, type_, index, _ in all_families(row, page.dialect):
            page.family(name, type_, row.doc, texts, columns[index])


def _add_table(page: _Page, table: Table) -> None:
    try:
        lines = list(table.read())
    except Exception as error:
        _report(table.rows[0], error)
        return
    if not lines:
        return
    texts = _braced(page.spelt(table.rows[0].labels, [labels for labels, _ in lines]))
    columns = zip(*[numbers for _, numbers in lines], strict=True)
    for row, column in zip(table.rows, columns, strict=True):
        for name, type_, _, _ in all_families(row, page.dialect):
            page.family(name, type_, row.doc, texts, column)


def _numbers(row: Metric, instrument: Instrument, now_s: float) -> tuple[float, ...] | None:
    """Return an instrument's numbers, in the order that `names.py` knows; None if it cannot be read."""
    if isinstance(instrument, Gauge):
        try:
            return (instrument.read(),)
        except Exception as error:  # a gauge is anyone's code, and one that fails must not take the page down
            _report(row, error)
            return None
    if isinstance(instrument, Meter):
        count, rates = instrument.snapshot(now_s)
        return (rates.one_minute / 1e9, count) if row.kind is Kind.RATIO else (count, *rates)
    if isinstance(instrument, Counter):
        return (instrument.count,)
    if isinstance(instrument, Sensor):
        return instrument.snapshot(now_s)
    assert isinstance(instrument, AvgMax)
    return instrument.snapshot()


def _add_histograms(page: _Page, row: Metric, instruments: list[tuple[Labels, Instrument]], now_s: float) -> None:
    texts = page.spelt(row.labels, [labels for labels, _ in instruments])
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
            _add_summary(page, base, row.doc, texts, snapshots)
        columns = list(zip(*numbers, strict=True))
        braced = _braced(texts)
        for name, type_, index, _ in all_families(row, page.dialect):
            page.family(name, type_, row.doc, braced, columns[index])
    if row.buckets:
        _add_true_histogram(page, row.buckets, row.doc, texts, snapshots)


def _add_summary(page: _Page, name: str, doc: str, texts: list[str], snapshots: list[HistogramSnapshot]) -> None:
    lines = [f"# HELP {name} {doc}\n# TYPE {name} summary\n"]
    for text, snapshot in zip(texts, snapshots, strict=True):
        before = text and text + ","
        for quantile, value in zip(QUANTILES, snapshot.usual_quantiles(), strict=True):
            lines.append(f'{name}{{{before}quantile="{quantile}"}} {value}\n')
        braces = text and f"{{{text}}}"
        lines.append(f"{name}_sum{braces} {snapshot.sum}\n{name}_count{braces} {snapshot.count}\n")
    page.parts.append("".join(lines))


def _add_true_histogram(page: _Page, name: str, doc: str, texts: list[str], snapshots: list[HistogramSnapshot]) -> None:
    unit = name.rpartition("_")[2]
    scale = _TRUE_BOUNDS[unit][1]
    lines = [f"# HELP {name} {doc}\n# TYPE {name} histogram\n"]
    for text, snapshot in zip(texts, snapshots, strict=True):
        before = text and text + ","
        for bound, bucket in _TRUE_BUCKETS[unit]:
            lines.append(f'{name}_bucket{{{before}le="{bound}"}} {snapshot.cumulative(bucket)}\n')
        braces = text and f"{{{text}}}"
        lines.append(
            f'{name}_bucket{{{before}le="+Inf"}} {snapshot.count}\n'
            f"{name}_sum{braces} {snapshot.sum / scale}\n{name}_count{braces} {snapshot.count}\n"
        )
    page.parts.append("".join(lines))


def _braced(texts: list[str]) -> list[str]:
    return [text and f"{{{text}}}" for text in texts]


def _report(row: Metric, error: Exception) -> None:
    if row.name not in _reported:
        _reported.add(row.name)
        log.warning("%s cannot be read", row.name, exc_info=error)
