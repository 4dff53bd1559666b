"""One timeout for several steps."""

from __future__ import annotations

from barnabas.common.clock import NS_PER_MS, Clock


class Deadline:
    """A moment on the monotonic clock at which waiting ends; `timeout_ms` None means never."""

    __slots__ = ("_clock", "_deadline_ns")

    def __init__(self, clock: Clock, timeout_ms: float | None) -> None:
        self._clock = clock
        self._deadline_ns = None if timeout_ms is None else clock.monotonic_ns() + int(timeout_ms * NS_PER_MS)

    def remaining_ms(self) -> float | None:
        """Return the milliseconds left, never negative; None if the deadline is never."""
        if self._deadline_ns is None:
            return None
        return max(0, self._deadline_ns - self._clock.monotonic_ns()) / NS_PER_MS

    def remaining_s(self) -> float | None:
        """Return the seconds left, as `Condition.wait` and `select` take them."""
        remaining_ms = self.remaining_ms()
        return None if remaining_ms is None else remaining_ms / 1000

    def is_expired(self) -> bool:
        """Return whether no time is left."""
        return self._deadline_ns is not None and self._clock.monotonic_ns() >= self._deadline_ns
