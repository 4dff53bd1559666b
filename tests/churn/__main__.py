"""`python -m tests.churn --deeds 200 --seed N`: see the package's files; exits with 0 if the checks passed."""

from __future__ import annotations

import sys

from tests.churn.run import run
from tests.support.access import add_security_option
from tests.support.seeded_run import parse_seeded, run_seeded, say, seeded_parser


def main() -> int:
    """Run with the options of the command line."""
    parser = seeded_parser("churn", "groups under churn, then the proof")
    parser.add_argument("--deeds", type=int, default=200, help="number of events")
    add_security_option(parser)
    arguments = parse_seeded(parser)
    return run_seeded(
        "churn",
        arguments,
        f"{arguments.deeds} deeds",
        lambda directory: run(directory, arguments.deeds, arguments.seed, say, arguments.security),
        "one owner in each generation, no offset went back, every group became stable",
    )


if __name__ == "__main__":
    sys.exit(main())
