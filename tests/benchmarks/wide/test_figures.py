"""The figures of many partitions, and those that follow from them."""

from __future__ import annotations

from benchmarks.report.figures import FIGURES, OURS, THEIRS
from benchmarks.report.table import rows
from benchmarks.wide import figures
from benchmarks.wide.figures import derived, named, slope_named


def test_each_measured_figure_has_a_row_for_each_number_of_partitions() -> None:
    names = list(figures.figures([1000, 10]))
    assert names[:2] == [named(figures.CREATED, 10), named(figures.CREATED, 1000)]
    assert named(figures.RATE, 1000) in names
    assert named(figures.KEPT, 1000) in names
    assert named(figures.KEPT, 10) not in names
    assert not set(names) & set(FIGURES)


def test_a_slope_is_what_a_thousand_partitions_cost_beyond_the_fewest() -> None:
    samples = {
        named(figures.IDLE_CPU, 10): {OURS: [1.0, 2.0], THEIRS: [10.0]},
        named(figures.IDLE_CPU, 1000): {OURS: [100.0], THEIRS: [100.0]},
        named(figures.IDLE_CPU, 2010): {OURS: [5.0, 2.0], THEIRS: [30.0]},
    }
    found = derived(samples, [1000, 10, 2010])
    assert found == {slope_named(figures.IDLE_CPU): {OURS: [2.0, 0.0], THEIRS: [10.0]}}


def test_the_rate_kept_is_that_of_the_same_round() -> None:
    samples = {
        named(figures.RATE, 10): {OURS: [100.0, 200.0, 300.0], THEIRS: [50.0]},
        named(figures.RATE, 100): {OURS: [90.0, 100.0]},
    }
    assert derived(samples, [10, 100]) == {named(figures.KEPT, 100): {OURS: [0.9, 0.5]}}


def test_nothing_follows_from_one_number_of_partitions_or_from_no_samples() -> None:
    assert derived({named(figures.RATE, 10): {OURS: [100.0]}}, [10]) == {}
    assert derived({}, [10, 100]) == {}


def test_the_table_has_these_figures_in_their_order() -> None:
    samples = {
        slope_named(figures.MEMORY_ONE): {OURS: [7.0], THEIRS: [70.0]},
        named(figures.MEMORY_ONE, 10): {OURS: [50.0], THEIRS: [500.0]},
    }
    found = rows(samples, figures.figures([10, 100]))
    assert [row.figure.name for row in found] == [named(figures.MEMORY_ONE, 10), slope_named(figures.MEMORY_ONE)]
    assert [str(row.ratio()) for row in found] == ["0.1 (0.1-0.1)"] * 2
    assert rows(samples) == []
