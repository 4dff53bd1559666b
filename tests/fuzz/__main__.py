"""`python -m tests.fuzz --minutes 10 --seed N`: see the package's files; exits with 0 if nothing was lost."""

from __future__ import annotations

import sys

from tests.fuzz.run import run
from tests.support.seeded_run import parse_seeded, run_seeded, say, seeded_parser


def main() -> int:
    """Run with the options of the command line."""
    parser = seeded_parser("fuzz", "hostile frames, then the proof")
    parser.add_argument("--minutes", type=float, default=10, help="duration")
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers")
    arguments = parse_seeded(parser)
    seconds = arguments.minutes * 60
    return run_seeded(
        "fuzz",
        arguments,
        f"{arguments.minutes:g} minutes",
        lambda directory: run(directory, seconds, arguments.seed, say, brokers=arguments.brokers),
        "no process ended, and no protected topic, record or offset was lost",
    )


if __name__ == "__main__":
    sys.exit(main())
