"""`barnabas node`: breaks and repairs one node of a local cluster that `barnabas up` runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.errors import UserError
from barnabas.cli.local.running import chosen_directory, directory_option
from barnabas.control import ask

if TYPE_CHECKING:
    from barnabas.faults import FaultHandle, Faults

T = TypeVar("T")

ACTIONS = {
    "kill": "Kill the process (SIGKILL).",
    "stop": "Stop the process in a controlled shutdown (SIGTERM).",
    "start": "Start the process and wait until clients can use it.",
    "pause": "Pause the process (SIGSTOP); its connections stay open.",
    "resume": "Resume the process after a pause (SIGCONT).",
}
OPERATIONS = ("read", "write", "fsync", "create", "rename", "delete")


@click.group()
def node() -> None:
    """Break and repair one node of a running local cluster.

    To break disks, links and clocks, start it with barnabas.faults.enable=true (see docs/faults.md). These faults end
    with the node's process.
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
    """The faults of the cluster, with their errors in one line."""
    from barnabas.faults import FaultError, Faults, FaultsUnavailableError  # Why here: few commands need them

    try:
        yield Faults(chosen_directory(data_dir))
    except (FaultError, FaultsUnavailableError) as error:
        raise UserError(str(error)) from error


def for_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--for-ms`, for each fault that can have a time limit."""
    return click.option("--for-ms", type=click.IntRange(1), help="End after this time; default: at `node heal`.")(
        command
    )


def _path_option(command: Callable[..., T]) -> Callable[..., T]:
    text = "Only files with matching paths, such as '*/orders-0/*'."
    return click.option("--path", metavar="PATTERN", help=text)(command)


def _disk_options(command: Callable[..., T]) -> Callable[..., T]:
    command = click.option(
        "--operation", "operations", type=click.Choice(OPERATIONS), multiple=True, help="Only this operation."
    )(command)
    return _path_option(command)


def print_added(handle: FaultHandle) -> None:
    """Print the id of a fault on each node that has it."""
    for node_id, fault_id in handle.ids:
        click.echo(f"node {node_id}: fault {fault_id}: {handle.fault}")


def _given(**values: Any) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {key: value for key, value in values.items() if value not in (None, ())}


@node.command("slow-disk")
@_ID
@click.argument("delay_ms", metavar="MS", type=click.IntRange(1))
@_disk_options
@for_option
@directory_option
def slow_disk(node_id: int, delay_ms: int, data_dir: Path | None, **where: Any) -> None:
    """Delay every operation of a node's disk by MS."""
    with faults_of(data_dir) as faults:
        print_added(faults.node(node_id).slow_disk(delay_ms, **_given(**where)))


@node.command("break-disk")
@_ID
@click.argument("error", default="EIO")
@_disk_options
@for_option
@directory_option
def break_disk(node_id: int, error: str, data_dir: Path | None, **where: Any) -> None:
    """Fail a node's disk operations with ERROR (default: EIO)."""
    with faults_of(data_dir) as faults:
        print_added(faults.node(node_id).break_disk(error, **_given(**where)))


@node.command("fill-disk")
@_ID
@_path_option
@for_option
@directory_option
def fill_disk(node_id: int, data_dir: Path | None, **where: Any) -> None:
    """Fill a node's disk: writes fail with ENOSPC."""
    with faults_of(data_dir) as faults:
        print_added(faults.node(node_id).fill_disk(**_given(**where)))


@node.command("cut")
@_ID
@click.argument("other", metavar="OTHER")
@click.option(
    "--direction", type=click.Choice(["both", "to", "from"]), default="both", help="To OTHER, from OTHER, or both."
)
@click.option(
    "--mode", type=click.Choice(["blackhole", "refuse"]), help="Drop everything (the default), or return an error."
)
@for_option
@directory_option
def cut(node_id: int, other: str, data_dir: Path | None, **how: Any) -> None:
    """Cut the link between two nodes. OTHER is an id or "controller". Clients keep their connections."""
    with faults_of(data_dir) as faults:
        print_added(faults.node(node_id).cut_off(int(other) if other.isdecimal() else other, **_given(**how)))


@node.command("skew", context_settings={"ignore_unknown_options": True})
@_ID
@click.argument("skew_ms", metavar="MS", type=int)
@for_option
@directory_option
def skew(node_id: int, skew_ms: int, data_dir: Path | None, **when: Any) -> None:
    """Set a node's wall clock ahead by MS (or back, if negative)."""
    with faults_of(data_dir) as faults:
        print_added(faults.node(node_id).skew_clock(skew_ms, **_given(**when)))


@node.command("heal")
@_ID
@directory_option
def heal(node_id: int, data_dir: Path | None) -> None:
    """Remove all faults of a node's disk, links and clock."""
    with faults_of(data_dir) as faults:
        click.echo(f"{faults.node(node_id).heal()} faults removed")
