"""`barnabas broker FILE` and `barnabas controller FILE`: one process from a Kafka-style server.properties."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import click

from barnabas.common import interpreter

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_OVERRIDE = click.option("--override", multiple=True, metavar="KEY=VALUE", help="A property that wins over the file's.")


def _become(module: str, file: Path, overrides: tuple[str, ...]) -> NoReturn:
    """Replace this process: the server then holds no command-line library."""
    arguments = [*interpreter.command(module), str(file)]
    for override in overrides:
        arguments += ["--override", override]
    os.execvp(arguments[0], arguments)


@click.command()
@_FILE
@_OVERRIDE
def broker(file: Path, override: tuple[str, ...]) -> None:
    """Run one broker from FILE until SIGTERM (a controlled shutdown) or SIGINT."""
    _become("barnabas.broker.main", file, override)


@click.command()
@_FILE
@_OVERRIDE
def controller(file: Path, override: tuple[str, ...]) -> None:
    """Run the controller from FILE until SIGTERM or SIGINT."""
    _become("barnabas.controller.main", file, override)
