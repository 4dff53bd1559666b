"""The command line of both server processes: FILE [--override KEY=VALUE]...

Why getopt: with argparse come translations and tables of locales, 1 MB of each process.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from barnabas.config.errors import ConfigError

EXIT_WRONG_USAGE: Final = 2
_HELP: Final = """
Run one Barnabas {role}.

positional arguments:
  file                  a Kafka-style server.properties

options:
  -h, --help            show this help message and exit
  --override KEY=VALUE  a property that overrides the file's; may be repeated
"""


class Arguments(NamedTuple):
    """The parsed arguments: the properties file, and the properties that override it."""

    file: str
    overrides: dict[str, str]


def parse_arguments(role: str, argv: Sequence[str] | None) -> Arguments:
    """Read the arguments of a `role` ("broker", "controller"); raises ConfigError, exits on wrong usage."""
    options: list[tuple[str, str]] = []
    files: list[str] = []
    rest = list(sys.argv[1:] if argv is None else argv)
    try:
        while rest:  # Why not gnu_getopt: POSIXLY_CORRECT, in the environment, would end the options at the file
            found, rest = getopt.getopt(rest, "h", ["help", "override="])
            options += found
            files += rest[:1]
            rest = rest[1:]
    except getopt.GetoptError as error:
        _refuse(role, str(error))
    if any(name in ("-h", "--help") for name, _ in options):
        sys.stdout.write(_usage(role) + _HELP.format(role=role))
        raise SystemExit
    if len(files) != 1:
        _refuse(role, f"one file is needed, not {len(files)}")
    return Arguments(files[0], dict(key_value(text) for _, text in options))


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE; raises ConfigError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--override wants KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def _usage(role: str) -> str:
    return f"usage: barnabas {role} [-h] [--override KEY=VALUE] file\n"


def _refuse(role: str, mistake: str) -> NoReturn:
    sys.stderr.write(f"{_usage(role)}barnabas {role}: error: {mistake}\n")
    raise SystemExit(EXIT_WRONG_USAGE)
