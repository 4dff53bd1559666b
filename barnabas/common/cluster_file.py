"""`cluster.json`: how other programs find the processes of a local cluster that runs."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from typing import NotRequired, TypedDict

NAME = "cluster.json"
LEFTOVER_TIMEOUT_S = 10


class ProcessEntry(TypedDict):
    """One process; `metrics_port` -1 means that it has no metrics page."""

    role: str
    id: int
    pid: int
    port: int
    metrics_port: int


class ClusterFile(TypedDict):
    """The whole file."""

    bootstrap: str
    supervisor_pid: int
    processes: list[ProcessEntry]
    control_url: NotRequired[str]  # where the cluster as a whole is broken by HTTP, if that is enabled


def write_cluster_file(directory: Path, content: ClusterFile) -> None:
    """Replace the file at once: a reader never sees half of it."""
    temporary = directory / f"{NAME}.tmp"
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(directory / NAME)


def read_cluster_file(directory: Path) -> ClusterFile | None:
    """What the file says, or None where there is none."""
    try:
        content: ClusterFile = json.loads((directory / NAME).read_text())
    except (OSError, ValueError):
        return None
    return content


def open_supervisor(directory: Path, content: ClusterFile) -> int | None:
    """A pidfd of the process that runs the cluster in this directory; None if it is gone (pids are reused).

    Who runs it has the directory's lock open.
    """
    pid = content["supervisor_pid"]
    try:
        descriptor = os.pidfd_open(pid)  # Why first: from here on the pid is this process's
    except OSError:
        return None
    lock = os.path.realpath(directory / "supervisor.lock")
    try:
        if any(os.path.realpath(entry) == lock for entry in Path(f"/proc/{pid}/fd").iterdir()):
            return descriptor
    except OSError:
        pass  # it is gone, or another user's
    os.close(descriptor)
    return None


def is_supervisor(content: ClusterFile) -> bool:
    """Whether the process that wrote the file still runs (and is a Python process: pids are reused)."""
    try:
        return b"python" in Path(f"/proc/{content['supervisor_pid']}/cmdline").read_bytes()
    except OSError:
        return False


def process_state(pid: int) -> str:
    """Whether a process runs, is paused (SIGSTOP) or dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "dead"
    return {"T": "paused", "t": "paused", "Z": "dead", "X": "dead"}.get(state, "running")


def await_leftover(pid: int, directory: Path) -> None:
    """Wait until a process that was started for this directory, and whose supervisor is dead, is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes():  # else somebody else's by now
            select.select([descriptor], [], [], LEFTOVER_TIMEOUT_S)
    except FileNotFoundError:
        return  # it ended meanwhile
    finally:
        os.close(descriptor)
