"""Whether a processor that has nothing to do rather looks again and again for a while than sleeps.

A core that went idle takes long to come back, on a virtual machine longer than a small request takes: with one client
and one request at a time that is most of the way there and back. Looking again and again costs the time until the next
request instead, so it pays where that is about as short.

Rules
1. Only who was asked again within `max_ns` for `STREAK` times in a row expects it once more; one time that it took
   longer ends that. So at most one in so many waits is in vain.
2. Only while nobody in the process has a request in hand: who carries one out needs the core, and the interpreter.
3. Who looks again and again lets everybody else go first each time (`sched_yield`).

Threads: one processor has it.
Source: none in Kafka; what the kernel does for guests (halt polling) and for network cards (busy polling).
"""

from __future__ import annotations

from typing import Final

STREAK: Final = 16


class BusyPoll:
    """How long one processor looks for events before it sleeps."""

    __slots__ = ("_max_ns", "_streak")

    def __init__(self, max_ns: int) -> None:
        self._max_ns = max_ns  # fixed before start; 0: never
        self._streak = 0  # owner: processor

    def budget_ns(self) -> int:
        """Return for how long it pays now; 0 where it does not."""
        return self._max_ns if self._streak >= STREAK else 0

    def waited(self, waited_ns: int) -> None:
        """Learn how long it took until there was something to do."""
        self._streak = min(self._streak + 1, STREAK) if waited_ns <= self._max_ns else 0
