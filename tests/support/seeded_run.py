"""The command line of test runs that derive from a seed, such as `python -m tests.stress --seed 7`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def seeded_parser(name: str, description: str, *, has_directory: bool = True) -> argparse.ArgumentParser:
    """A parser for `python -m tests.NAME` with --seed and, unless nothing is kept on disk, --directory."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{name}", description=description)
    parser.add_argument("--seed", type=int, help="all random choices derive from it; default: a new one")
    if has_directory:
        parser.add_argument("--directory", type=Path, help="where the data is kept; default: a temporary directory")
    return parser


def parse_seeded(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of this process, with a new seed if none was given."""
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    return arguments


def run_seeded(name: str, arguments: argparse.Namespace, what: str, work: Callable[[Path], object], proven: str) -> int:
    """Do the work in the run's directory; return the exit code.

    Prints the seed first, and after an AssertionError the command that repeats the run. A temporary directory is
    removed after a success.
    """
    directory: Path = arguments.directory or Path(tempfile.mkdtemp(prefix=f"barnabas-{name}-"))
    say(f"{what} of seed {arguments.seed} (data in {directory})")
    try:
        work(directory)
    except AssertionError as error:
        has_seed = any(argument.startswith("--seed") for argument in sys.argv)
        again = [*sys.argv[1:], *([] if has_seed else ["--seed", str(arguments.seed)])]
        say(f"FAILED\n{error}\nagain with: python -m tests.{name} {' '.join(again)}")
        return 1
    say(f"{what} of seed {arguments.seed}: {proven}")
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


def say(text: str) -> None:
    """Print without buffering, since the user watches the progress."""
    print(text, flush=True)
