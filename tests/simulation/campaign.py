"""`python -m tests.simulation.campaign`: lives of fresh seeds for a time, on several cores, with a summary.

`make simulate-night` gives it hours of all cores. The first seed is printed, so that a campaign can be repeated; so is
each seed that fails, with its story, and the command that repeats it. The last line is the summary: seeds, virtual
hours, failures.

Exits with 0 if no seed failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.seeded_run import parse_seeded, say, seeded_parser

SEEDS_A_BATCH = 50
#: Between the first seeds of two batches, so that none comes twice.
STRIDE = 1_000
_SUMMARY = re.compile(r"(\d+) runs, (\d+) failed: \[(.*)\], ([\d.]+) virtual seconds")


class Totals(NamedTuple):
    """What batches have done."""

    seeds: int = 0
    failed: tuple[int, ...] = ()
    virtual_s: float = 0.0

    def __str__(self) -> str:
        failed = f"{len(self.failed)} failed: {list(self.failed)}" if self.failed else "none failed"
        return f"{self.seeds} seeds, {self.virtual_s / 3600:.2f} virtual hours, {failed}"


class BatchError(Exception):
    """A batch ended without a summary; the message has its output."""


def added(totals: Totals, output: str) -> Totals:
    """Return the totals with what a batch printed. Raises BatchError."""
    found = _SUMMARY.search(output)
    if found is None:
        raise BatchError(output)
    failed = tuple(int(seed) for seed in found[3].split(",") if seed.strip())
    return Totals(totals.seeds + int(found[1]), (*totals.failed, *failed), round(totals.virtual_s + float(found[4]), 1))


def options() -> argparse.Namespace:
    """The options of this process."""
    parser = seeded_parser("simulation.campaign", "lives of fresh seeds for a time", has_directory=False)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to begin new seeds")
    parser.add_argument("--jobs", type=int, default=1, help="how many lives at a time; 0: one for each core")
    parser.add_argument("--output", type=Path, help="write what failing seeds printed to files of this directory")
    parser.add_argument("--story", default="", help="parts of each story, as python -m tests.simulation takes them")
    return parse_seeded(parser)


def main() -> None:
    """Run the campaign; ends the process."""
    arguments = options()
    jobs = arguments.jobs or os.cpu_count() or 1
    end = time.monotonic() + arguments.seconds
    say(f"seeds from {arguments.seed}, for {arguments.seconds:.0f} s, {jobs} at a time")
    totals = Totals()
    first = arguments.seed

    def batch(seed: int) -> str:
        left = end - time.monotonic()
        if left <= 0:
            return ""
        command = [
            *(sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--runs", str(SEEDS_A_BATCH)),
            *("--real-seconds", f"{left:.0f}"),
            *(("--story", arguments.story) if arguments.story else ()),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    with ThreadPoolExecutor(jobs) as pool:
        while time.monotonic() < end:
            seeds = [first + job * STRIDE for job in range(jobs)]
            first += jobs * STRIDE
            for seed, output in zip(seeds, pool.map(batch, seeds), strict=True):
                if output:
                    failures = len(totals.failed)
                    totals = added(totals, output)
                    if len(totals.failed) > failures:
                        report(seed, output, arguments.output)
            say(f"so far: {totals}")
    say(str(totals))
    sys.exit(1 if totals.failed else 0)


def report(seed: int, output: str, directory: Path | None) -> None:
    """Print what a batch with a failure printed, or write it to a file."""
    if directory is None:
        say(output)
        return
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"from-{seed}.txt"
    path.write_text(output)
    say(f"failures: see {path}")


if __name__ == "__main__":
    main()
