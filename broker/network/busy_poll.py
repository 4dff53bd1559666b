"""Busy polling: decides whether an idle processor spins briefly before sleeping.

A core that went idle takes long to wake; on a virtual machine, longer than a small request takes. With one client and
one request at a time that is most of the round trip. Spinning costs CPU time until the next request instead, so it pays
where that time is about as short.

Rules
1. A processor spins only after `STREAK` waits in a row that each ended within `max_ns`. One longer wait ends the
   streak. So at most one in `STREAK` spins is in vain.
2. One processor spins at a time: two would only keep each other from the core.
3. A spinning processor yields to all other threads in each round: it gives up the core and the interpreter's lock.
4. A large request ends the streak. To read and append it takes longer than to wake up, and its client needs the core to
   make the next one.
5. While its only request is in progress, a processor spins for the answer, not for the next request: the answering
   thread then need not wake it. With more requests in progress sleeping is better, since the answers come together.

Threads: each processor has a `BusyPoll`; all share the `BusyPollTurn`.
Source: none in Kafka. The kernel does the same for guests (halt polling) and network cards (busy polling).
"""

from __future__ import annotations

from typing import Final

STREAK: Final = 16


class BusyPollTurn:
    """Which processor may spin, and for how long at most."""

    __slots__ = ("holder", "max_ns")

    def __init__(self, max_ns: int) -> None:
        self.max_ns = max_ns  # fixed before start; 0: never
        # Why no lock: two processors that see it free at the same time both spin until one of them waits in vain.
        self.holder: BusyPoll | None = None


class BusyPoll:
    """How long one processor spins before it sleeps."""

    __slots__ = ("_streak", "_turn")

    def __init__(self, turn: BusyPollTurn) -> None:
        self._turn = turn  # fixed before start
        self._streak = 0  # owner: processor

    def budget_ns(self) -> int:
        """Return for how many nanoseconds to spin now; 0 for not at all."""
        if self._streak < STREAK:
            return 0
        turn = self._turn
        if turn.holder is None:
            turn.holder = self
        return turn.max_ns if turn.holder is self else 0

    def waited(self, waited_ns: int) -> None:
        """Note how long the processor waited for work, or spun in vain."""
        if waited_ns < self._turn.max_ns:
            self._streak = min(self._streak + 1, STREAK)
        else:
            self.stop()

    def stop(self) -> None:
        """Reset the streak, and let another processor spin."""
        self._streak = 0
        if self._turn.holder is self:
            self._turn.holder = None
