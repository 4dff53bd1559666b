"""Rounds: the systems' turns, and the end of the warm-up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from benchmarks.bench import Bench, Measurement, Round, Samples
from benchmarks.report.figures import OURS, THEIRS
from benchmarks.rounds import WARM_UPS_MAX, is_warm, measure
from benchmarks.systems import System

FIGURE = "produce 1 KiB"


class Named:
    """A system with only a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Script:
    """A measurement that returns prepared values and records the order of the systems."""

    def __init__(self, **values: list[float]) -> None:
        self.turns: list[str] = []
        self.left = 0
        self._values = {name: iter(found) for name, found in values.items()}

    @contextmanager
    def measure(self, _: Bench, system: System) -> Iterator[Round]:
        """Prepare the measurement, as `Measurement.measure` does."""

        def once() -> Samples:
            self.turns.append(system.name)
            return {FIGURE: next(self._values[system.name])}

        yield once
        self.left += 1


def run(script: Script, names: list[str], rounds: int, warm_by: str = FIGURE) -> tuple[Any, list[str]]:
    """Measure these systems. Returns the results and the printed lines."""
    lines: list[str] = []
    systems = [cast(System, Named(name)) for name in names]
    return measure("it", Measurement(script.measure, warm_by), cast(Bench, None), systems, rounds, lines.append), lines


@pytest.mark.parametrize(
    ("values", "more", "less"),
    [([10], False, False), ([10, 10.4], True, True), ([10, 10.6], False, True), ([10, 9.4], True, False)],
)
def test_a_system_is_warm_once_its_figure_stops_improving(values: list[float], more: bool, less: bool) -> None:
    assert is_warm(values, more_is_better=True) is more
    assert is_warm(values, more_is_better=False) is less


def test_a_round_after_a_bad_one_is_no_gain() -> None:
    assert is_warm([100, 60, 101], more_is_better=True)


def test_rounds_count_once_every_system_is_warm() -> None:
    a, b = THEIRS, OURS
    script = Script(**{a: [10.0, 20, 30, 31, 40, 41], b: [5.0, 5, 5, 5, 6, 7]})
    results, _ = run(script, [a, b], rounds=2)
    assert results == {FIGURE: {a: [40, 41], b: [6, 7]}}
    assert script.left == 2


def test_systems_take_turns_at_going_first() -> None:
    script = Script(a=[1] * 5, b=[1] * 5, c=[1] * 5)
    run(script, ["a", "b", "c"], rounds=3, warm_by="")
    assert script.turns == [*"bca", *"bca", *"cab", *"abc"]


def test_the_warm_up_is_bounded_and_reports_it() -> None:
    script = Script(a=[2.0**power for power in range(WARM_UPS_MAX + 1)])
    results, lines = run(script, ["a"], rounds=1)
    assert results == {FIGURE: {"a": [2.0**WARM_UPS_MAX]}}
    assert [line for line in lines if "still getting faster" in line]
