"""`python -m tests.simulation.coverage --seed N --runs M`: what lives of a cluster reach of the code under test.

Writes build/simulation-coverage.md: for each package the share of lines that ran, for each state machine the cells
(state x event) that were reached, and those that were not, with the reason (explained.py). `--lines FILE` has the lines
of each file that never ran. Tracing makes a life several times slower, and does not change its history.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from barnabas.testing.simulation.machine import patches
from barnabas.testing.simulation.machine.digest import Digest
from barnabas.testing.simulation.machine.scheduler import Scheduler
from tests.simulation.coverage.cells import Cell, Cells
from tests.simulation.coverage.lines import Lines, Ran
from tests.simulation.coverage.report import report, report_lines
from tests.support.seeded_run import say, seeded_parser

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("broker", "controller")
HASH_SEED = "PYTHONHASHSEED"


def main() -> None:
    """Run the seeds and write the report; ends the process."""
    parser = seeded_parser("simulation.coverage", "what simulated lives reach", has_directory=False)
    parser.add_argument("--runs", type=int, default=20, help="run this seed and the next ones, so many in all")
    parser.add_argument(
        "--report", type=Path, default=ROOT / "build/simulation-coverage.md", help="where it is written"
    )
    parser.add_argument("--seconds", type=int, default=60, help="virtual seconds of each")
    parser.add_argument("--lines", type=Path, help="write the lines that never ran to this file")
    arguments = parser.parse_args()
    first = 1 if arguments.seed is None else arguments.seed
    if os.environ.get(HASH_SEED) != "0":
        command = [sys.executable, "-m", "tests.simulation.coverage", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, HASH_SEED: "0"})
    scheduler = Scheduler(first)
    patches.install(scheduler)
    # Why here: it imports the code under test, which must find the simulated machine.
    import tests.simulation.cluster.run  # noqa: F401

    ran: Ran = {}
    reached: set[Cell] = set()
    for seed in range(first, first + arguments.runs):
        lines, cells, problems = in_a_fork(scheduler, seed, arguments.seconds)
        for path, numbers in lines.items():
            ran.setdefault(path, set()).update(numbers)
        reached |= cells
        say(f"seed {seed}: {sum(map(len, ran.values()))} lines, {len(reached)} cells" + "".join(problems))
    what = f"seeds {first} to {first + arguments.runs - 1}"
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(report(ROOT, FOLDERS, ran, reached, what))
    if arguments.lines is not None:
        arguments.lines.write_text(report_lines(ROOT, FOLDERS, ran))
    say(f"written to {arguments.report}")
    sys.stdout.flush()
    os._exit(0)


def in_a_fork(scheduler: Scheduler, seed: int, seconds: int) -> tuple[Ran, set[Cell], list[str]]:
    """Run a seed in a child; return the lines and cells that it reached, and what was wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writer, "wb") as output:
                pickle.dump(run_one(scheduler, seed, seconds), output)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        data = output.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else ({}, set(), [" (the run ended without a word)"])


def run_one(scheduler: Scheduler, seed: int, seconds: int) -> tuple[Ran, set[Cell], list[str]]:
    """Run a seed, and note what it reaches."""
    from barnabas.testing.simulation.logs import keep_logs
    from tests.simulation.cluster.run import Run
    from tests.simulation.load.story import Story

    keep_logs(scheduler, None, "")
    network = patches.begin(scheduler, seed, Digest(None))
    lines, cells = (
        Lines(tuple(f"{ROOT}/{folder}/" for folder in (*FOLDERS, *(f"barnabas/{each}" for each in FOLDERS)))),
        Cells(),
    )
    cells.watch()
    scheduler.on_first_turn = lines.start
    outcome = Run(scheduler, network, Story.drawn(seed, seconds=seconds)).run()
    sys.settrace(None)
    return lines.ran, cells.reached, [f" ({problem.splitlines()[0]})" for problem in outcome.problems]


if __name__ == "__main__":
    main()
