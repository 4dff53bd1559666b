"""Medians, spreads, ratios and targets of the samples, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.figures import FIGURES, OURS, THEIRS, Figure

# figure -> system -> one sample a round
Samples = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some samples, the least and the most of them."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """None of none."""
        return cls(statistics.median(samples), min(samples), max(samples)) if samples else None

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)}-{short(self.most)})"


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked of a figure, and whether it is so."""

    text: str
    is_met: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of all systems."""

    figure: Figure
    samples: Mapping[str, Sequence[float]]  # by system

    def values(self, system: str) -> Spread | None:
        """What the system did; None if it was not measured."""
        return Spread.of(self.samples.get(system, ()))

    def ratio(self, system: str = OURS) -> Spread | None:
        """The system / Apache Kafka, of the same rounds; None if one of them was not measured."""
        theirs = self.samples.get(THEIRS, ())
        pairs = zip(self.samples.get(system, ()), theirs, strict=False)
        return Spread.of([value / their for value, their in pairs if their])

    @property
    def targets(self) -> list[Target]:
        """What could be judged: of Barnabas, whatever else was measured beside it."""
        sign = ">=" if self.figure.more_is_better else "<="
        asked = (
            (self.figure.ratio, self.ratio(), f"{sign} {self.figure.ratio}"),
            (self.figure.own, self.values(OURS), f"{sign} {self.figure.own:g} {self.figure.unit}".rstrip())
            if self.figure.own is not None
            else (None, None, ""),
        )
        return [
            Target(text, self.figure.meets(spread.median, bound))
            for bound, spread, text in asked
            if bound is not None and spread is not None
        ]


def rows(samples: Samples) -> list[Row]:
    """The figures that have samples, in the order of their table."""
    return [Row(figure, samples[name]) for name, figure in FIGURES.items() if name in samples]


def missed(samples: Samples) -> list[str]:
    """The figures that do not reach what they have to."""
    return [row.figure.name for row in rows(samples) if not all(target.is_met for target in row.targets)]


def systems_in(samples: Samples) -> list[str]:
    """The systems that were measured: Apache Kafka, Barnabas, then the others."""
    found = dict.fromkeys(system for by_system in samples.values() for system in by_system)
    return sorted(found, key=lambda system: (system != THEIRS, system != OURS))


def table(samples: Samples) -> Table:
    """A line a figure: medians with (least-most), ratios to Apache Kafka, targets."""
    systems = systems_in(samples)
    compared = [system for system in systems if system != THEIRS] if THEIRS in systems else []
    ratios = ["ratio"] if compared == [OURS] else [f"ratio, {system}" for system in compared]
    made = Table("", "unit", *systems, *ratios, "target")
    for column in made.columns[2:-1]:
        column.justify = "right"
    for row in rows(samples):
        values = [*map(row.values, systems), *map(row.ratio, compared)]
        cells = ["-" if spread is None else str(spread) for spread in values]
        made.add_row(row.figure.name, row.figure.unit, *cells, ", ".join(map(_told, row.targets)))
    return made


def short(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _told(target: Target) -> str:
    colour, word = ("green", "met") if target.is_met else ("red", "missed")
    return f"[{colour}]{target.text} {word}[/{colour}]"
