"""`python -m tests.churn --deeds 200 --seed N`: see the package's files; exits with 0 if all was well."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.churn.run import run


def main() -> int:
    """Run with the options of the command line; the data stays where it is if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.churn", description="groups under churn, then the proof")
    parser.add_argument("--deeds", type=int, default=200, help="how many things happen")
    parser.add_argument("--seed", type=int, default=None, help="what they derive from; by default a new one")
    parser.add_argument("--directory", type=Path, default=None, help="where the data goes; by default a temporary one")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-churn-"))
    what = f"{arguments.deeds} deeds of seed {seed}"
    say(f"{what} (data in {directory})")
    try:
        run(directory, arguments.deeds, seed, say)
    except AssertionError as error:
        say(f"FAILED\n{error}\nagain with: python -m tests.churn --deeds {arguments.deeds} --seed {seed}")
        return 1
    say(f"{what}: one owner a generation, no offset went back, every group became stable")
    return 0


def say(text: str) -> None:
    """Print at once: whoever watches wants to know how far it is."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
