"""`python -m tests.eos --kills 60 --seed N`: see the package's files; exits with 0 if all was well."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.eos.applications import KINDS
from tests.eos.run import run
from tests.support.kafka_jars import KafkaRuntimeError


def main() -> int:
    """Run with the options of the command line; the data stays where it is if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.eos", description="exactly-once under kill -9")
    parser.add_argument("--kills", type=int, default=60, help="how many processes are killed")
    parser.add_argument("--seed", type=int, default=None, help="what is derived from it; by default a new one")
    parser.add_argument("--directory", type=Path, default=None, help="where the data goes; by default a temporary one")
    parser.add_argument("--slots", type=int, default=2, help="how many processes each application has")
    parser.add_argument("--applications", nargs="+", choices=list(KINDS), default=list(KINDS), help="by default all")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-eos-"))
    what = f"{arguments.kills} kills of seed {seed}"
    say(f"{what} (data in {directory})")
    try:
        run(directory, arguments.kills, seed, say, arguments.applications, arguments.slots)
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    except AssertionError as error:
        say(f"FAILED\n{error}\nagain with: python -m tests.eos {' '.join(sys.argv[1:])} --seed {seed}")
        return 1
    say(f"{what}: every record's effect is there exactly once, nothing aborted was read, nothing is left open")
    return 0


def say(text: str) -> None:
    """Print at once: whoever watches wants to know how far it is."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
