"""`python -m benchmarks.history`: shows how the ratios changed from commit to commit.

`results/history.jsonl` has a line for each run; tables and pictures are made from it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from benchmarks.report.figures import FIGURES
from benchmarks.report.plot import draw
from benchmarks.report.runs import HISTORY, Run, latest, load
from benchmarks.report.table import console, short, table


def changes(runs: Sequence[Run]) -> Table:
    """Build a table of ratios: a line for each figure, a column for each run."""
    made = Table(
        "Barnabas / Apache Kafka", "target", *(f"{run.commit}\n{run.at[5:10]} {run.at[11:16]}" for run in runs)
    )
    for column in made.columns[1:]:
        column.justify = "right"
    for name, figure in FIGURES.items():
        found = [run.ratios.get(name) for run in runs]
        if any(value is not None for value in found):
            target = "" if figure.ratio is None else f"{'>=' if figure.more_is_better else '<='} {figure.ratio}"
            made.add_row(name, target, *("" if value is None else short(value) for value in found))
    return made


@click.command()
@click.option("--history", "path", type=click.Path(path_type=Path), default=HISTORY, help="The history file.")
@click.option("--runs", default=6, show_default=True, help="Show this number of runs, the latest ones.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write the picture here, from each figure's last run.")
def main(path: Path, runs: int, plot: Path | None) -> None:
    """Show how the ratios changed from commit to commit."""
    every = load(path)
    if not every:
        sys.exit(f"{path} has no run")
    console().print(changes(every[-runs:]))
    console().print(table(latest(every)))
    if plot is not None:
        draw(latest(every), plot)


if __name__ == "__main__":
    main()
