"""`barnabas up -d`, `barnabas status` and `barnabas down`: local clusters in the background.

A detached cluster is an ordinary `barnabas up` in its own session. Its output goes to DIR/supervisor.log. The pointers
of `barnabas.cli.local.running` name the running clusters; DIR/cluster.json names the supervisor of one. A killed
supervisor leaves that file behind, so the process in it must also hold the directory's lock.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from barnabas.cli.errors import UserError
from barnabas.cli.local.ready import Ready
from barnabas.cli.local.running import chosen_directory, directory_option, named_directory, running_directories
from barnabas.cluster.processes import write_properties
from barnabas.common.pages.page_access import of_directory
from barnabas.common.processes import interpreter
from barnabas.common.processes.cluster_file import ClusterFile, open_supervisor, process_state, read_cluster_file
from barnabas.control import control_path

if TYPE_CHECKING:
    from barnabas.cli.output import Row

LOG_NAME = "supervisor.log"
CONFIG_NAME = "up.properties"
POLL_S = 0.05
STOP_TIMEOUT_S = 70.0  # 30 s for the brokers, then 30 s for the controller, and a margin
KILL_TRIES, KILL_TRY_S = 10, 1.0
COLUMNS = ("node", "role", "pid", "state", "address", "page", "directory")


# --- up -d


def start(options: Sequence[str], config: Mapping[str, str], directory: Path, *, is_temporary: bool) -> int:
    """Start `barnabas up OPTIONS` with `config` in the background; return when clients can use the cluster.

    Raises UserError, with the reason, if it ends before that.
    """
    command = [*interpreter.own_command("barnabas.cli"), "up", *options, "--data-dir", str(directory)]
    if is_temporary:
        command.append("--temporary")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if config:  # Why a file: everybody sees the arguments of a process
            write_properties(directory / CONFIG_NAME, config)
            command += ["--config-file", str(directory / CONFIG_NAME)]
        with (directory / LOG_NAME).open("ab") as log, (directory / LOG_NAME).open("rb") as output:
            output.seek(0, os.SEEK_END)
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            ready = _await_ready(child, output)
    except OSError as error:
        raise UserError(f"cannot use {directory}: {error.strerror}") from error
    if sys.stdout.isatty():
        click.echo("\n".join(ready.summary(directory, is_temporary=is_temporary, is_detached=True)))
    else:
        click.echo(ready.line())
    return 0


def _await_ready(child: subprocess.Popen[bytes], output: BinaryIO) -> Ready:
    """Wait for the ready line in the child's output. Lines before it are warnings, and are printed."""
    text, line = b"", ""
    try:
        while True:
            has_ended = child.poll() is not None  # Why before read(): it then returns the child's last output, too
            *lines, text = (text + output.read()).split(b"\n")
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
    """Show the running local clusters, or the named one: each process, its state, its address and its page.

    Exits 1 if none runs.
    """
    from barnabas.cli.output import show  # Why here: `up` does not need it

    named = named_directory(data_dir)
    directories = running_directories() if named is None else [named]
    rows = [row for directory in directories for row in _rows(directory)]
    if not rows:
        raise UserError(_nothing_runs(named))
    show(rows, COLUMNS, as_json=as_json)


def _rows(directory: Path) -> list[Row]:
    """One row for each process of the cluster that runs in a directory; none if no cluster runs there."""
    content = read_cluster_file(directory)
    descriptor = None if content is None else open_supervisor(directory, content)
    if content is None or descriptor is None:
        return []
    os.close(descriptor)
    brokers = iter(content["bootstrap"].split(","))
    scheme = of_directory(directory).scheme
    rows = [_row("supervisor", None, content["supervisor_pid"], None, None, directory)]
    for process in content["processes"]:
        is_broker = process["role"] == "broker"
        address = next(brokers, None) if is_broker else f"127.0.0.1:{process['port']}"
        page = f"{scheme}://127.0.0.1:{process['metrics_port']}/live" if process["metrics_port"] > 0 else None
        role = "broker,controller" if "controller_port" in process else process["role"]
        rows.append(_row(role, process["id"], process["pid"], address, page, directory))
    return rows


def _row(role: str, node: int | None, pid: int, address: str | None, page: str | None, directory: Path) -> Row:
    return dict(zip(COLUMNS, (node, role, pid, process_state(pid), address, page, str(directory)), strict=True))


# --- down


@click.command()
@directory_option
@click.option("--kill", "kills", is_flag=True, help="Kill the processes (SIGKILL), as in a power failure.")
def down(data_dir: Path | None, kills: bool) -> None:
    """Stop the running local cluster: the brokers in a controlled shutdown, then the controller."""
    if named_directory(data_dir) is None and not running_directories():
        raise UserError(_nothing_runs(None))
    directory = chosen_directory(data_dir)
    content = read_cluster_file(directory)
    descriptor = None if content is None else open_supervisor(directory, content)
    if descriptor is None:
        raise UserError(_nothing_runs(directory, content))
    if not control_path(directory).exists():  # a test's own process, or an `up` that is still starting
        os.close(descriptor)
        raise UserError(f"the cluster in {directory} was not started by `barnabas up`, or is still starting")
    try:
        _stop(descriptor, kills=kills)
    finally:
        os.close(descriptor)
    click.echo(f"stopped the cluster in {directory}")


def _stop(supervisor: int, *, kills: bool) -> None:
    """Send SIGTERM to a supervisor (its pidfd) and wait until it has ended. A second signal kills all processes."""
    signal.pidfd_send_signal(supervisor, signal.SIGTERM)
    if _has_ended(supervisor, POLL_S if kills else STOP_TIMEOUT_S):
        return
    for _ in range(KILL_TRIES):  # Why several: two signals that arrive together count as one
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
    gone = f": its supervisor (pid {content['supervisor_pid']}) has ended" if content is not None else ""
    return f"no cluster runs in {directory}{gone}"
