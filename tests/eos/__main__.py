"""`python -m tests.eos --kills 60 --seed N`: see the package's files; exits with 0 if the checks passed."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.eos.applications import KINDS
from tests.eos.run import run
from tests.support.access import add_security_option
from tests.support.kafka.kafka_jars import KafkaRuntimeError
from tests.support.seeded_run import parse_seeded, run_seeded, say, seeded_parser


def main() -> int:
    """Run with the options of the command line."""
    parser = seeded_parser("eos", "exactly-once under kill -9")
    parser.add_argument("--kills", type=int, default=60, help="number of killed processes")
    parser.add_argument("--slots", type=int, default=2, help="number of processes for each application")
    parser.add_argument("--applications", nargs="+", choices=list(KINDS), default=list(KINDS), help="default: all")
    add_security_option(parser)
    arguments = parse_seeded(parser)

    def work(directory: Path) -> None:
        names, slots = arguments.applications, arguments.slots
        run(directory, arguments.kills, arguments.seed, say, names, slots, arguments.security)

    try:
        return run_seeded(
            "eos",
            arguments,
            f"{arguments.kills} kills",
            work,
            "every record's effect is there exactly once, no aborted record was read, no transaction is left open",
        )
    except KafkaRuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
