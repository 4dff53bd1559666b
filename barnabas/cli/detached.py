"""`barnabas up -d`, `barnabas status` and `barnabas down`: local clusters that run in the background.

A detached cluster is an ordinary `barnabas up` in a session of its own, whose output goes to DIR/supervisor.log. Which
clusters run is told by the pointers of `barnabas.cli.running`; which process runs one by DIR/cluster.json. A file that
a killed supervisor left is not believed: its process must have the directory's lock open.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from barnabas.cli.errors import UserError
from barnabas.cli.ready import Ready
from barnabas.cli.running import chosen_directory, directory_option, running_directories
from barnabas.common import interpreter
from barnabas.common.cluster_file import ClusterFile, open_supervisor, process_state, read_cluster_file
from barnabas.control import control_path

LOG_NAME = "supervisor.log"
POLL_S = 0.05
STOP_TIMEOUT_S = 70.0  # brokers have 30 s, then the controller has as long
KILL_TRIES, KILL_TRY_S = 10, 1.0
COLUMNS = ("node", "role", "pid", "state", "address", "page", "directory")


# --- up -d


def start(options: Sequence[str], directory: Path, *, is_temporary: bool) -> int:
    """Start `barnabas up OPTIONS` in the background; return when clients can use the cluster.

    Raises UserError with its reason if it ends before.
    """
    command = [*interpreter.own_command("barnabas.cli"), "up", *options, "--data-dir", str(directory)]
    if is_temporary:
        command.append("--temporary")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / LOG_NAME).open("ab") as log, (directory / LOG_NAME).open("rb") as said:
            said.seek(0, os.SEEK_END)
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            ready = _await_ready(child, said)
    except OSError as error:
        raise UserError(f"cannot use {directory}: {error.strerror}") from error
    if sys.stdout.isatty():
        click.echo("\n".join(ready.words(directory, is_temporary=is_temporary, is_detached=True)))
    else:
        click.echo(ready.line())
    return 0


def _await_ready(child: subprocess.Popen[bytes], said: BinaryIO) -> Ready:
    """Wait for the ready line in what the child says. Lines before it are warnings, and are passed on."""
    text, line = b"", ""
    try:
        while True:
            has_ended = child.poll() is not None  # Why before the look: what it said last is seen then
            *lines, text = (text + said.read()).split(b"\n")
            for each in lines:
                if line:
                    click.echo(line, err=True)
                line = each.decode(errors="replace")
                ready = Ready.parse(line)
                if ready is not None:
                    return ready
            if has_ended:
                raise UserError(line.removeprefix("barnabas: ") or f"it ended with exit code {child.returncode}")
            select.select([], [], [], POLL_S)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise


# --- status


@click.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(data_dir: Path | None, as_json: bool) -> None:
    """Show the local clusters that run: each process, its state, where clients and browsers find it.

    Exits 1 if none runs.
    """
    from barnabas.cli.output import show  # Why here: `up` needs nothing of it

    directories = running_directories() if data_dir is None else [data_dir.absolute()]
    rows = [row for directory in directories for row in _rows(directory)]
    if not rows:
        raise UserError(_nothing_runs(data_dir))
    show(rows, COLUMNS, as_json=as_json)


def _rows(directory: Path) -> list[dict[str, Any]]:
    """A row a process of the cluster that runs in a directory; none if none does."""
    content = read_cluster_file(directory)
    descriptor = None if content is None else open_supervisor(directory, content)
    if content is None or descriptor is None:
        return []
    os.close(descriptor)
    brokers = iter(content["bootstrap"].split(","))
    rows = [_row("supervisor", None, content["supervisor_pid"], None, None, directory)]
    for process in content["processes"]:
        is_broker = process["role"] == "broker"
        address = next(brokers, None) if is_broker else f"127.0.0.1:{process['port']}"
        page = f"http://127.0.0.1:{process['metrics_port']}/live" if process["metrics_port"] > 0 else None
        rows.append(_row(process["role"], process["id"], process["pid"], address, page, directory))
    return rows


def _row(role: str, node: int | None, pid: int, address: str | None, page: str | None, directory: Path) -> Any:
    return dict(zip(COLUMNS, (node, role, pid, process_state(pid), address, page, str(directory)), strict=True))


# --- down


@click.command()
@directory_option
@click.option("--kill", "kills", is_flag=True, help="Kill the processes at once (SIGKILL), as if the power had failed.")
def down(data_dir: Path | None, kills: bool) -> None:
    """Stop the local cluster that runs: the brokers in a controlled way, then the controller."""
    if data_dir is None and not running_directories():
        raise UserError(_nothing_runs(None))
    directory = chosen_directory(data_dir)
    content = read_cluster_file(directory)
    descriptor = None if content is None else open_supervisor(directory, content)
    if descriptor is None:
        raise UserError(_nothing_runs(directory, content))
    if not control_path(directory).exists():  # a test's own process, or an `up` that is still starting
        os.close(descriptor)
        raise UserError(f"the cluster in {directory} is not, or not yet, run by a `barnabas up`")
    try:
        _stop(descriptor, kills=kills)
    finally:
        os.close(descriptor)
    click.echo(f"stopped the cluster in {directory}")


def _stop(supervisor: int, *, kills: bool) -> None:
    """Signal a supervisor (its pidfd), and wait until it is gone. Its second signal kills all processes."""
    signal.pidfd_send_signal(supervisor, signal.SIGTERM)
    if _has_ended(supervisor, POLL_S if kills else STOP_TIMEOUT_S):
        return
    for _ in range(KILL_TRIES):  # Why several: signals that come at once are one
        signal.pidfd_send_signal(supervisor, signal.SIGTERM)
        if _has_ended(supervisor, KILL_TRY_S):
            return
    raise UserError(f"the supervisor did not end within {KILL_TRIES * KILL_TRY_S:.0f} s")


def _has_ended(process: int, timeout_s: float) -> bool:
    ended, _, _ = select.select([process], [], [], timeout_s)
    return bool(ended)


def _nothing_runs(directory: Path | None, content: ClusterFile | None = None) -> str:
    if directory is None:
        return "no local cluster runs; start one: barnabas up"
    gone = f": its supervisor (pid {content['supervisor_pid']}) is gone" if content is not None else ""
    return f"no cluster runs in {directory}{gone}"
