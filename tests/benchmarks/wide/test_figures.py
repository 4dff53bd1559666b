"""The figures of many partitions, connections and groups, and those that follow from them."""

from __future__ import annotations

import pytest

from benchmarks.report.figures import FIGURES, OURS, THEIRS
from benchmarks.report.table import rows
from benchmarks.wide import figures
from benchmarks.wide.figures import CONNECTIONS, GROUPS, PARTITIONS, Curve

CURVES = (PARTITIONS, CONNECTIONS, GROUPS)


def test_each_measured_figure_has_a_row_for_each_number() -> None:
    names = list(figures.figures({PARTITIONS: [1000, 10], GROUPS: [1, 100]}))
    assert names[:2] == [PARTITIONS.named(figures.CREATED, 10), PARTITIONS.named(figures.CREATED, 1000)]
    assert PARTITIONS.named(figures.RATE, 1000) in names
    assert PARTITIONS.named(figures.KEPT, 1000) in names
    assert PARTITIONS.named(figures.KEPT, 10) not in names
    assert GROUPS.named(figures.ASSIGNED, 100) in names
    assert GROUPS.named(figures.KEPT, 100) not in names


def test_each_figure_has_its_name_alone() -> None:
    counts = [10, 100]
    names = [figure.name for curve in CURVES for figure in curve.figures(counts)]
    assert len(set(names)) == len(names) == len(figures.figures(dict.fromkeys(CURVES, counts)))
    assert not set(names) & set(FIGURES)


@pytest.mark.parametrize(("curve", "per"), [(PARTITIONS, 1000), (CONNECTIONS, 1000), (GROUPS, 100)])
def test_a_slope_is_what_more_of_them_cost_beyond_the_fewest(curve: Curve, per: int) -> None:
    what = curve.costs[0]
    samples = {
        curve.named(what, 10): {OURS: [1.0, 2.0], THEIRS: [10.0]},
        curve.named(what, 1000): {OURS: [100.0], THEIRS: [100.0]},
        curve.named(what, 10 + 2 * per): {OURS: [5.0, 2.0], THEIRS: [30.0]},
    }
    found = curve.derived(samples, [10, 10 + 2 * per])
    assert found == {curve.slope_named(what): {OURS: [2.0, 0.0], THEIRS: [10.0]}}
    assert curve.slope_named(what) == f"{what}, each {per:,} {curve.noun}"


def test_the_rate_kept_is_that_of_the_same_round() -> None:
    samples = {
        CONNECTIONS.named(figures.RATE, 10): {OURS: [100.0, 200.0, 300.0], THEIRS: [50.0]},
        CONNECTIONS.named(figures.RATE, 100): {OURS: [90.0, 100.0]},
    }
    found = CONNECTIONS.derived(samples, [10, 100])
    assert found == {CONNECTIONS.named(figures.KEPT, 100): {OURS: [0.9, 0.5]}}


def test_nothing_follows_from_one_number_or_from_no_samples() -> None:
    assert PARTITIONS.derived({PARTITIONS.named(figures.RATE, 10): {OURS: [100.0]}}, [10]) == {}
    assert PARTITIONS.derived({}, [10, 100]) == {}


def test_10_000_partitions_have_targets() -> None:
    made = figures.figures({PARTITIONS: [10, 10_000]})
    assert {name: figure.ratio for name, figure in made.items() if figure.ratio is not None} == {
        PARTITIONS.named(figures.RESTARTED, 10_000): 0.3,
        PARTITIONS.named(figures.MEMORY_ONE, 10_000): 0.2,
        PARTITIONS.named(figures.KEPT, 10_000): 1.0,
    }


def test_the_table_has_these_figures_in_their_order() -> None:
    samples = {
        PARTITIONS.slope_named(figures.MEMORY_ONE): {OURS: [7.0], THEIRS: [70.0]},
        PARTITIONS.named(figures.MEMORY_ONE, 10): {OURS: [50.0], THEIRS: [500.0]},
    }
    found = rows(samples, figures.figures({PARTITIONS: [10, 100]}))
    assert [row.figure.name for row in found] == [
        PARTITIONS.named(figures.MEMORY_ONE, 10),
        PARTITIONS.slope_named(figures.MEMORY_ONE),
    ]
    assert [str(row.ratio()) for row in found] == ["0.1 (0.1-0.1)"] * 2
    assert rows(samples) == []
