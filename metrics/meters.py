"""The four kinds of instruments: counters, meters, histograms and gauges.

Rules
1. Recording takes no lock and touches only the calling thread's own cell; the scrape merges all cells.
2. A cell belongs to a thread identity (`threading.get_ident()`), which no two live threads share. A new thread that is
   given the identity of a dead one goes on with its cell: that is how the cells of dead threads are folded, and why
   there are never more cells than threads were alive at once. This holds on a free-threaded interpreter too: inserting
   into and listing a dict are atomic there, and `cell[i] += n` has one writer.
3. A reader may see a cell in the middle of an update (a bucket counted, the sum not yet): an error of one record in
   one scrape, corrected by the next.

Threads: `mark`, `inc`, `update` by anyone; `tick`/`snapshot` by the scraper, which holds the registry's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Final

#: What Kafka's dashboards ask for, in the spelling of their `quantile` label.
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)

#: Upper bounds (inclusive) of the buckets of every histogram: ten to a decade, from 0.001 to 10^9. The last
#: bucket, above all bounds, is open. Values are in the unit of the row: milliseconds, bytes, records.
BOUNDS: Final = tuple(float(f"{step}e{decade}") for decade in range(-3, 9) for step in _STEPS) + (1e9,)
#: The same bounds in nanoseconds, for values in milliseconds that are measured so.
BOUNDS_NS: Final = tuple(round(bound * 1e6) for bound in BOUNDS)

#: Where a histogram's cell keeps the sum of its values, and of those counted in nanoseconds, behind its buckets.
SUM: Final = len(BOUNDS) + 1
SUM_NS: Final = SUM + 1
_CELL_SIZE: Final = SUM_NS + 1

#: Yammer's decay constants: one, five and fifteen minutes, ticked each five seconds; samples forget like 0.015/s.
_TICK_S: Final = 5.0
_RATE_MINUTES: Final = (1, 5, 15)
_SAMPLE_DECAY_PER_S: Final = 0.015


class Counter:
    """Counts upwards."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[int, list[int]] = {}  # owner of each list: the thread of that identity

    def inc(self, n: int = 1) -> None:
        try:
            self._cells[get_ident()][0] += n
        except KeyError:
            self._cells[get_ident()] = [n]

    @property
    def count(self) -> int:
        return sum([cell[0] for cell in list(self._cells.values())])


class Meter:
    """Counts events, and tells their rate: Kafka's Yammer meter.

    Rates are brought up to date when they are read, as if the events since the last reading had come evenly.
    """

    __slots__ = ("_cells", "_rates", "_started_s", "_ticked_count", "_ticked_s")

    def __init__(self, now_s: float = 0.0) -> None:
        self._cells: dict[int, list[int]] = {}  # owner of each list: the thread of that identity
        self._rates: list[float] | None = None  # guarded by: the registry's lock; events a second
        self._started_s = now_s  # fixed before start
        self._ticked_s = now_s  # guarded by: the registry's lock
        self._ticked_count = 0  # guarded by: the registry's lock

    def mark(self, n: int = 1) -> None:
        try:
            self._cells[get_ident()][0] += n
        except KeyError:
            self._cells[get_ident()] = [n]

    @property
    def count(self) -> int:
        return sum([cell[0] for cell in list(self._cells.values())])

    def rates(self, now_s: float) -> tuple[float, float, float]:
        """Return the one, five and fifteen minute rates (events a second) as of `now_s`."""
        ticks = int((now_s - self._ticked_s) / _TICK_S)
        if ticks > 0:
            self._tick(ticks)
        if self._rates is None:
            mean = self.mean_rate(now_s)
            return mean, mean, mean
        return self._rates[0], self._rates[1], self._rates[2]

    def mean_rate(self, now_s: float) -> float:
        """Return events a second since the meter began."""
        elapsed = now_s - self._started_s
        return self.count / elapsed if elapsed > 0 else 0.0

    def _tick(self, ticks: int) -> None:
        count = self.count
        elapsed = ticks * _TICK_S
        rate = (count - self._ticked_count) / elapsed
        self._ticked_count = count
        self._ticked_s += elapsed
        if self._rates is None:
            self._rates = [rate, rate, rate]
            return
        for i, minutes in enumerate(_RATE_MINUTES):
            kept = math.exp(-elapsed / 60.0 / minutes)
            self._rates[i] = rate + (self._rates[i] - rate) * kept


class HistogramSnapshot:
    """What a histogram held at one scrape."""

    __slots__ = ("buckets", "count", "recent", "sum")

    def __init__(self, buckets: list[int], total: float, recent: list[float]) -> None:
        self.buckets = buckets
        self.count = sum(buckets)
        self.sum = total
        self.recent = recent

    def quantiles(self, wanted: Sequence[str]) -> list[float]:
        """Return, for each share in ascending order, the value below which that share of the recent values lies.

        Within a bucket values are taken to lie evenly; all are 0.0 when there never was a value.
        """
        total = sum(self.recent)
        if total <= 0.0:
            return [0.0] * len(wanted)
        result: list[float] = []
        below = 0.0
        for i, weight in enumerate(self.recent):
            if weight <= 0.0:
                continue
            low = BOUNDS[i - 1] if i else 0.0
            high = BOUNDS[i] if i < len(BOUNDS) else low
            while len(result) < len(wanted) and (rank := float(wanted[len(result)]) * total) <= below + weight:
                result.append(low + (high - low) * (rank - below) / weight)
            below += weight
        # Why: the last rank may exceed the sum of the weights by a rounding error.
        last = max(i for i, weight in enumerate(self.recent) if weight > 0.0)
        return result + [BOUNDS[min(last, len(BOUNDS) - 1)]] * (len(wanted) - len(result))

    def cumulative(self, bound: float) -> int:
        """Return how many values were at most `bound`, which must be one of `BOUNDS`."""
        return sum(self.buckets[: bisect_left(BOUNDS, bound * (1 - 1e-9)) + 1])


class Histogram:
    """The distribution of a value: count, sum, buckets, and quantiles of recent values.

    Kafka samples values with a bias to the last five minutes. Here each scrape lets the weights of the older
    bucket counts decay by the same constant, which gives the quantiles that such a sample has on average.
    """

    __slots__ = ("_cells", "_parts", "_recent", "_seen", "_seen_s")

    def __init__(self, now_s: float = 0.0) -> None:
        self._cells: dict[int, list[float]] = {}  # owner of each list: the thread of that identity
        self._parts: list[Histogram] = []  # added to by `include`, never taken from
        self._seen = [0] * (len(BOUNDS) + 1)  # guarded by: the registry's lock
        self._recent = [0.0] * (len(BOUNDS) + 1)  # guarded by: the registry's lock
        self._seen_s = now_s  # guarded by: the registry's lock

    def update(
        self,
        value: float,
        _bounds: tuple[float, ...] = BOUNDS,
        _find: Callable[[tuple[float, ...], float], int] = bisect_left,
    ) -> None:
        try:
            cell = self._cells[get_ident()]
        except KeyError:
            cell = self._cells[get_ident()] = [0] * _CELL_SIZE
        cell[_find(_bounds, value)] += 1
        cell[SUM] += value

    def cell(self) -> list[float]:
        """Return the calling thread's own cell, for a recorder of many values at once (see `SUM`, `SUM_NS`)."""
        try:
            return self._cells[get_ident()]
        except KeyError:
            cell = self._cells[get_ident()] = [0] * _CELL_SIZE
            return cell

    def include(self, part: Histogram) -> None:
        """Count all values of `part` as values of this histogram too."""
        if part not in self._parts:
            self._parts.append(part)

    @property
    def count(self) -> int:
        return int(sum([sum(cell[:SUM]) for cell in self._all_cells()]))

    def _all_cells(self) -> list[list[float]]:
        cells = list(self._cells.values())
        for part in self._parts[:]:
            cells += part._all_cells()
        return cells

    def snapshot(self, now_s: float) -> HistogramSnapshot:
        """Merge the cells and let what was recent before fade to `now_s`."""
        merged = [0.0] * _CELL_SIZE
        for cell in self._all_cells():
            merged = [a + b for a, b in zip(merged, cell, strict=True)]
        buckets = [int(n) for n in merged[:SUM]]
        # Why the floor: after hours without a value all weights must keep their proportions, not become zero.
        kept = max(math.exp(-_SAMPLE_DECAY_PER_S * max(now_s - self._seen_s, 0.0)), 1e-9)
        if buckets != self._seen:
            self._recent = [
                old * kept + (new - seen) for old, new, seen in zip(self._recent, buckets, self._seen, strict=True)
            ]
            self._seen = buckets
            self._seen_s = now_s
        return HistogramSnapshot(buckets, merged[SUM] + merged[SUM_NS] / 1e6, self._recent)


class Gauge:
    """A value asked for at each scrape."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read
