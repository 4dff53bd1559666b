"""The instruments that count: counters, meters, sensors; and gauges. Distributions are in `histograms.py`.

Rules
1. Recording takes no lock and touches only the calling thread's own cell; the scrape merges all cells.
2. A cell belongs to a thread identity (`threading.get_ident()`), which no two live threads share. A new thread that
   gets the identity of a dead one continues its cell. So there are never more cells than threads were alive at once.
   This holds on a free-threaded interpreter too: inserting into and listing a dict are atomic there, and a cell has one
   writer.
3. A reader may see a cell in the middle of an update. One scrape is then off by one record, and the next is right. A
   count never decreases.

Threads: any thread calls `mark`, `inc` and `record`. The scraper calls `rates` and `snapshot`, and holds the registry's
lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Final, NamedTuple

#: Yammer's decay: one, five and fifteen minutes. Yammer ticks each five seconds, a reading not more often than that.
_TICK_S: Final = 5.0
_RATE_MINUTES: Final = (1, 5, 15)
#: Kafka's client library looks back two samples of this length: over the last half to whole minute.
WINDOW_S: Final = 30.0


# Why an object: of a number, compiled code would take the value out, and make an object again.
_ident: Final[Callable[[], object]] = get_ident


class _Cell:
    """One thread's count. Owner: that thread."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count  # Why an attribute: a compiled one allocates no object when it grows


_Cells = dict[object, _Cell]
"""By thread identity."""


def _count(cells: _Cells, n: int) -> None:
    """Count in the calling thread's own cell."""
    ident = _ident()
    cell = cells.get(ident)
    if cell is None:
        cells[ident] = _Cell(n)
    else:
        cell.count += n


def _sum(cells: _Cells) -> int:
    return sum([cell.count for cell in list(cells.values())])


class Counter:
    """Counts upwards."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: _Cells = {}

    def inc(self, n: int = 1) -> None:
        """Count `n` more."""
        _count(self._cells, n)

    @property
    def count(self) -> int:
        """The count of all threads."""
        return _sum(self._cells)


class Rates(NamedTuple):
    """Events per second: since the meter was made, and over the last one, five and fifteen minutes."""

    mean: float
    one_minute: float
    five_minute: float
    fifteen_minute: float


class Meter:
    """Counts events and computes their rates: Kafka's Yammer meter.

    Reading updates the rates, as if the events since the last reading had come evenly. A meter made with `read` counts
    nothing itself: `read()` returns a count kept elsewhere.
    """

    __slots__ = ("_cells", "_rates", "_read", "_started_s", "_ticked_count", "_ticked_s")

    def __init__(self, now_s: float = 0.0, read: Callable[[], int] | None = None) -> None:
        self._cells: _Cells = {}
        self._read = read  # fixed before start
        self._rates: list[float] | None = None  # guarded by: the registry's lock; events a second
        self._started_s = now_s  # fixed before start
        self._ticked_s = now_s  # guarded by: the registry's lock
        self._ticked_count = 0  # guarded by: the registry's lock

    def mark(self, n: int = 1) -> None:
        """Count `n` more events."""
        _count(self._cells, n)

    @property
    def count(self) -> int:
        """The events of all threads, or the count kept elsewhere."""
        if self._read is not None:
            return self._read()
        return _sum(self._cells)

    def rates(self, now_s: float) -> tuple[float, float, float]:
        """Return the one, five and fifteen minute rates (events a second) as of `now_s`."""
        rates = self.snapshot(now_s)[1]
        return rates.one_minute, rates.five_minute, rates.fifteen_minute

    def snapshot(self, now_s: float) -> tuple[int, Rates]:
        """Return the count and all rates as of `now_s`."""
        count = self.count
        elapsed_s = now_s - self._started_s
        mean = count / elapsed_s if elapsed_s > 0 else 0.0
        if now_s - self._ticked_s >= _TICK_S:
            self._tick(now_s, count)
        rates = self._rates
        return count, Rates(mean, mean, mean, mean) if rates is None else Rates(mean, rates[0], rates[1], rates[2])

    def _tick(self, now_s: float, count: int) -> None:
        # Why the whole time since the last tick: the count has all events of it, however late the reading comes.
        elapsed_s = now_s - self._ticked_s
        rate = (count - self._ticked_count) / elapsed_s
        self._ticked_count = count
        self._ticked_s = now_s
        if self._rates is None:
            self._rates = [rate, rate, rate]
            return
        for i, minutes in enumerate(_RATE_MINUTES):
            self._rates[i] = rate + (self._rates[i] - rate) * math.exp(-elapsed_s / 60.0 / minutes)


class Window:
    """The rate of a count kept elsewhere, over the last half to whole minute before each reading."""

    __slots__ = ("_marks",)

    def __init__(self, now_s: float = 0.0) -> None:
        self._marks = [(now_s, 0.0)] * 2  # guarded by: the registry's lock; (time, count), older one first

    def rate(self, count: float, now_s: float) -> float:
        """Return the rate per second, given the present count."""
        then_s, count_then = self._marks[0]
        if now_s - self._marks[1][0] >= WINDOW_S:
            self._marks = [self._marks[1], (now_s, count)]
        # Why the floor: Kafka counts a window that is not full yet as at least one full sample.
        elapsed_s = max(now_s - then_s, WINDOW_S)
        # Why the bound: a client that was forgotten counts from 0 again.
        return max(0.0, count - count_then) / elapsed_s


class Sensor:
    """A total and its rate: the `Meter` of Kafka's client library. `read` as in `Meter`."""

    __slots__ = ("_counter", "_read", "_window")

    def __init__(self, now_s: float = 0.0, read: Callable[[], int] | None = None) -> None:
        self._counter = Counter()  # fixed before start
        self._read = read  # fixed before start
        self._window = Window(now_s)  # guarded by: the registry's lock

    def record(self, n: int = 1) -> None:
        """Count `n` more."""
        self._counter.inc(n)

    @property
    def count(self) -> int:
        """The total."""
        return self._counter.count if self._read is None else self._read()

    def snapshot(self, now_s: float) -> tuple[int, float]:
        """Return total and rate as of `now_s`."""
        count = self.count
        return count, self._window.rate(count, now_s)


class AvgMax:
    """Average and maximum over the last half to whole minute; NaN without a value, as in Kafka.

    For rare events, since it takes a lock of its own.
    """

    __slots__ = ("_lock", "_now_s", "_samples")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._samples: list[list[float]] = []  # guarded by: _lock; at most two of [began, count, sum, max]

    def record(self, value: float) -> None:
        """Record a value."""
        with self._lock:
            samples = self._current_locked()
            if not samples or self._now_s() - samples[-1][0] >= WINDOW_S:
                samples.append([self._now_s(), 0.0, 0.0, -math.inf])
                del samples[:-2]
            sample = samples[-1]
            sample[1] += 1.0
            sample[2] += value
            sample[3] = max(sample[3], value)

    def snapshot(self) -> tuple[float, float]:
        """Return the present average and maximum."""
        with self._lock:
            samples = self._current_locked()
            if not samples:
                return math.nan, math.nan
            # Why not sum(): its result may be the int 0, and the compiled module needs a float.
            count, total, greatest = 0.0, 0.0, -math.inf
            for sample in samples:
                count += sample[1]
                total += sample[2]
                greatest = max(greatest, sample[3])
            return total / count, greatest

    def _current_locked(self) -> list[list[float]]:
        oldest_s = self._now_s() - 2 * WINDOW_S
        self._samples = [sample for sample in self._samples if sample[0] > oldest_s]
        return self._samples


class Gauge:
    """A value that each scrape reads."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read
