"""`python -m tests.fuzz --minutes 10 --seed N`: see the package's files; exits with 0 if nothing was lost."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import run


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="hostile frames, then the proof")
    parser.add_argument("--minutes", type=float, default=10, help="how long")
    parser.add_argument("--seed", type=int, default=None, help="what the frames derive from; by default a new one")
    parser.add_argument("--brokers", type=int, default=3, help="how many brokers the cluster has")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="barnabas-fuzz-"))
    print(f"{arguments.minutes} minutes of seed {seed}; data in {directory}", flush=True)
    try:
        run(directory / "cluster", arguments.minutes * 60, seed, _say, brokers=arguments.brokers)
    except AssertionError as error:
        _say(f"FAILED\n{error}\nagain with: python -m tests.fuzz --minutes {arguments.minutes} --seed {seed}")
        return 1
    shutil.rmtree(directory)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
