"""`cluster.json`: the file by which other programs find the processes of a running local cluster."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from typing import NotRequired, TypedDict

NAME = "cluster.json"
LOCK_NAME = "supervisor.lock"  # beside it; locked by the one process that runs a cluster in the directory
LEFTOVER_TIMEOUT_S = 10


class ProcessEntry(TypedDict):
    """One process; `metrics_port` -1: it has no metrics page."""

    role: str
    id: int
    pid: int
    port: int
    metrics_port: int
    controller_port: NotRequired[int]  # of a broker that is a controller, too


class ClusterFile(TypedDict):
    """The whole file."""

    bootstrap: str
    supervisor_pid: int
    processes: list[ProcessEntry]
    command_config: NotRequired[str]  # the file for --command-config, if the cluster is secured
    control_url: NotRequired[str]  # URL of the control page, if faults are enabled


def write_cluster_file(directory: Path, content: ClusterFile) -> None:
    """Replace the file atomically."""
    temporary = directory / f"{NAME}.tmp"
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(directory / NAME)


def read_cluster_file(directory: Path) -> ClusterFile | None:
    """Return the content of the file; None if there is no valid one."""
    try:
        content: ClusterFile = json.loads((directory / NAME).read_text())
    except (OSError, ValueError):
        return None
    return content


def open_supervisor(directory: Path, content: ClusterFile) -> int | None:
    """Return a pidfd of the supervisor of this directory; None if it has ended.

    Pids are reused, so the process must also have the directory's lock file open.
    """
    pid = content["supervisor_pid"]
    try:
        descriptor = os.pidfd_open(pid)  # Why first: from here on, the pid cannot be reused unnoticed
    except OSError:
        return None
    lock = os.path.realpath(directory / LOCK_NAME)
    try:
        if any(os.path.realpath(entry) == lock for entry in Path(f"/proc/{pid}/fd").iterdir()):
            return descriptor
    except OSError:
        pass  # it has ended, or belongs to another user
    os.close(descriptor)
    return None


def is_supervisor(content: ClusterFile) -> bool:
    """Return whether the process that wrote the file still runs. Pids are reused, so it must be a Python process."""
    try:
        return b"python" in Path(f"/proc/{content['supervisor_pid']}/cmdline").read_bytes()
    except OSError:
        return False


def process_state(pid: int) -> str:
    """Return the state of a process: running, paused (SIGSTOP) or dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "dead"
    return {"T": "paused", "t": "paused", "Z": "dead", "X": "dead"}.get(state, "running")


def await_leftover(pid: int, directory: Path) -> None:
    """Wait until a process of this directory, whose supervisor is dead, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes():  # else the pid was reused
            select.select([descriptor], [], [], LEFTOVER_TIMEOUT_S)
    except FileNotFoundError:
        return  # it has ended
    finally:
        os.close(descriptor)
