"""Runs of the benchmark: `results/history.jsonl` has one line for each, with its environment and every sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from barnabas.common.clock import Clock
from benchmarks.report.figures import FIGURES, Figure
from benchmarks.report.table import Samples, rows
from tests.support.kafka.kafka_jars import KAFKA_VERSION

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
HISTORY, PICTURE = RESULTS / "history.jsonl", RESULTS / "ratios.svg"
DIGITS = 4  # significant digits that are kept of a sample


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benchmark."""

    at: str  # ISO 8601
    commit: str  # with a + if the work tree differs from it
    rounds: int
    apache_kafka: str
    versions: Mapping[str, str]  # of Barnabas executables, by system name
    python: str
    cpus: int
    limits: Mapping[str, float]  # the clients' own, by measurement: requests/s, connections
    ratios: Mapping[str, float]  # medians
    samples: Samples = field(repr=False)

    @classmethod
    def now(
        cls,
        clock: Clock,
        rounds: int,
        versions: Mapping[str, str],
        limits: Mapping[str, float],
        samples: Samples,
        figures: Mapping[str, Figure] = FIGURES,
    ) -> Run:
        """Return a run that has just ended."""
        at = datetime.fromtimestamp(clock.wall_ms() // 1000, UTC).isoformat()
        ratios = {row.figure.name: round(found.median, 3) for row in rows(samples, figures) if (found := row.ratio())}
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
    """Append a run to the history file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def load(path: Path) -> list[Run]:
    """Read all runs, the oldest first; empty if the file does not exist."""
    return [Run(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def latest(runs: Sequence[Run]) -> Samples:
    """Return the samples of each figure from the last run that has it."""
    return {figure: samples for run in runs for figure, samples in run.samples.items()}


def versions(executables: Mapping[str, Path]) -> dict[str, str]:
    """Run `--version` of each executable. Returns the output by system name."""
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
