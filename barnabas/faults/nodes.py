"""Faults of whole nodes: stopped or paused processes, disks, links, clocks.

    node = faults.node(1)
    node.kill(); node.start()                       # SIGKILL; started again on the same data, ready for clients
    with node.paused(): ...                         # SIGSTOP, SIGCONT
    with node.slow_disk(50, operations=["fsync"]): ...
    with node.cut_off(2), node.cut_off("controller"): ...
    node.heal()                                     # removes all faults of this node's disk, links and clock

The starter of a process acts on it: a `LocalCluster` in this process, or the supervisor of its directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from barnabas.faults.definition import DISK_ACTIONS, NODE_ACTIONS, Fault
from barnabas.faults.handle import FaultHandle

#: The actions on a process; the methods of NodeFaults describe them.
PROCESS_ACTIONS = ("kill", "stop", "start", "pause", "resume")


class ClusterFaults(Protocol):
    """The faults of a cluster, as far as `NodeFaults` uses them: `Faults` of client.py."""

    def add(self, fault: Fault) -> FaultHandle:
        """See Faults."""

    def list(self) -> list[dict[str, Any]]:
        """See Faults."""

    def remove(self, fault_id: str, node: int | None = None) -> int:
        """See Faults."""

    def act(self, action: str, node_id: int) -> str:
        """See Faults."""


class NodeFaults:
    """One node of a cluster, by its id; 100 is the controller of a local cluster.

    Actions on the process raise ClusterError. Methods that add a fault raise FaultError or FaultsUnavailableError, and
    return its handle, a context manager that removes it. `when` are the keys for its times (`for_ms`, `times`, …).
    """

    def __init__(self, faults: ClusterFaults, node_id: int) -> None:
        self._faults = faults
        self.node_id = node_id

    # The process

    def kill(self) -> str:
        """Send SIGKILL."""
        return self._faults.act("kill", self.node_id)

    def stop(self) -> str:
        """Send SIGTERM, for a controlled shutdown; return when the process has ended."""
        return self._faults.act("stop", self.node_id)

    def start(self) -> str:
        """Start it again on the same data, without faults; return when clients can use it."""
        return self._faults.act("start", self.node_id)

    def pause(self) -> str:
        """Send SIGSTOP."""
        return self._faults.act("pause", self.node_id)

    def resume(self) -> str:
        """Send SIGCONT."""
        return self._faults.act("resume", self.node_id)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process while the block runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextlib.contextmanager
    def down(self, *, controlled: bool = False) -> Iterator[None]:
        """Kill (or stop) the process while the block runs, then start it again."""
        if controlled:
            self.stop()
        else:
            self.kill()
        try:
            yield
        finally:
            self.start()

    # Its disk, links and clock

    def slow_disk(self, delay_ms: int, **where_and_when: Any) -> FaultHandle:
        """Delay file operations: those of `operations`, on paths that match `path`."""
        return self._add(disk_delay_ms=delay_ms, **where_and_when)

    def break_disk(self, error: str = "EIO", **where_and_when: Any) -> FaultHandle:
        """Fail file operations with an error of the operating system."""
        return self._add(disk_error=error, **where_and_when)

    def fill_disk(self, **where_and_when: Any) -> FaultHandle:
        """Fail operations that need space with ENOSPC, and report no free space."""
        return self._add(disk_full=True, **where_and_when)

    def cut_off(self, other: int | str, direction: str = "both", **when: Any) -> FaultHandle:
        """Cut the link to another node, or to "controller": `direction` is to, from or both.

        With `mode="refuse"` requests fail at once. Otherwise nothing comes back, and the sender waits for its timeout.
        """
        return self._add(cut=other, direction=direction, **when)

    def skew_clock(self, skew_ms: int, **when: Any) -> FaultHandle:
        """Shift the node's time of day."""
        return self._add(clock_skew_ms=skew_ms, **when)

    def heal(self) -> int:
        """Remove every fault of this node's disk, links (at both ends) and clock; return how many there were."""
        removed = 0
        for state in self._faults.list():
            fault = Fault.parse(state["fault"])
            is_ours = state["node"] == self.node_id and fault.action in DISK_ACTIONS | NODE_ACTIONS
            if is_ours or fault.cut == self.node_id:
                removed += self._faults.remove(state["id"], state["node"])
        return removed

    def _add(self, **fault: Any) -> FaultHandle:
        return self._faults.add(Fault(node=self.node_id, **fault))
