"""The C class and its fallback count the same, and as a histogram that gets the values one by one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metrics.histograms import BOUNDS, BOUNDS_NS, Histogram
from barnabas.metrics.tally import PythonTally, Tally

if TYPE_CHECKING:
    TallyType = Callable[[Sequence[Sequence[float]]], Tally]

TWINS = {"python": PythonTally} | ({} if Tally is PythonTally else {"C": Tally})


@pytest.fixture(params=TWINS)
def make(request: pytest.FixtureRequest) -> TallyType:
    return TWINS[request.param]  # type: ignore[no-any-return]


VALUES = [0, 0.0005, 0.001, 0.0011, 3, 3, 3.2, 3.3, 700, 1e9, 2e9]


def test_a_column_equals_a_histograms_cell(make: TallyType) -> None:
    tally, histogram = make([BOUNDS]), Histogram()
    for value in VALUES:
        tally.count(value)
        histogram.update(value)
    (cell,) = tally.cells()
    read = Histogram(read=tally.cells)
    assert read.snapshot(0.0).buckets == histogram.snapshot(0.0).buckets == cell[:-1]
    assert cell[-1] == pytest.approx(sum(VALUES))


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.floats(-1e12, 1e12), st.integers(0, 2**31)), max_size=50))
def test_both_implementations_count_the_same(rows: list[tuple[int, float, int]]) -> None:
    close = [-1.0, 0.0, 1.0, 1.01, 1.02, 1.03, 1e300]
    tallies = [twin([BOUNDS_NS, BOUNDS, [], [5.0], close]) for twin in TWINS.values()]
    for number, real, weight in rows:
        for tally in tallies:
            tally.count(number, real, 1, 5.0, real)
            tally.add(1, number, weight)
    (first, *others) = [tally.cells() for tally in tallies]
    assert all(cells == [pytest.approx(cell) for cell in first] for cells in others)


@pytest.mark.parametrize("bounds", [BOUNDS, BOUNDS_NS, (0.0, 1.0, 1.01, 1.02), (-2.0, -1.0, 7.0)])
def test_values_at_and_beside_a_bound(make: TallyType, bounds: tuple[float, ...]) -> None:
    for number, bound in enumerate(bounds):
        if bound < 0:
            continue
        tally = make([bounds])
        for value in (bound, math.nextafter(bound, math.inf), math.nextafter(bound, 0)):
            tally.count(value)
        (cell,) = tally.cells()
        assert {place: count for place, count in enumerate(cell[:-1]) if count} == {number: 2, number + 1: 1}


def test_negative_values_count_as_zero(make: TallyType) -> None:
    tally = make([[1, 2]])
    tally.count(-7)
    assert tally.cells() == [[1, 0, 0, 0]]


def test_cells_are_a_copy(make: TallyType) -> None:
    tally = make([[1, 2]])
    before = tally.cells()
    tally.count(2)
    assert (before, tally.cells()) == ([[0, 0, 0, 0]], [[0, 1, 0, 2]])


@pytest.mark.parametrize(
    ("error", "deed"),
    [
        (TypeError, lambda tally: tally.count(1)),
        (TypeError, lambda tally: tally.count(1, 2, 3)),
        (TypeError, lambda tally: tally.count(1, "2")),
        (TypeError, lambda tally: tally.add(0, None, 1)),
        (TypeError, lambda tally: tally.add(0, 1)),
        (IndexError, lambda tally: tally.add(2, 1, 1)),
        (IndexError, lambda tally: tally.add(-1, 1, 1)),
    ],
)
def test_bad_calls_are_refused(make: TallyType, error: type[Exception], deed: Callable[[Tally], None]) -> None:
    with pytest.raises(error):
        deed(make([[1], [2]]))


@pytest.mark.parametrize("bounds", [3, [3], [["x"]]])
def test_bounds_are_numbers(bounds: object) -> None:
    if Tally is not PythonTally:
        with pytest.raises(TypeError):
            Tally(bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("bounds", [[2, 1], [1, 1], [1, math.inf], [math.nan]])
def test_bounds_ascend(make: TallyType, bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        make([bounds])


def test_nothing_leaks(make: TallyType) -> None:
    tally = make([BOUNDS] * 9)
    before = sys.getallocatedblocks()
    for _ in range(1000):
        tally.count(*range(1000, 1009))
        tally.add(3, 1.5, 2)
        make([BOUNDS]).cells()
    assert sys.getallocatedblocks() - before < 500
