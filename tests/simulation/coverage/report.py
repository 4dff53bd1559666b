"""The report of what was reached, as Markdown, and the lines that were not.

Threads: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tests.simulation.coverage.cells import MACHINES, Cell
from tests.simulation.coverage.explained import UNEXPLAINED, reason_of, reason_of_package
from tests.simulation.coverage.lines import Ran, lines_of


def report(root: Path, folders: Sequence[str], ran: Ran, reached: set[Cell], what: str) -> str:
    """Return the report."""
    out = [
        "# What the simulation reaches",
        "",
        f"Of {what}. Written by `python -m tests.simulation.coverage`. Lines are those of functions: what an import",
        "runs is left out. [README.md](README.md) lists what cannot be simulated.",
        "",
        "| package | lines | reached | why not more |",
        "|---|---:|---:|---|",
    ]
    counts = list(_counts(root, folders, ran))
    for package, group in groupby(sorted(counts), key=lambda count: count[0]):
        out.append(_share(f"`{package}`", [count[1:] for count in group], reason_of_package(package)))
    out.append(_share("all", [count[1:] for count in counts], ""))
    for machine in MACHINES:
        cells = machine.cells()
        missing = [cell for cell in cells if cell not in reached]
        out += ["", f"## {machine.name.capitalize()}", "", f"{len(cells) - len(missing)} of {len(cells)} cells."]
        if missing:
            out += ["", "| state | events never reached | reason |", "|---|---|---|"]
        rows: dict[tuple[str, str], list[str]] = {}
        for cell in missing:
            rows.setdefault((cell[1], reason_of(cell)), []).append(f"`{cell[2]}`")
        out += [f"| {state} | {', '.join(events)} | {reason} |" for (state, reason), events in rows.items()]
    unexplained = sum(
        reason_of(cell) == UNEXPLAINED for each in MACHINES for cell in each.cells() if cell not in reached
    )
    out += ["", f"{unexplained} cells have no explanation."]
    return "\n".join(out) + "\n"


def report_lines(root: Path, folders: Sequence[str], ran: Ran) -> str:
    """Return the lines of each file that never ran."""
    out = []
    for path in _files(root, folders):
        missing = sorted(lines_of(path) - _ran_of(root, path, ran))
        if missing:
            out.append(f"{path.relative_to(root)}: {', '.join(_ranges(missing))}")
    return "\n".join(out) + "\n"


def _counts(root: Path, folders: Sequence[str], ran: Ran) -> Iterator[tuple[str, int, int]]:
    for path in _files(root, folders):
        lines = lines_of(path)
        if lines:
            yield str(path.parent.relative_to(root)), len(lines), len(lines & _ran_of(root, path, ran))


def _ran_of(root: Path, path: Path, ran: Ran) -> set[int]:
    # Why two: `barnabas/broker` is a link to `broker`, by which its modules are imported.
    return ran.get(str(path), set()) | ran.get(str(root / "barnabas" / path.relative_to(root)), set())


def _files(root: Path, folders: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def _share(name: str, counts: Sequence[tuple[int, int]], why: str) -> str:
    lines, reached = sum(count[0] for count in counts), sum(count[1] for count in counts)
    return f"| {name} | {lines} | {100 * reached // max(1, lines)} % | {why} |"


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in group]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"
