"""Medians, spreads, ratios and targets of the samples, as a table."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.report.figures import FIGURES, OURS, THEIRS, Figure

TABLE_WIDTH = 150  # without a terminal
# figure -> system -> one sample a round
Samples = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the lowest and the highest of some samples."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Compute the spread; None without samples."""
        return cls(statistics.median(samples), min(samples), max(samples)) if samples else None

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)}-{short(self.most)})"


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a figure, and whether it is met."""

    text: str
    is_met: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, with the samples of all systems."""

    figure: Figure
    samples: Mapping[str, Sequence[float]]  # by system

    def values(self, system: str) -> Spread | None:
        """Return a system's spread; None if it was not measured."""
        return Spread.of(self.samples.get(system, ()))

    def ratio(self, system: str = OURS) -> Spread | None:
        """Return the ratio system / Apache Kafka of the same rounds; None if one of them was not measured.

        A slope may be negative, by noise; it has no ratio then.
        """
        theirs = self.samples.get(THEIRS, ())
        pairs = zip(self.samples.get(system, ()), theirs, strict=False)
        return Spread.of([value / their for value, their in pairs if their > 0 <= value])

    @property
    def targets(self) -> list[Target]:
        """Judge the targets that have samples. They apply to Barnabas only, not to other columns."""
        sign = ">=" if self.figure.more_is_better else "<="
        bounds = (
            (self.figure.ratio, self.ratio(), f"{sign} {self.figure.ratio}"),
            (self.figure.own, self.values(OURS), f"{sign} {self.figure.own:g} {self.figure.unit}".rstrip())
            if self.figure.own is not None
            else (None, None, ""),
        )
        return [
            Target(text, self.figure.meets(spread.median, bound))
            for bound, spread, text in bounds
            if bound is not None and spread is not None
        ]


def rows(samples: Samples, figures: Mapping[str, Figure] = FIGURES) -> list[Row]:
    """Return the figures that have samples, in the order of `figures`."""
    return [Row(figure, samples[name]) for name, figure in figures.items() if name in samples]


def missed(samples: Samples) -> list[str]:
    """Return the figures that miss a target."""
    return [row.figure.name for row in rows(samples) if not all(target.is_met for target in row.targets)]


def systems_in(samples: Samples) -> list[str]:
    """Return the measured systems: Apache Kafka, Barnabas, then the others."""
    found = dict.fromkeys(system for by_system in samples.values() for system in by_system)
    return sorted(found, key=lambda system: (system != THEIRS, system != OURS))


def table(samples: Samples, figures: Mapping[str, Figure] = FIGURES) -> Table:
    """Build a table with a line for each figure: medians with (lowest-highest), ratios to Apache Kafka, targets."""
    systems = systems_in(samples)
    compared = [system for system in systems if system != THEIRS] if THEIRS in systems else []
    ratios = ["ratio"] if compared == [OURS] else [f"ratio, {system}" for system in compared]
    made = Table("", "unit", *systems, *ratios, "target")
    for column in made.columns[2:-1]:
        column.justify = "right"
    for row in rows(samples, figures):
        values = [*map(row.values, systems), *map(row.ratio, compared)]
        cells = ["-" if spread is None else str(spread) for spread in values]
        made.add_row(row.figure.name, row.figure.unit, *cells, ", ".join(map(_verdict, row.targets)))
    return made


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; without a terminal, wide enough for the table."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else TABLE_WIDTH, highlight=False)


def short(value: float) -> str:
    """Format with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _verdict(target: Target) -> str:
    colour, word = ("green", "met") if target.is_met else ("red", "missed")
    return f"[{colour}]{target.text} {word}[/{colour}]"
