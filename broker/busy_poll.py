"""Whether a processor that has nothing to do rather looks again and again for a while than sleeps.

A core that went idle takes long to come back, on a virtual machine longer than a small request takes: with one client
and one request at a time that is most of the way there and back. Looking again and again costs the time until the next
request instead, so it pays where that is about as short.

Rules
1. Only who was asked again within `max_ns` for `STREAK` times in a row expects it once more; one time that it took
   longer ends that. So at most one in so many waits is in vain.
2. One processor at a time: two would only keep each other from the core.
3. Who looks again and again lets everybody else go first each time: the core and the interpreter's lock are theirs.
4. While its only request is in hand it does not look for the next one, but for the answer: whoever has it need not
   wake the processor then. With more in hand sleeping is better: the answers come together.

Threads: each processor has a `BusyPoll`; all share the `BusyPollTurn`.
Source: none in Kafka; what the kernel does for guests (halt polling) and for network cards (busy polling).
"""

from __future__ import annotations

import ctypes
from typing import Final

STREAK: Final = 16

#: Why not os.sched_yield: it keeps the interpreter's lock (until Python 3.13), for which the others would wait.
yield_core = ctypes.CDLL(None).sched_yield


class BusyPollTurn:
    """Who looks again and again, and how long at most."""

    __slots__ = ("holder", "max_ns")

    def __init__(self, max_ns: int) -> None:
        self.max_ns = max_ns  # fixed before start; 0: never
        # Why no lock: two that see it free at the same moment both look, until one of them waits in vain.
        self.holder: BusyPoll | None = None


class BusyPoll:
    """How long one processor looks for events before it sleeps."""

    __slots__ = ("_streak", "_turn")

    def __init__(self, turn: BusyPollTurn) -> None:
        self._turn = turn  # fixed before start
        self._streak = 0  # owner: processor

    def budget_ns(self) -> int:
        """Return for how long it pays now; 0 where it does not."""
        if self._streak < STREAK:
            return 0
        turn = self._turn
        if turn.holder is None:
            turn.holder = self
        return turn.max_ns if turn.holder is self else 0

    def waited(self, waited_ns: int) -> None:
        """Learn how long it took until there was something to do, or how long it was looked for in vain."""
        if waited_ns < self._turn.max_ns:
            self._streak = min(self._streak + 1, STREAK)
        else:
            self.stop()

    def stop(self) -> None:
        """Begin anew, and leave the turn to others."""
        self._streak = 0
        if self._turn.holder is self:
            self._turn.holder = None
