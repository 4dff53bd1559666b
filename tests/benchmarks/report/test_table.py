"""Medians, ratios and targets."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.report.figures import FIGURES, OURS, THEIRS, Figure, less, more
from benchmarks.report.table import Row, Spread, missed, rows, systems_in, table


@pytest.mark.parametrize(
    ("figure", "ours", "theirs", "are_met"),
    [
        (more("", "MB/s", ratio=1.0), [10, 12, 8], [10, 10, 10], [True]),
        (more("", "MB/s", ratio=1.0), [9, 12, 8], [10, 10, 10], [False]),
        (less("", "ms", ratio=1.0), [9, 12, 8], [10, 10, 10], [True]),
        (less("", "ms", ratio=1.0), [11, 12, 8], [10, 10, 10], [False]),
        (less("", "ms", own=200), [150, 300, 199], [], [True]),
        (less("", "ms", own=200), [250, 300, 199], [1, 1, 1], [False]),
        (more("", "", own=0.9), [0.91], [0.5], [True]),
        (less("", "s", ratio=0.3, own=1), [0.5], [1.0], [False, True]),
        (less("", "ms", ratio=1.0), [1], [], []),
        (less("", "ms"), [1], [2], []),
    ],
)
def test_medians_are_compared_with_targets(
    figure: Figure, ours: list[float], theirs: list[float], are_met: list[bool]
) -> None:
    assert [target.is_met for target in Row(figure, {OURS: ours, THEIRS: theirs}).targets] == are_met


def test_a_ratio_is_of_the_same_round() -> None:
    row = Row(more("", ""), {OURS: [10, 40, 30], THEIRS: [10, 20, 60], "3.14t": [20, 10]})
    assert row.ratio() == Spread(1.0, 0.5, 2.0)
    assert row.ratio("3.14t") == Spread(1.25, 0.5, 2.0)
    assert row.ratio("unknown") is None


def test_a_negative_slope_has_no_ratio() -> None:
    row = Row(less("", ""), {OURS: [-1, 2, 3, 0], THEIRS: [10, -1, 0, 10]})
    assert row.ratio() == Spread(0, 0, 0)


def test_another_barnabas_is_not_judged() -> None:
    row = Row(more("", "", ratio=1.0), {OURS: [2], THEIRS: [1], "3.14t": [0.1]})
    assert [target.is_met for target in row.targets] == [True]


def test_rows_come_in_the_order_of_the_figures() -> None:
    samples = {"start, 1 broker": {OURS: [2.0]}, "produce 1 KiB": {OURS: [1.0], THEIRS: [2.0]}}
    assert [row.figure.name for row in rows(samples)] == ["produce 1 KiB", "start, 1 broker"]
    assert missed(samples) == ["produce 1 KiB", "start, 1 broker"]


def test_systems_have_a_fixed_order() -> None:
    assert systems_in({"a": {"3.14t": [1]}, "b": {OURS: [1], THEIRS: [1]}}) == [THEIRS, OURS, "3.14t"]


def test_the_table_has_medians_spreads_ratios_and_targets() -> None:
    console = Console(width=200, record=True, file=None, quiet=True)
    samples = {"produce 1 KiB": {OURS: [150, 130, 140], THEIRS: [100, 100, 100], "3.14t": [50, 50, 50]}}
    with console.capture() as captured:
        console.quiet = False
        console.print(table(samples))
    (line,) = [line for line in captured.get().splitlines() if "produce 1 KiB" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "produce 1 KiB", "MB/s", "100 (100-100)", "140 (130-150)", "50 (50-50)", "1.4 (1.3-1.5)", "0.5 (0.5-0.5)",
        ">= 1.1 met",
    ]  # fmt: skip


def test_the_table_of_figures_holds_the_targets() -> None:
    targets = {figure.name: figure.ratio for figure in FIGURES.values() if figure.ratio is not None}
    assert (targets["produce 1 KiB"], targets["produce 1 KiB, CPU"]) == (1.1, 0.85)
    assert (targets["produce acks=all, RF 3"], targets["produce acks=all, RF 3, CPU"]) == (1.1, 0.8)
    assert (targets["consume 1 KiB"], targets["consume by 4 readers"]) == (1.0, 1.05)
    assert targets["small produce 32x2"] == 1.2
    assert targets["50 consumers in 10 groups, KIP-848, consume"] == 1.0
    assert (targets["first load, produce 1 KiB"], targets["first load, acks=all, RF 3"]) == (1.5, 3.5)
    assert targets["first load, memory"] == 0.11
    assert targets["1,000 partitions, created and a record in each"] == 2.0
    assert not {"1,000 partitions, created", "1,000 partitions, a record in each"} & targets.keys()
    assert targets["start, 3 brokers"] == targets["start, 1 broker"] == 0.3
    assert FIGURES["20,000 idle connections, rate kept"].own == 0.9
