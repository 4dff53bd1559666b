"""Counts of values by bucket, in several columns: one thread's part of several histograms.

`Tally` is written in C (`_tally.c`) and counts nine values in 0.1 µs; every request is counted. `PythonTally` is the
fallback where there was no C compiler. A test compares both.

Threads: one thread writes a tally, and any thread may read it meanwhile. A reader may find a value in its bucket and
not yet in the sum.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

__all__ = ("PythonTally", "Tally")


class PythonTally:
    """Columns of buckets. `bounds` are, for each column, the ascending, inclusive upper bounds of its buckets.

    A last bucket without a bound follows. Raises ValueError if bounds do not ascend or are not finite.
    """

    __slots__ = ("_bounds", "_cells")

    def __init__(self, bounds: Sequence[Sequence[float]]) -> None:
        if any(not low < high for column in bounds for low, high in pairwise((*column, math.inf))):
            raise ValueError("bounds are finite and ascend")
        self._bounds = bounds  # fixed before start
        self._cells = [[0.0] * (len(column) + 2) for column in bounds]  # owner: the one thread that writes

    def count(self, *values: float) -> None:
        """Count one value in each column, a negative one as 0. Raises TypeError for another number of values."""
        if len(values) != len(self._bounds):
            raise TypeError(f"count() takes {len(self._bounds)} values, one for each column, not {len(values)}")
        for column, value in enumerate(values):
            self.add(column, value, 1)

    def add(self, column: int, value: float, weight: int) -> None:
        """Count a value `weight` times in one column, numbered from 0. Raises IndexError if it does not exist."""
        if not 0 <= column < len(self._bounds):
            raise IndexError("no such column")
        value = max(0, value)
        cell = self._cells[column]
        cell[bisect_left(self._bounds[column], value)] += weight
        cell[-1] += value * weight

    def cells(self) -> list[list[float]]:
        """Return, for each column, the number of values in each bucket, followed by the sum of all values."""
        return [cell[:] for cell in self._cells]


try:
    from barnabas.metrics._tally import Tally
except ImportError:  # there was no C compiler
    Tally = PythonTally  # type: ignore[misc,assignment]
