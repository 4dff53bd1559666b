"""Distributions: count, sum, buckets, and quantiles of recent values.

Every histogram has the same fine buckets, ten to a decade. The scrape computes Kafka's quantiles from them, and the
coarser buckets of Prometheus histograms. Values are assumed to lie evenly within a bucket. So a quantile, a minimum or
a maximum is off by a bucket's width (about a quarter) at most; count, sum and mean are exact.

Threads: any thread calls `update`, which takes no lock and writes the thread's own cell (`meters.py`, rules). The
scraper calls `snapshot`, and holds the registry's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from threading import get_ident
from typing import Final

from barnabas.metrics.meters import Meter

#: The quantiles that Kafka's dashboards query, as their `quantile` label spells them.
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

_STEPS: Final = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)

#: Upper bounds (inclusive) of the buckets of every histogram: ten to a decade, from 0.001 to 10^9. The last bucket,
#: above all bounds, is open. Values are in the unit of the row: milliseconds, bytes, records.
BOUNDS: Final = tuple(float(f"{step}e{decade}") for decade in range(-3, 9) for step in _STEPS) + (1e9,)
#: The same bounds in nanoseconds, for times that are measured in nanoseconds and shown in milliseconds.
BOUNDS_NS: Final = tuple(round(bound * 1e6) for bound in BOUNDS)

#: The index of the sum of all values in a histogram's cell, behind its buckets.
SUM: Final = len(BOUNDS) + 1
CELL_SIZE: Final = SUM + 1

#: The decay of Kafka's (Yammer's) samples.
_SAMPLE_DECAY_PER_S: Final = 0.015


class HistogramSnapshot:
    """The content of a histogram at one scrape."""

    __slots__ = ("_below", "_moments", "_quantiles", "buckets", "count", "recent", "sum")

    def __init__(self, buckets: list[int], total: float, recent: list[float]) -> None:
        self.buckets = buckets
        self._below = list(accumulate(buckets))
        self.count = self._below[-1]
        self.sum = total
        self.recent = recent
        self._moments: tuple[float, float, float, float] | None = None  # owner: the scraper
        self._quantiles: list[float] | None = None  # owner: the scraper; of `QUANTILES`

    def usual_quantiles(self) -> list[float]:
        """Return the quantiles of `QUANTILES`, computed once."""
        if self._quantiles is None:
            self._quantiles = self.quantiles(QUANTILES)
        return self._quantiles

    def moments(self) -> tuple[float, float, float, float]:
        """Return mean, minimum, maximum and standard deviation, computed once."""
        if self._moments is None:
            self._moments = (self.mean, self.minimum, self.maximum, self.deviation)
        return self._moments

    def quantiles(self, wanted: Sequence[str]) -> list[float]:
        """Return, for each share in ascending order, the value below which that share of the recent values lies.

        Values are assumed to lie evenly within a bucket. Without any value all quantiles are 0.0.
        """
        total = sum(self.recent)
        if total <= 0.0:
            return [0.0] * len(wanted)
        below = list(accumulate(self.recent))
        result: list[float] = []
        for share in wanted:
            rank = float(share) * total
            # Why the bound: the last rank may exceed the sum of the weights by a rounding error.
            i = min(bisect_left(below, rank), len(below) - 1)
            low, high = _edges(i)
            weight = self.recent[i]
            result.append(high if weight <= 0.0 else low + (high - low) * (1 - (below[i] - rank) / weight))
        return result

    def cumulative(self, bucket: int) -> int:
        """Return how many values lie in the buckets up to and including this one."""
        return self._below[bucket]

    @property
    def mean(self) -> float:
        """The mean of all values; 0.0 if there is none."""
        return self.sum / self.count if self.count else 0.0

    @property
    def minimum(self) -> float:
        """The lower edge of the first bucket that is not empty."""
        return next((_edges(i)[0] for i, n in enumerate(self.buckets) if n), 0.0)

    @property
    def maximum(self) -> float:
        """The upper edge of the last bucket that is not empty."""
        return next((_edges(i)[1] for i in range(len(self.buckets) - 1, -1, -1) if self.buckets[i]), 0.0)

    @property
    def deviation(self) -> float:
        """The standard deviation, with each value in the middle of its bucket."""
        if self.count < 2:
            return 0.0
        mean = self.mean
        squares = sum(n * (sum(_edges(i)) / 2 - mean) ** 2 for i, n in enumerate(self.buckets) if n)
        return math.sqrt(squares / (self.count - 1))


def _edges(bucket: int) -> tuple[float, float]:
    low = BOUNDS[bucket - 1] if bucket else 0.0
    return low, BOUNDS[bucket] if bucket < len(BOUNDS) else low


def bucket_of(bound: float) -> int:
    """Return the index of the bucket that ends at `bound`, which must be one of `BOUNDS`."""
    return bisect_left(BOUNDS, bound * (1 - 1e-9))


class Histogram:
    """The distribution of a value.

    Kafka samples values with a bias to the last five minutes. Here each scrape decays the weights of the older bucket
    counts by the same constant, which gives the quantiles that such a sample has on average. A histogram made with
    `read` takes no values itself: `read()` returns cells that are filled elsewhere.
    """

    __slots__ = ("_cells", "_last", "_parts", "_read", "_recent", "_seen", "_seen_s")

    def __init__(self, now_s: float = 0.0, read: Callable[[], list[list[float]]] | None = None) -> None:
        self._cells: dict[int, list[float]] = {}  # owner of each list: the thread of that identity
        self._parts: list[Histogram] = []  # `include` adds to it; nothing is removed
        self._read = read  # fixed before start
        self._seen = [0] * SUM  # guarded by: the registry's lock
        self._recent = [0.0] * SUM  # guarded by: the registry's lock
        self._seen_s = now_s  # guarded by: the registry's lock
        self._last: HistogramSnapshot | None = None  # guarded by: the registry's lock; valid until a value is added

    def update(
        self,
        value: float,
        _bounds: tuple[float, ...] = BOUNDS,
        _find: Callable[[tuple[float, ...], float], int] = bisect_left,
    ) -> None:
        """Record a value."""
        try:
            cell = self._cells[get_ident()]
        except KeyError:
            cell = self._cells[get_ident()] = [0] * CELL_SIZE
        cell[_find(_bounds, value)] += 1
        cell[SUM] += value

    def include(self, part: Histogram) -> None:
        """Count all values of `part` as values of this histogram too."""
        if part not in self._parts:
            self._parts.append(part)

    @property
    def count(self) -> int:
        """The number of values of all threads and parts."""
        return int(sum([sum(cell[:SUM]) for cell in self._all_cells()]))

    def _all_cells(self) -> list[list[float]]:
        cells = list(self._cells.values()) if self._read is None else self._read()
        for part in self._parts[:]:
            cells += part._all_cells()
        return cells

    def snapshot(self, now_s: float) -> HistogramSnapshot:
        """Merge the cells, and decay the older weights to `now_s`."""
        cells = self._all_cells()
        merged = [float(sum(column)) for column in zip(*cells, strict=True)] if cells else [0.0] * CELL_SIZE
        buckets = [int(n) for n in merged[:SUM]]
        last = self._last
        if last is not None and buckets == last.buckets and merged[SUM] == last.sum:
            return last
        if buckets != self._seen:
            # Why the floor: after hours without a value the weights must keep their proportions and not become 0.
            kept = max(math.exp(-_SAMPLE_DECAY_PER_S * max(now_s - self._seen_s, 0.0)), 1e-9)
            self._recent = [
                old * kept + (new - seen) for old, new, seen in zip(self._recent, buckets, self._seen, strict=True)
            ]
            self._seen = buckets
            self._seen_s = now_s
        self._last = HistogramSnapshot(buckets, merged[SUM], self._recent)
        return self._last


class Timer:
    """A histogram of durations with a meter of their number: Kafka's Yammer timer."""

    __slots__ = ("histogram", "meter")

    def __init__(self, now_s: float = 0.0) -> None:
        self.histogram = Histogram(now_s)  # fixed before start
        self.meter = Meter(now_s, lambda: self.histogram.count)  # fixed before start

    def update(self, value: float) -> None:
        """Record a duration."""
        self.histogram.update(value)
