"""The results of mutants: kept between runs of the command, and written as a table.

A result counts as long as the mutant is the same; a file of results is thrown away by hand, or by `--again`.

Threads: none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.tables.all import AREAS, MUTANTS, REPLACED, STORIES, story_of
from tests.simulation.mutants.tables.found import FOUND

TEXT_MAX: Final = 100

#: What a run prints, and who noticed. The first that fits counts.
CHECKERS: Final = (
    (
        re.compile(
            r"^(?:[\w-]+: )?(lost|duplicated|reordered|offset reuse|unstable read|skipped|watermark back|invented|kept"
            r"|torn|wrong outcome|G0|G1a|G1b|G1c|precommitted read|nonmonotonic poll|sums"
            r"|two owners|former owner|owned at a time|given too early|fenced member|old commit|gap|zombie"
            r"|offset went back|unread|two states|epoch back|no prefix|came back"
            r"|forgotten|fenced early|unstable offset|kept member|kept offset"
            r"|two leaders|voted twice|not elected|early commit|two histories|not durable|incomplete|taken back"
            r"|given twice): .*",
            re.DOTALL,
        ),
        r"\1",
    ),
    (re.compile(r".*did not end within.*", re.DOTALL), "no progress"),
    (re.compile(r".*nothing can ever happen again.*", re.DOTALL), "deadlock"),
    (re.compile(r".*livelock.*", re.DOTALL), "livelock"),
    (re.compile(r".* ended with an exception:.*", re.DOTALL), "exception"),
    (re.compile(r".*: thread .* died.*"), "thread died"),
)
_NOT_PROBLEMS: Final = re.compile(
    r"^(seed \d+ of |story |\s*\d+\.\d{6} s  |[\d.]+ virtual seconds, |clients: |FAILED: |digest |\d+ runs, )"
)


class Result(NamedTuple):
    """What came of a mutant."""

    key: str  # of the mutant as it was
    seeds: int  # how many ran
    caught: bool  # the last of them failed
    checker: str  # who noticed; empty if nobody did
    problem: str  # its first line
    seconds: float

    @property
    def first_seed(self) -> int | None:
        """The seed that failed; seeds begin with 1."""
        return self.seeds if self.caught else None


def key_of(name: str) -> str:
    """What must be the same of a mutant for a result to count."""
    mutant = MUTANTS[name]
    return f"{mutant.module}\n{mutant.part}\n{mutant.becomes}\n{story_of(name)}"


def problem_of(lines: Iterable[str]) -> str:
    """Return the first problem in what a run printed; empty if there is none."""
    return next((line for line in lines if line.strip() and not _NOT_PROBLEMS.match(line)), "")


def checker_of(problem: str) -> str:
    """Return a short name of the check that noticed a problem."""
    for pattern, name in CHECKERS:
        if pattern.match(problem):
            return pattern.sub(name, problem) if "\\" in name else name
    return "invariant" if problem else ""


def load(path: Path) -> dict[str, Result]:
    """Return the results so far, without those of mutants that are gone or have changed."""
    if not path.exists():
        return {}
    found = {name: Result(*values) for name, values in json.loads(path.read_text()).items()}
    return {name: r for name, r in found.items() if name in MUTANTS and r.key == key_of(name)}


def save(path: Path, results: Mapping[str, Result]) -> None:
    """Keep the results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: list(result) for name, result in sorted(results.items())}, indent=1))


def report(results: Mapping[str, Result], notes: Sequence[str]) -> str:
    """Return the table."""
    caught = [r for r in results.values() if r.caught]
    soon = sum(r.seeds <= 50 for r in caught)
    lines = [
        "# Mutants",
        "",
        "Each row is a mistake of one line, made on purpose in the code under test, and what the simulator did with",
        "it: the first seed that fails (from 1 on), though it passes without the mistake, and the check that noticed",
        "it. The lives of an area have the story that stands above its table, and those of a mutant what its row adds.",
        "`make mutants` writes this page.",
        "",
        f"{len(MUTANTS)} mutants, {len(results)} of them run: {len(caught)} caught, {soon} of these within 50 seeds.",
        'What is caught is not run again, so the rows are of several commits. "Not in N" says how many seeds were',
        "tried.",
        *notes,
    ]
    lines += ["", "Replaced:", "", *(f"- {each}" for each in REPLACED)]
    for area, mutants in AREAS.items():
        lines += [
            "",
            f"## {area.capitalize()}",
            "",
            f"Story: `{STORIES[area]}`",
            "",
            "| mutant | breaks | story | seed | noticed by | seconds |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(name, mutant, results.get(name)) for name, mutant in mutants.items()]
    lines += [
        "",
        "## What readers and reviewers found",
        "",
        "The faults that issue 15 names, by their numbers there, and the mutants above that take out what mended them.",
        "",
        "| | fault | found again by | not in a simulated life, since |",
        "|---|---|---|---|",
    ]
    lines += [f"| {each.number} | {each.fault} | {', '.join(each.mutants)} | {each.why_not} |" for each in FOUND]
    return "\n".join(lines) + "\n"


def _row(name: str, mutant: Mutant, result: Result | None) -> str:
    breaks = mutant.breaks + (f" (once a fault of ours, mended in {mutant.mended})" if mutant.mended else "")
    breaks += f" | {mutant.life}" if mutant.life else " |"
    if result is None:
        return f"| {name} | {breaks} | not run | | |"
    if not result.caught:
        return f"| {name} | {breaks} | not in {result.seeds} | | {result.seconds:.0f} |"
    noticed = result.checker
    if noticed == "invariant":
        noticed = _escaped(result.problem[:TEXT_MAX])
    return f"| {name} | {breaks} | {result.seeds} | {noticed} | {result.seconds:.0f} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
