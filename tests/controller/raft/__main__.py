"""`python -m tests.controller.raft --steps N`: the simulator of the quorum for a long time; see long_run.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.controller.raft.long_run import Progress, kept_in, load, run
from tests.support.seeded_run import say


def main() -> int:
    """Run worlds until so many steps are taken, or a rule is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.controller.raft", description="the metadata quorum in simulated worlds"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first world; the others follow (default: 1)")
    parser.add_argument("--steps", type=int, default=20_000_000, help="how many steps in all")
    parser.add_argument("--jobs", type=int, default=0, help="how many processes; default: one for each core")
    parser.add_argument("--keep", type=Path, help="the directory of what is done; a later run goes on from there")
    arguments = parser.parse_args()
    file = None
    progress = Progress(arguments.seed)
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        file = kept_in(arguments.keep, arguments.seed)
        progress = load(file, arguments.seed)
    say(f"worlds of seed {arguments.seed} and the next ones")
    return 0 if run(progress, arguments.steps, arguments.jobs, file, say) else 1


if __name__ == "__main__":
    raise SystemExit(main())
