"""`barnabas clock`: moves the time of a local cluster forward."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.errors import UserError
from barnabas.cli.local.running import chosen_directory, directory_option

if TYPE_CHECKING:
    from datetime import datetime

    from barnabas.clock import ClusterClock


@click.group()
def clock() -> None:
    """Move the time of a running local cluster forward, so that data, groups and transactions expire now.

    The cluster must run with barnabas.clock.enable=true. docs/clock.md says what follows the clock.
    """


@clock.command("advance")
@click.argument("span")
@click.option("--step", metavar="SPAN", help="The longest step in which the time passes.")
@directory_option
def advance(span: str, step: str | None, data_dir: Path | None) -> None:
    """Move the time forward by SPAN (7d, 1h30m, 500ms); print the new time when everything due is done."""
    with _clock_of(data_dir) as cluster_clock:
        _print(cluster_clock.advance(span, step=step))


@clock.command("now")
@directory_option
def now(data_dir: Path | None) -> None:
    """Print the time of the cluster, in UTC."""
    with _clock_of(data_dir) as cluster_clock:
        _print(cluster_clock.now())


@contextlib.contextmanager
def _clock_of(data_dir: Path | None) -> Iterator[ClusterClock]:
    """The clock of the cluster, with its errors in one line."""
    from barnabas.clock import ClockError, ClusterClock  # Why here: few commands need them

    try:
        yield ClusterClock(chosen_directory(data_dir))
    except ClockError as error:
        raise UserError(str(error)) from error


def _print(time: datetime) -> None:
    click.echo(time.isoformat(timespec="milliseconds"))
