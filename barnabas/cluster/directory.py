"""The directory of a local cluster: its lock, the ports reserved for it, and cluster.json."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.node import Node
from barnabas.common.processes.cluster_file import (
    LOCK_NAME,
    NAME,
    ClusterFile,
    ProcessEntry,
    await_leftover,
    read_cluster_file,
    write_cluster_file,
)
from barnabas.common.processes.ports import reserve_port


@dataclass(slots=True)
class ClusterDirectory:
    """A directory in which one process at a time runs a cluster."""

    path: Path
    _lock: int | None = field(default=None, init=False)  # descriptor of supervisor.lock, while it is locked
    _reserved: list[socket.socket] = field(default_factory=list, init=False)  # bound to the ports that were drawn

    @property
    def is_taken(self) -> bool:
        """Whether this object holds the directory's lock."""
        return self._lock is not None

    def take(self) -> None:
        """Create the directory, lock it, and wait for processes of a killed supervisor to end. Raises ClusterError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ClusterError(f"cannot use {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            running = read_cluster_file(self.path)
            pid = f" (pid {running['supervisor_pid']})" if running is not None else ""
            raise ClusterError(f"{self.path} is in use by a running cluster{pid}") from error
        self._lock = lock
        try:
            self._await_leftovers()
        except BaseException:
            self.release()
            raise

    def _await_leftovers(self) -> None:
        """Processes of a supervisor that was just killed may still be ending, and hold the data until then."""
        left = read_cluster_file(self.path)
        for process in left["processes"] if left is not None else ():
            await_leftover(process["pid"], self.path)

    def draw_port(self, avoid: Collection[int] = ()) -> int:
        """Return a free port that no other cluster draws until `release`."""
        port, reservation = reserve_port(avoid)
        self._reserved.append(reservation)
        return port

    def release(self) -> None:
        """Unlock the directory and free the reserved ports."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        while self._reserved:
            self._reserved.pop().close()

    def write_cluster_file(self, bootstrap: str, nodes: Iterable[Node], control_url: str, command_config: str) -> None:
        """Write the processes that were started to cluster.json."""
        processes = [_entry(node, node.child.pid) for node in nodes if node.child is not None]
        content: ClusterFile = {"bootstrap": bootstrap, "supervisor_pid": os.getpid(), "processes": processes}
        if control_url:
            content["control_url"] = control_url
        if command_config:
            content["command_config"] = command_config
        write_cluster_file(self.path, content)

    def remove_cluster_file(self) -> None:
        """Remove cluster.json: no cluster runs here now."""
        (self.path / NAME).unlink(missing_ok=True)


def _entry(node: Node, pid: int) -> ProcessEntry:
    entry: ProcessEntry = {
        "role": node.role,
        "id": node.node_id,
        "pid": pid,
        "port": node.port,
        "metrics_port": node.metrics_port,
    }
    if node.controller_port:
        entry["controller_port"] = node.controller_port
    return entry
