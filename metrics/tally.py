"""Counting values by bucket, several distributions at a time, as one thread's share of as many histograms.

`Tally` is C where there was a compiler (`_tally.c`): nine values are counted in 0.1 µs, which matters since every
request is. `PythonTally` is its twin, held to it by a test.

Threads: one writes a tally, any may read it meanwhile. A reader may find a value in its bucket and not yet in the sum.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

__all__ = ("PythonTally", "Tally")


class PythonTally:
    """Columns of buckets. `bounds`: for each column ascending upper bounds, inclusive; above them a bucket is open.

    Raises ValueError if they do not ascend or are not finite.
    """

    __slots__ = ("_bounds", "_cells")

    def __init__(self, bounds: Sequence[Sequence[float]]) -> None:
        if any(not low < high for column in bounds for low, high in pairwise((*column, math.inf))):
            raise ValueError("bounds are finite and ascend")
        self._bounds = bounds  # fixed before start
        self._cells = [[0.0] * (len(column) + 2) for column in bounds]  # owner: the one thread that writes

    def count(self, *values: float) -> None:
        """Count one value in each column; a negative one as zero. Raises TypeError for another number of values."""
        if len(values) != len(self._bounds):
            raise TypeError(f"count() takes {len(self._bounds)} values, one for each column, not {len(values)}")
        for column, value in enumerate(values):
            self.add(column, value, 1)

    def add(self, column: int, value: float, weight: int) -> None:
        """Count a value `weight` times in one column, numbered from 0. Raises IndexError if there is none such."""
        if not 0 <= column < len(self._bounds):
            raise IndexError("no such column")
        value = max(0, value)
        cell = self._cells[column]
        cell[bisect_left(self._bounds[column], value)] += weight
        cell[-1] += value * weight

    def cells(self) -> list[list[float]]:
        """Return, for each column, how many values each bucket holds, and behind those the sum of all values."""
        return [cell[:] for cell in self._cells]


try:
    from barnabas.metrics._tally import Tally
except ImportError:  # there was no C compiler
    Tally = PythonTally  # type: ignore[misc,assignment]
