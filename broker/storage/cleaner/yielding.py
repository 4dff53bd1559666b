"""Makes the cleaner yield to the threads that serve requests, which share the interpreter's lock with it.

A computing thread is asked for the lock only after 5 ms (`sys.getswitchinterval`), and a request needs the lock again
after each of its system calls. Without yielding, one cleaner thread took 97 % of a broker's throughput of small
requests (`python -m benchmarks.compaction_load`). So the cleaner works in slices. After each slice it pauses if a
request was taken during it or since. An idle broker cleans at full speed; a busy one at a seventh of it at least, so
that its logs do not grow forever.

Threads: owned by the thread that yields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.clock import Clock

SLICE_NS: Final = 500_000
PAUSE_MS: Final = 3.0


def no_traffic() -> int:
    """The request count of a broker without requests."""
    return 0


class Yielding:
    """Decides when to pause; see the module. `traffic` returns a number that changes with each request."""

    def __init__(self, traffic: Callable[[], int], clock: Clock) -> None:
        self._traffic = traffic  # fixed before start
        self._clock = clock  # fixed before start
        self._began_ns = 0  # when the slice began
        self._seen = 0  # the traffic when the last slice ended

    def begin(self) -> None:
        """Begin a slice."""
        self._began_ns = self._clock.monotonic_ns()

    def pause_ms(self) -> float:
        """Return how long to pause after a piece of work; 0 for most. The caller calls `begin` after a pause."""
        if self._clock.monotonic_ns() - self._began_ns < SLICE_NS:
            return 0
        seen = self._traffic()
        if seen != self._seen:
            self._seen = seen
            return PAUSE_MS
        self.begin()
        return 0
