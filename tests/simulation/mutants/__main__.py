"""`python -m tests.simulation.mutants`: for each mistake, seeds one after the other until one fails; writes the table.

The results are kept in `build/mutants.json`, so that a run that was interrupted continues, and a changed mutant alone
runs again. A seed counts if the unmutated code passes it.

Exits with 0 if every mutant that was asked for is caught, and the unmutated code passed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from barnabas.common.clock import SystemClock
from tests.simulation.mutants.results import Result, checker_of, key_of, load, problem_of, report, save
from tests.simulation.mutants.tables.all import AREAS, MUTANTS, story_of
from tests.support.seeded_run import say

ROOT: Final = Path(__file__).resolve().parents[3]
KEPT: Final = ROOT / "build" / "mutants.json"
TABLE: Final = ROOT / "tests" / "simulation" / "MUTANTS.md"
LIMIT: Final = 2_000


def options() -> argparse.Namespace:
    """The options of this process."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MUTANT", help="only these; default: all")
    parser.add_argument("--area", action="append", choices=list(AREAS), help="only those of this area")
    parser.add_argument("--limit", type=int, default=LIMIT, help="so many seeds for each mutant")
    parser.add_argument("--jobs", type=int, default=1, help="so many mutants at a time")
    parser.add_argument("--again", action="store_true", help="forget earlier results of the chosen mutants")
    parser.add_argument("--no-table", action="store_true", help="leave the table as it is")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in MUTANTS]
    if unknown:
        parser.error(f"there is no mutant {', '.join(unknown)}")
    return arguments


def main() -> int:
    """Run the mutants; return the exit code."""
    arguments = options()
    results = load(KEPT)
    chosen = arguments.names or [
        name for area, mutants in AREAS.items() for name in mutants if area in (arguments.area or AREAS)
    ]
    if arguments.again:
        results = {name: result for name, result in results.items() if name not in chosen}
    wanted = [name for name in chosen if not _is_known(results.get(name), arguments.limit)]
    sound = Sound()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = pool.map(lambda name: _run(name, arguments.limit, results.get(name), sound), wanted)
        for name, result in zip(wanted, found, strict=True):
            save(KEPT, load(KEPT) | {name: result})  # Why load: another command may run other mutants
            seed = f"seed {result.seeds}: {result.problem[:100]}" if result.caught else f"not in {result.seeds} seeds"
            say(f"{name}: {seed} ({result.seconds:.0f} s)")
    results = load(KEPT)
    failing = sound.failing()
    if not arguments.no_table:
        TABLE.write_text(report(results, [f"THE UNMUTATED CODE FAILS: {', '.join(failing)}."] if failing else []))
    missed = [name for name in chosen if not results[name].caught]
    say(f"{len(chosen)} mutants, {len(missed)} not caught{': ' if missed else ''}{', '.join(missed)}")
    return 1 if missed or failing else 0


def _is_known(result: Result | None, limit: int) -> bool:
    return result is not None and (result.caught or result.seeds >= limit)


def _run(name: str, limit: int, earlier: Result | None, sound: Sound) -> Result:
    """Run seeds with a mutant until one fails that passes without it; those of an earlier result not again."""
    clock = SystemClock()
    started_ns = clock.monotonic_ns()
    seeds, seconds = (0, 0.0) if earlier is None else (earlier.seeds, earlier.seconds)
    problem = ""
    while seeds < limit and not problem:
        given = ("--runs", str(limit - seeds), "--until-failure", "--mutant", name)
        code, lines = _simulate(seeds + 1, story_of(name), *given)
        seeds += next((int(line.split()[0]) for line in lines if " runs, " in line), 1)
        if code and sound.passes(story_of(name), seeds):
            problem = problem_of(lines)
    seconds += (clock.monotonic_ns() - started_ns) / 1e9
    return Result(key_of(name), seeds, bool(problem), checker_of(problem), problem, seconds)


class Sound:
    """Which seeds the unmutated code passes: only those tell anything about a mutant."""

    def __init__(self) -> None:
        self._passes: dict[tuple[str, int], bool] = {}

    def passes(self, story: str, seed: int) -> bool:
        """Run a seed of a story without a mutant, unless that was done before."""
        if (story, seed) not in self._passes:
            code, lines = _simulate(seed, story)
            self._passes[story, seed] = not code
            if code:
                say(f"THE UNMUTATED CODE FAILS: seed {seed} of {story}: {problem_of(lines)}")
        return self._passes[story, seed]

    def failing(self) -> list[str]:
        """The seeds that failed, in words."""
        return sorted(f"{seed} of {story}" for (story, seed), passes in self._passes.items() if not passes)


def _simulate(seed: int, story: str, *given: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--story", story, *given]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


if __name__ == "__main__":
    sys.exit(main())
