"""`barnabas node`: break, and mend, one node of a local cluster that `barnabas up` runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.errors import UserError
from barnabas.cli.running import chosen_directory, directory_option
from barnabas.control import ask

if TYPE_CHECKING:
    from barnabas.faults import FaultHandle, Faults

T = TypeVar("T")

ACTIONS = {
    "kill": "SIGKILL: as if the machine had lost power, but for the page cache.",
    "stop": "SIGTERM: a controlled shutdown.",
    "start": "Start it again on the same data, and wait until clients can use it.",
    "pause": "SIGSTOP: it keeps its connections and answers nothing.",
    "resume": "SIGCONT after a pause.",
}
OPERATIONS = ("read", "write", "fsync", "create", "rename", "delete")


@click.group()
def node() -> None:
    """Break, and mend, one node of a running local cluster.

    Disks, links and clocks can be broken if it runs with barnabas.faults.enable=true (see docs/faults.md); what a node
    is told of them is gone when its process ends.
    """


_ID = click.argument("node_id", metavar="ID", type=click.IntRange(0))


def _add(action: str, summary: str) -> None:
    @node.command(action, help=summary)
    @_ID
    @directory_option
    def command(node_id: int, data_dir: Path | None) -> None:
        click.echo(ask(chosen_directory(data_dir), action, node_id))


for _action, _summary in ACTIONS.items():
    _add(_action, _summary)


@contextlib.contextmanager
def faults_of(data_dir: Path | None) -> Iterator[Faults]:
    """The faults of the cluster; what is wrong with one is told in one line."""
    from barnabas.faults import FaultError, Faults, FaultsUnavailableError  # Why here: most commands need none of it

    try:
        yield Faults(chosen_directory(data_dir))
    except (FaultError, FaultsUnavailableError) as error:
        raise UserError(str(error)) from error


def for_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--for-ms`, for every fault that may end by itself."""
    return click.option(
        "--for-ms", type=click.IntRange(1), help="End by itself after so long; else until it is healed."
    )(command)


def _disk_options(command: Callable[..., T]) -> Callable[..., T]:
    command = click.option(
        "--operation", "operations", type=click.Choice(OPERATIONS), multiple=True, help="Which; else all."
    )(command)
    return click.option("--path", metavar="PATTERN", help="Files whose paths match, such as '*/orders-0/*'.")(command)


def _tell(handle: FaultHandle) -> None:
    for node_id, fault_id in handle.ids:
        click.echo(f"node {node_id}: fault {fault_id}: {handle.fault}")


def _given(**values: Any) -> dict[str, Any]:
    """What was said on the command line."""
    return {key: value for key, value in values.items() if value not in (None, ())}


@node.command("slow-disk")
@_ID
@click.argument("delay_ms", metavar="MS", type=click.IntRange(1))
@_disk_options
@for_option
@directory_option
def slow_disk(node_id: int, delay_ms: int, data_dir: Path | None, **where: Any) -> None:
    """Have every operation of a node's disk take MS longer."""
    with faults_of(data_dir) as faults:
        _tell(faults.node(node_id).slow_disk(delay_ms, **_given(**where)))


@node.command("break-disk")
@_ID
@click.argument("error", default="EIO")
@_disk_options
@for_option
@directory_option
def break_disk(node_id: int, error: str, data_dir: Path | None, **where: Any) -> None:
    """Have operations of a node's disk fail with ERROR (EIO unless given)."""
    with faults_of(data_dir) as faults:
        _tell(faults.node(node_id).break_disk(error, **_given(**where)))


@node.command("fill-disk")
@_ID
@click.option("--path", metavar="PATTERN", help="Files whose paths match, such as '*/orders-0/*'.")
@for_option
@directory_option
def fill_disk(node_id: int, data_dir: Path | None, **where: Any) -> None:
    """Have no room on a node's disk: writes fail with ENOSPC."""
    with faults_of(data_dir) as faults:
        _tell(faults.node(node_id).fill_disk(**_given(**where)))


@node.command("cut")
@_ID
@click.argument("other", metavar="OTHER")
@click.option(
    "--direction", type=click.Choice(["both", "to", "from"]), default="both", help="To OTHER, from it, or both."
)
@click.option(
    "--mode", type=click.Choice(["blackhole", "refuse"]), help="Nothing comes back (the default), or an error."
)
@for_option
@directory_option
def cut(node_id: int, other: str, data_dir: Path | None, **how: Any) -> None:
    """Cut the link between two nodes; OTHER is an id, or "controller". Clients are not cut off."""
    with faults_of(data_dir) as faults:
        _tell(faults.node(node_id).cut_off(int(other) if other.isdecimal() else other, **_given(**how)))


@node.command("skew", context_settings={"ignore_unknown_options": True})
@_ID
@click.argument("skew_ms", metavar="MS", type=int)
@for_option
@directory_option
def skew(node_id: int, skew_ms: int, data_dir: Path | None, **when: Any) -> None:
    """Put a node's time of day MS ahead, or back if it is negative."""
    with faults_of(data_dir) as faults:
        _tell(faults.node(node_id).skew_clock(skew_ms, **_given(**when)))


@node.command("heal")
@_ID
@directory_option
def heal(node_id: int, data_dir: Path | None) -> None:
    """Remove all faults of a node's disk, links and clock."""
    with faults_of(data_dir) as faults:
        click.echo(f"{faults.node(node_id).heal()} faults removed")
