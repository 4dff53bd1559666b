"""Medians, spreads and ratios of the samples: a table for people, a JSON file for later runs to compare with."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from barnabas.common.clock import Clock
from benchmarks.measurements import FIGURES, Figure
from tests.support.kafka_jars import KAFKA_VERSION

OURS, THEIRS = "Barnabas", "Apache Kafka"
RESULTS = Path(__file__).parent / "results"
TABLE_WIDTH = 140  # where there is no terminal to ask
# figure -> system -> one sample a round
Results = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both systems."""

    figure: Figure
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Barnabas / Apache Kafka, a round; empty where only one of them was measured."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=False) if theirs]

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target; None without a target or a sample."""
        if self.figure.ratio_min is not None and self.ratios:
            return statistics.median(self.ratios) >= self.figure.ratio_min
        if self.figure.ratio_max is not None and self.ratios:
            return statistics.median(self.ratios) <= self.figure.ratio_max
        if self.figure.own_max is not None and self.ours:
            return statistics.median(self.ours) <= self.figure.own_max
        return None


def rows(results: Results) -> list[Row]:
    """The figures that have samples, in the order of their table."""
    return [
        Row(figure, results[name].get(OURS, ()), results[name].get(THEIRS, ()))
        for name, figure in FIGURES.items()
        if name in results
    ]


def publish(results: Results, about: Mapping[str, object], clock: Clock) -> Path:
    """Print the table, and keep all samples in a file of their own; return its path."""
    print_table(results, Console(width=None if sys.stdout.isatty() else TABLE_WIDTH))
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    path = RESULTS / f"{now:%Y%m%d-%H%M%S}.json"
    save(results, {**_machine(), **about, "at": now.isoformat()}, path)
    return path


def _machine() -> dict[str, object]:
    """What the samples were measured with."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    python = ".".join(map(str, sys.version_info[:3]))
    load = [round(value, 2) for value in os.getloadavg()]
    versions = {"commit": commit.stdout.strip(), "apache_kafka": KAFKA_VERSION, "python": python}
    return {**versions, "cpus": os.cpu_count(), "load_average_afterwards": load}


def print_table(results: Results, console: Console) -> None:
    """Print a line a figure: medians with (least-most), the ratio, the target."""
    table = Table("", "unit", THEIRS, OURS, "ratio", "target")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows(results):
        values = (_spread(row.theirs), _spread(row.ours), _spread(row.ratios))
        table.add_row(row.figure.name, row.figure.unit, *values, _target(row))
    console.print(table)


def save(results: Results, about: Mapping[str, object], path: Path) -> None:
    """Write all samples and what they were measured with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ratios = {row.figure.name: round(statistics.median(row.ratios), 3) for row in rows(results) if row.ratios}
    content = {**about, "ratios": ratios, "samples": results}
    path.write_text(json.dumps(content, indent=1) + "\n")


def _spread(samples: Sequence[float]) -> str:
    if not samples:
        return "-"
    median, least, most = (_short(value) for value in (statistics.median(samples), min(samples), max(samples)))
    return f"{median} ({least}-{most})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _target(row: Row) -> str:
    figure = row.figure
    bound = next((b for b in (figure.ratio_min, figure.ratio_max, figure.own_max) if b is not None), None)
    if bound is None or row.is_met is None:
        return ""
    sign = ">=" if figure.ratio_min is not None else "<="
    unit = f" {figure.unit}" if bound is figure.own_max else ""
    colour = "green" if row.is_met else "red"
    return f"[{colour}]{sign} {bound:g}{unit} {'met' if row.is_met else 'missed'}[/{colour}]"
