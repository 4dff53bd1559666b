"""`barnabas up`: a cluster on this machine until SIGINT or SIGTERM.

Prints one line for scripts, `ready bootstrap=HOST:PORT,... metrics=HOST:PORT,...`, when clients can use every broker.
A process that dies is left dead and named, so that failures can be watched; `barnabas node start ID` brings it back.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import click

from barnabas.cli.errors import UserError
from barnabas.cli.supervisor import supervise
from barnabas.cluster import LocalCluster


@click.command()
@click.option(
    "--brokers", type=click.IntRange(1, 99), default=3, show_default=True, help="How many brokers, ids 0, 1, ..."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=9092,
    show_default=True,
    help="Port of broker 0; 0 takes free ports.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Kept and reused; else a temporary one."
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Any key of Kafka's server properties.")
def up(brokers: int, port: int, data_dir: Path | None, configs: tuple[str, ...]) -> None:
    """Start a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1, and run until SIGINT or SIGTERM."""
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = Path(tempfile.mkdtemp(prefix="barnabas-"))
            stack.callback(shutil.rmtree, data_dir, ignore_errors=True)
        supervise(LocalCluster(data_dir.absolute(), brokers, port, dict(map(key_value, configs))))


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE. Raises UserError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UserError(f"'{text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()
