"""Time: the only module that reads a clock, but for `clocks.wall`, the compiled part of a server's clock.

Rules
1. No other module calls the `time` module. Components take a `Clock`, so that tests can control the time.
2. Wall time is for stored or shown times (timestamps of records, log lines). Durations and deadlines use the monotonic
   clock, which never jumps.

*Threads*: any thread may read any clock.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """The source of time of a component."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never goes back; only differences have a meaning."""

    def monotonic_ms(self) -> int:
        """Return milliseconds of the same clock as `monotonic_ns`."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // NS_PER_MS

    def monotonic_ms(self) -> int:
        """See Clock."""
        return time.monotonic_ns() // NS_PER_MS


class MovedClock:
    """Another clock plus an offset that only grows: the time of a node whose clock is moved on purpose."""

    __slots__ = ("_base", "_offset_ns")

    def __init__(self, base: Clock, offset_ms: int = 0) -> None:
        self._base = base  # fixed before start
        self._offset_ns = offset_ms * NS_PER_MS  # replaced whole; one thread at a time calls `move_to`

    def wall_ms(self) -> int:
        """See Clock."""
        return self._base.wall_ms() + self._offset_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        """See Clock."""
        return self._base.monotonic_ns() + self._offset_ns

    def monotonic_ms(self) -> int:
        """See Clock."""
        return self.monotonic_ns() // NS_PER_MS

    @property
    def offset_ms(self) -> int:
        """By how much the clock is ahead of the one below it."""
        return self._offset_ns // NS_PER_MS

    def move_to(self, offset_ms: int) -> None:
        """Replace the offset by a larger one, or the same."""
        assert offset_ms >= self.offset_ms, "a clock does not go back"
        self._offset_ns = offset_ms * NS_PER_MS


class FakeClock:
    """A clock that only a test advances."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        self._lock = threading.Lock()  # a leaf: both readings advance together
        self._wall_ns = wall_ms * NS_PER_MS  # guarded by: _lock
        self._monotonic_ns = monotonic_ms * NS_PER_MS  # guarded by: _lock

    def wall_ms(self) -> int:
        """See Clock."""
        return self._wall_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        """See Clock."""
        return self._monotonic_ns

    def monotonic_ms(self) -> int:
        """See Clock."""
        return self._monotonic_ns // NS_PER_MS

    def advance_ms(self, ms: int) -> None:
        """Move both readings forward by `ms` milliseconds."""
        self.advance_ns(ms * NS_PER_MS)

    def advance_ns(self, ns: int) -> None:
        """Move both readings forward by `ns` nanoseconds."""
        assert ns >= 0, "a clock does not go back"
        with self._lock:
            self._wall_ns += ns
            self._monotonic_ns += ns
