"""The command line of both server processes: FILE [--override KEY=VALUE]..."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from barnabas.config.errors import ConfigError


class Arguments(argparse.Namespace):
    """The parsed arguments: the properties file, and the properties that override it."""

    file: str
    overrides: dict[str, str]


def parse_arguments(role: str, argv: Sequence[str] | None) -> Arguments:
    """Read the arguments of a `role` ("broker", "controller"); raises ConfigError, exits on wrong usage."""
    parser = argparse.ArgumentParser(prog=f"barnabas {role}", description=f"Run one Barnabas {role}.")
    parser.add_argument("file", help="a Kafka-style server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parsed = parser.parse_args(argv, namespace=Arguments())
    parsed.overrides = dict(map(key_value, parsed.override))
    return parsed


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE; raises ConfigError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--override wants KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
