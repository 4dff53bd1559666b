"""Rates and token buckets by which quotas measure, exactly as Kafka's client library computes them.

Rules
1. A rate is a sum over samples of equal length, and one more that overlaps the start of the window. The time it is
   divided by is at least all samples but one, so that a first burst does not count as a huge rate.
2. A sample is reset when its last event is as old as the window.
3. A token bucket is full at first and holds what the rate allows in the whole window. It may be overdrawn.

Threads: none; each value is guarded by the lock of its owner. Times are milliseconds of one monotonic clock.
Source: Rate, SampledStat, WindowedSum, TokenBucket, QuotaUtils (Kafka 4.3).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MS_PER_S: Final = 1000
UNLIMITED: Final = math.inf
THROTTLE_MS_MAX: Final = 2**31 - 1  # of the response's field


class Window(NamedTuple):
    """The span over which a rate is measured."""

    samples: int
    sample_ms: int

    @property
    def length_ms(self) -> int:
        """The length of all samples."""
        return self.samples * self.sample_ms


#: Of rates that only show on the page (Kafka's MetricConfig).
DEFAULT_WINDOW: Final = Window(2, 30_000)


class SampledRate:
    """Units a second over the last samples (rules 1 and 2)."""

    __slots__ = ("_current", "_lasts", "_starts", "_values", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        # A ring of at most `samples` + 1, which grows when it is first gone round.
        self._starts: list[int] = []
        self._lasts: list[int] = []  # when each sample got its last value
        self._values: list[float] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value, which may be negative: it takes an earlier one back."""
        if not self._starts:
            self._append(now_ms)
        elif now_ms - self._starts[self._current] >= self._window.sample_ms:
            self._advance(now_ms)
        index = self._current
        self._values[index] += value
        self._lasts[index] = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the units a second."""
        window_ms = self.window_ms(now_ms)
        return sum(self._values) * MS_PER_S / window_ms

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the present sum is divided by."""
        self._purge(now_ms)
        samples, sample_ms = self._window
        elapsed_ms = now_ms - min(self._starts)
        full = elapsed_ms // sample_ms
        if full < samples - 1:
            elapsed_ms += (samples - 1 - full) * sample_ms
        return max(elapsed_ms, 1)

    def _append(self, now_ms: int) -> None:
        self._starts.append(now_ms)
        self._lasts.append(now_ms)
        self._values.append(0.0)

    def _advance(self, now_ms: int) -> None:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current >= len(self._starts):
            self._append(now_ms)
        else:
            self._reset(self._current, now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._starts[index] = self._lasts[index] = now_ms
        self._values[index] = 0.0

    def _purge(self, now_ms: int) -> None:
        if not self._starts:
            self._append(now_ms)
            return
        oldest_ms = now_ms - self._window.length_ms
        for index, last_ms in enumerate(self._lasts):
            if last_ms <= oldest_ms:
                self._reset(index, now_ms)


class TokenBucket:
    """Tokens that come back at the rate of the limit (rule 3)."""

    __slots__ = ("_tokens", "_updated_ms", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = UNLIMITED  # cut to what the bucket holds
        self._updated_ms = 0

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if there are not enough."""
        self._refill(limit, now_ms)
        self._tokens = min(self._burst(limit), self._tokens - value)

    def measure(self, limit: float, now_ms: int) -> float:
        """Return the tokens that are left; below 0 the limit is exceeded."""
        self._refill(limit, now_ms)
        return self._tokens

    def _refill(self, limit: float, now_ms: int) -> None:
        if limit == UNLIMITED:
            self._tokens = UNLIMITED
        elif self._tokens == UNLIMITED:
            self._tokens = self._burst(limit)
        else:
            grown = self._tokens + limit * (now_ms - self._updated_ms) / MS_PER_S
            self._tokens = min(self._burst(limit), grown)
        self._updated_ms = now_ms

    def _burst(self, limit: float) -> float:
        return self._window.length_ms * limit / MS_PER_S


def throttle_ms(observed: float, limit: float, window_ms: int) -> int:
    """Return how long nothing must come until an observed rate is within its limit: 0 if it is."""
    if observed <= limit:
        return 0
    return rounded((observed - limit) / limit * window_ms) if limit > 0 else THROTTLE_MS_MAX


def refill_ms(tokens: float, limit: float) -> int:
    """Return how long an overdrawn bucket takes until it has no debts: 0 if it has none."""
    if tokens >= 0:
        return 0
    return rounded(-tokens / limit * MS_PER_S) if limit > 0 else THROTTLE_MS_MAX


def rounded(ms: float) -> int:
    """Return a time as a response can carry it."""
    return min(math.floor(ms + 0.5), THROTTLE_MS_MAX) if ms < THROTTLE_MS_MAX else THROTTLE_MS_MAX
