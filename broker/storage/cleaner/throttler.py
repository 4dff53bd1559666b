"""Limits the input and output of all cleaner threads together to a rate.

The bytes of all threads are counted. At each check, at least `CHECK_INTERVAL_MS` after the last, a thread that is ahead
of the rate gets a time to wait. It waits on its own event, so that it can be woken.

Threads: any. Source: Kafka's Throttler, 4.3.
"""

from __future__ import annotations

import threading

from barnabas.common.clock import Clock

CHECK_INTERVAL_MS = 300
MS_PER_S = 1000


class Throttler:
    """A rate in bytes a second, which may be changed at any time."""

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self.bytes_per_second = bytes_per_second  # replaced by dynamic configuration
        self._clock = clock
        self._lock = threading.Lock()
        self._observed = 0.0  # bytes since the period began; guarded by: _lock
        self._began_ms = clock.monotonic_ms()  # guarded by: _lock

    def wait_ms(self, count: int) -> int:
        """Count `count` bytes; return how long to wait before the next ones."""
        with self._lock:
            self._observed += count
            elapsed_ms = self._clock.monotonic_ms() - self._began_ms
            if elapsed_ms < CHECK_INTERVAL_MS or not self._observed:
                return 0
            due_ms = round(self._observed / self.bytes_per_second * MS_PER_S)
            # Why: the wait that is returned now must not be credited to later bytes, too.
            self._began_ms += max(due_ms, elapsed_ms)
            self._observed = 0.0
        return max(0, due_ms - elapsed_ms)
