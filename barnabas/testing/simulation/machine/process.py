"""A simulated process: the tasks, clocks and descriptors that belong together, and end together.

Each process has an address of its own, as a machine has. A restart is another `Process` with the same name and address.
"""

from __future__ import annotations

import errno
import heapq
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import random

#: The first descriptor; lower numbers belong to the interpreter that runs the simulation.
FIRST_DESCRIPTOR: Final = 1000
STEP_NS: Final = 1_000
WALL_START_NS: Final = 1_700_000_000_000_000_000


class Descriptor(Protocol):
    """The object behind a file descriptor."""

    def release(self) -> None:
        """Release it: its last descriptor was closed."""


class Scheduling(Protocol):
    """The part of the scheduler that a process uses. Why not the scheduler itself: it imports this module."""

    random: random.Random
    now_ns: int

    def end(self, process: Process) -> None:
        """Give the tasks of a process no turn any more."""


class Process:
    """See the module. Owner: the scheduler."""

    def __init__(self, scheduler: Scheduling, name: str, address: str, *, step_ns: int = STEP_NS) -> None:
        self.scheduler = scheduler
        self.name = name
        self.address = address
        self.step_ns = step_ns  # virtual time of one turn of a task: how slow its processor is
        self.wall_offset_ns = 0  # how much its wall clock is ahead
        self.monotonic_start_ns = int(scheduler.random.random() * (1 << 50)) + (1 << 40)  # two machines never agree
        self.is_paused = False
        self.is_dead = False
        self.held: list[Any] = []  # runnable tasks of a paused process
        self.descriptors: dict[int, Descriptor] = {}
        self._free: list[int] = []  # a heap of closed numbers below _next
        self._next = FIRST_DESCRIPTOR

    def monotonic_ns(self) -> int:
        """Return what its monotonic clock shows."""
        return self.monotonic_start_ns + self.scheduler.now_ns

    def wall_ns(self) -> int:
        """Return what its wall clock shows."""
        return WALL_START_NS + self.scheduler.now_ns + self.wall_offset_ns

    def open(self, opened: Descriptor) -> int:
        """Return the lowest free descriptor for this."""
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number = self._next
            self._next += 1
        self.descriptors[number] = opened
        return number

    def close(self, number: int) -> None:
        """Close a descriptor; raises OSError if it is not open."""
        found = self.find(number)
        del self.descriptors[number]
        heapq.heappush(self._free, number)
        if all(other is not found for other in self.descriptors.values()):
            found.release()

    def find(self, number: int) -> Descriptor:
        """Return what a descriptor refers to; raises OSError if it is not open."""
        found = self.descriptors.get(number)
        if found is None:
            raise OSError(errno.EBADF, f"descriptor {number} of {self.name} is not open")
        return found

    def kill(self) -> None:
        """End the process as SIGKILL does: the kernel closes its descriptors."""
        self.is_dead = True
        found = list(self.descriptors.values())
        self.descriptors.clear()
        for each in dict.fromkeys(found):
            each.release()
        self.scheduler.end(self)
