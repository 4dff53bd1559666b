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


def is_supervisor(content: ClusterFile) -> bool:
    """Whether the process that wrote the file still runs (and is a Python process: pids are reused)."""
    try:
        return b"python" in Path(f"/proc/{content['supervisor_pid']}/cmdline").read_bytes()
    except OSError:
        return False


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
