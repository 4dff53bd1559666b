"""What was measured so far: `python -m benchmarks.history` shows how the ratios moved from commit to commit.

`results/history.jsonl` has a line a run, with what ran and every sample; tables and plots are made from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from barnabas.common.clock import Clock
from benchmarks.figures import FIGURES
from benchmarks.plot import draw
from benchmarks.report import Samples, rows, short, table
from tests.support.kafka_jars import KAFKA_VERSION

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
HISTORY, PICTURE = RESULTS / "history.jsonl", RESULTS / "ratios.svg"
TABLE_WIDTH = 150  # where there is no terminal to ask
DIGITS = 4  # significant ones of a sample


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benchmark."""

    at: str  # ISO 8601
    commit: str  # with a + if sources were changed since
    rounds: int
    apache_kafka: str
    versions: Mapping[str, str]  # of Barnabas, by the name of the system
    python: str
    cpus: int
    limits: Mapping[str, float]  # the clients' own, by measurement: requests/s, connections
    ratios: Mapping[str, float]  # medians
    samples: Samples = field(repr=False)

    @classmethod
    def now(
        cls, clock: Clock, rounds: int, versions: Mapping[str, str], limits: Mapping[str, float], samples: Samples
    ) -> Run:
        """A run that has just ended."""
        at = datetime.fromtimestamp(clock.wall_ms() // 1000, UTC).isoformat()
        ratios = {row.figure.name: round(found.median, 3) for row in rows(samples) if (found := row.ratio())}
        return cls(
            at,
            _commit(),
            rounds,
            KAFKA_VERSION,
            versions,
            ".".join(map(str, sys.version_info[:3])),
            os.cpu_count() or 1,
            {name: round(limit) for name, limit in limits.items()},
            ratios,
            {
                figure: {system: [float(f"{value:.{DIGITS}g}") for value in values] for system, values in found.items()}
                for figure, found in samples.items()
            },
        )


def append(run: Run, path: Path) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def load(path: Path) -> list[Run]:
    """All runs, the oldest first; none without the file."""
    return [Run(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def moves(runs: Sequence[Run]) -> Table:
    """A line a figure, a column a run: ratios, as they were measured."""
    made = Table(
        "Barnabas / Apache Kafka", "target", *(f"{run.commit}\n{run.at[5:10]} {run.at[11:16]}" for run in runs)
    )
    for column in made.columns[1:]:
        column.justify = "right"
    for name, figure in FIGURES.items():
        found = [run.ratios.get(name) for run in runs]
        if any(value is not None for value in found):
            asked = "" if figure.ratio is None else f"{'>=' if figure.more_is_better else '<='} {figure.ratio}"
            made.add_row(name, asked, *("" if value is None else short(value) for value in found))
    return made


def latest(runs: Sequence[Run]) -> Samples:
    """Each figure's samples of the last run that has it."""
    return {figure: samples for run in runs for figure, samples in run.samples.items()}


def console(*, stderr: bool = False) -> Console:
    """Where tables go: as wide as the terminal, or as a table is."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else TABLE_WIDTH, highlight=False)


def versions(executables: Mapping[str, Path]) -> dict[str, str]:
    """What each `barnabas` says of itself, by the name of its system."""
    return {
        name: subprocess.run([path, "--version"], capture_output=True, text=True, check=False, cwd="/").stdout.strip()
        for name, path in executables.items()
    }


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return f"{commit}+" if changed else commit


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


@click.command()
@click.option("--history", "path", type=click.Path(path_type=Path), default=HISTORY, help="The history file.")
@click.option("--runs", default=6, show_default=True, help="How many columns: the last runs.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the picture anew, from each figure's last run.")
def main(path: Path, runs: int, plot: Path | None) -> None:
    """Show how the ratios moved."""
    every = load(path)
    if not every:
        sys.exit(f"{path} has no run")
    console().print(moves(every[-runs:]))
    console().print(table(latest(every)))
    if plot is not None:
        draw(latest(every), plot)


if __name__ == "__main__":
    main()
