"""Faults of whole nodes: processes that end or stand still, disks, links, clocks.

    node = faults.node(1)
    node.kill(); node.start()                       # SIGKILL; back on the same data, once clients can use it
    with node.paused(): ...                         # SIGSTOP, SIGCONT
    with node.slow_disk(50, operations=["fsync"]): ...
    with node.cut_off(2), node.cut_off("controller"): ...
    node.heal()                                     # no disk, link or clock of this node is wrong any more

Processes are acted on by whoever started them: a `LocalCluster` here, or the supervisor of its directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from barnabas.faults.definition import DISK_ACTIONS, NODE_ACTIONS, Fault

if TYPE_CHECKING:
    from barnabas.faults.client import FaultHandle, Faults

#: What can be done to a process; the methods of NodeFaults say what each is.
PROCESS_ACTIONS = ("kill", "stop", "start", "pause", "resume")


class NodeFaults:
    """One node of a cluster, by its id; 100 is the controller of a local cluster.

    What acts on the process raises ClusterError, what adds a fault FaultError or FaultsUnavailableError. Each fault is
    a handle, and a context manager that removes it; `when` are the keys that say when it fires (`for_ms`, `times`, …).
    """

    def __init__(self, faults: Faults, node_id: int) -> None:
        self._faults = faults
        self.node_id = node_id

    # The process

    def kill(self) -> str:
        """SIGKILL."""
        return self._faults.act("kill", self.node_id)

    def stop(self) -> str:
        """SIGTERM: a controlled shutdown; returns when the process is gone."""
        return self._faults.act("stop", self.node_id)

    def start(self) -> str:
        """Start it again on the same data; returns when clients can use it. Its faults do not come back."""
        return self._faults.act("start", self.node_id)

    def pause(self) -> str:
        """SIGSTOP."""
        return self._faults.act("pause", self.node_id)

    def resume(self) -> str:
        """SIGCONT."""
        return self._faults.act("resume", self.node_id)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Standing still for as long as the block runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextlib.contextmanager
    def down(self, *, controlled: bool = False) -> Iterator[None]:
        """Killed (or stopped) for as long as the block runs, then started again."""
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
        """Each operation of the file layer takes so much longer: those of `operations`, on paths like `path`."""
        return self._add(disk_delay_ms=delay_ms, **where_and_when)

    def break_disk(self, error: str = "EIO", **where_and_when: Any) -> FaultHandle:
        """Operations of the file layer fail with an error of the operating system."""
        return self._add(disk_error=error, **where_and_when)

    def fill_disk(self, **where_and_when: Any) -> FaultHandle:
        """What needs room fails with ENOSPC, and no room is told."""
        return self._add(disk_full=True, **where_and_when)

    def cut_off(self, other: int | str, direction: str = "both", **when: Any) -> FaultHandle:
        """Cut the link to another node ("controller" is one): `direction` to it, from it, or both.

        `mode="refuse"` fails at once, else nothing comes back and who sends waits for its time to be out.
        """
        return self._add(cut=other, direction=direction, **when)

    def skew_clock(self, skew_ms: int, **when: Any) -> FaultHandle:
        """Add so much to what the node takes for the time of day."""
        return self._add(clock_skew_ms=skew_ms, **when)

    def heal(self) -> int:
        """Remove every fault of this node's disk, links and clock, at both ends; returns how many there were."""
        removed = 0
        for state in self._faults.list():
            fault = Fault.parse(state["fault"])
            is_ours = state["node"] == self.node_id and fault.action in DISK_ACTIONS | NODE_ACTIONS
            if is_ours or fault.cut == self.node_id:
                removed += self._faults.remove(state["id"], state["node"])
        return removed

    def _add(self, **fault: Any) -> FaultHandle:
        return self._faults.add(Fault(node=self.node_id, **fault))
