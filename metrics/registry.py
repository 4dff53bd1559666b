"""The registry: every instrument of this process, by catalogue row and labels.

Components take their handles once, when they are built, and keep them; recording never comes through here. One registry
and one /metrics page belong to a process.

Threads: any. `_lock` guards the tables and the scraper's state inside the instruments; no recording waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from barnabas.common.clock import Clock, SystemClock
from metrics.catalogue import Kind, Metric
from metrics.meters import Counter, Gauge, Histogram, Meter

Instrument = Counter | Meter | Histogram | Gauge
Labels = tuple[str, ...]
_I = TypeVar("_I", Counter, Meter, Histogram)


class Registry:
    """Makes and finds instruments; the exposition reads them through `collect`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()  # fixed before start
        self._lock = threading.Lock()
        self._instruments: dict[Metric, dict[Labels, Instrument]] = {}  # guarded by: _lock

    def now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def counter(self, row: Metric, **labels: object) -> Counter:
        """Return the counter of `row` with these label values, made at the first call."""
        return self._get(row, (Kind.COUNTER,), labels, Counter, Counter)

    def meter(self, row: Metric, **labels: object) -> Meter:
        """Return the meter of `row` with these label values, made at the first call."""
        return self._get(row, (Kind.METER, Kind.RATIO), labels, Meter, lambda: Meter(self.now_s()))

    def histogram(self, row: Metric, **labels: object) -> Histogram:
        """Return the histogram of `row` with these label values, made at the first call."""
        return self._get(row, (Kind.HISTOGRAM,), labels, Histogram, lambda: Histogram(self.now_s()))

    def gauge(self, row: Metric, read: Callable[[], float], **labels: object) -> Gauge:
        """Register `read`, called at each scrape (so it must be quick and take no long-held lock).

        A second registration with the same labels replaces the first.
        """
        self._check(row, (Kind.GAUGE,), labels)
        gauge = Gauge(read)
        with self._lock:
            self._instruments.setdefault(row, {})[_key(row, labels)] = gauge
        return gauge

    def remove(self, row: Metric, **labels: object) -> None:
        """Forget the instruments of `row` that carry these label values (all of them when none is given)."""
        wanted = [(row.labels.index(name), str(value)) for name, value in labels.items()]
        with self._lock:
            table = self._instruments.get(row, {})
            for key in list(table):
                if all(index < len(key) and key[index] == value for index, value in wanted):
                    del table[key]

    def collect(self) -> Iterator[tuple[Metric, list[tuple[Labels, Instrument]]]]:
        """Yield every row that has instruments, with a copy of them."""
        with self._lock:
            copy = [(row, list(table.items())) for row, table in self._instruments.items() if table]
        yield from copy

    def scraping(self) -> threading.Lock:
        """Return the lock under which `Meter.rates` and `Histogram.snapshot` are called."""
        return self._lock

    def _get(
        self,
        row: Metric,
        kinds: tuple[Kind, ...],
        labels: dict[str, object],
        cls: type[_I],
        make: Callable[[], _I],
    ) -> _I:
        self._check(row, kinds, labels)
        key = _key(row, labels)
        with self._lock:
            table = self._instruments.setdefault(row, {})
            found = table.get(key)
            if found is None:
                found = table[key] = make()
        assert isinstance(found, cls)
        return found

    @staticmethod
    def _check(row: Metric, kinds: tuple[Kind, ...], labels: dict[str, object]) -> None:
        assert row.kind in kinds, f"{row.name} is a {row.kind.name.lower()}"
        unknown = labels.keys() - set(row.labels)
        assert not unknown, f"{row.name} has no label {sorted(unknown)}"


def _key(row: Metric, labels: dict[str, object]) -> Labels:
    """Return the label values in the row's order; a label that is not given is "" (and not shown)."""
    return tuple(str(labels.get(name, "")) for name in row.labels)
