"""`python -m tests.fuzz --minutes 10 --seed N`: see the package's files; exits with 0 if nothing was lost.

Half of the time goes to listeners without security, half to the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.run import run
from tests.fuzz.secured import PROTOCOLS, run_secured
from tests.support.seeded_run import parse_seeded, run_seeded, say, seeded_parser


def main() -> int:
    """Run with the options of the command line."""
    parser = seeded_parser("fuzz", "hostile frames, then the proof")
    parser.add_argument("--minutes", type=float, default=10, help="duration")
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers")
    arguments = parse_seeded(parser)
    seconds = arguments.minutes * 60 / 2

    def work(directory: Path) -> None:
        run(directory / "plain", seconds, arguments.seed, say, brokers=arguments.brokers)
        for protocol in PROTOCOLS:
            run_secured(directory / protocol.lower(), protocol, seconds / len(PROTOCOLS), arguments.seed, say)

    return run_seeded(
        "fuzz",
        arguments,
        f"{arguments.minutes:g} minutes",
        work,
        "no process ended, no protected topic, record or offset was lost, and no request was handled before a login",
    )


if __name__ == "__main__":
    sys.exit(main())
