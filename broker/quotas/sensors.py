"""Sensors: what the clients of one share used lately, and their number is bounded.

Rules
1. A sensor that is not used for `EXPIRY_MS` is dropped. With `SENSORS_MAX` of them, a new one drops those that were not
   used for the longest time. A client that invents client ids gets nothing by it: a new id has a fresh rate anyhow.
2. Long client ids are cut in names of sensors, and a hash keeps them apart.

Threads: any. A sensor has a lock of its own, a leaf. The lock of `Sensors` is taken only for a new share, and before
those of sensors.
Source: SensorAccess, Sensor (Kafka 4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from barnabas.broker.quotas.limits import Share
from barnabas.broker.quotas.rates import (
    DEFAULT_WINDOW,
    UNLIMITED,
    SampledRate,
    TokenBucket,
    Window,
    refill_ms,
    throttle_ms,
)
from barnabas.metrics import client_ids
from barnabas.metrics.meters import AvgMax

EXPIRY_MS: Final = 3_600_000
# Why not Final: a test changes it, and compiled code would ignore that.
SENSORS_MAX = 10_000
DROPPED_SHARE: Final = 10  # one in so many is dropped at once


class RateSensor:
    """A sampled rate with a limit: bytes or thread time."""

    __slots__ = ("_lock", "_rate", "limit", "share", "throttles", "used_ms")

    def __init__(self, share: Share, limit: float, window: Window, now_ms: int) -> None:
        self.share = share  # fixed before start
        self._lock = threading.Lock()
        self._rate = SampledRate(window)  # guarded by: _lock
        self.limit = limit  # replaced whole
        self.used_ms = now_ms  # written by any thread that records
        self.throttles: AvgMax | None = None  # its throttle times; set once, at the first

    def record(self, value: float, now_ms: int) -> tuple[int, float]:
        """Add a value; return how many ms the client must wait (0: it is within its limit), and the rate."""
        self.used_ms = now_ms
        limit = self.limit
        with self._lock:
            self._rate.record(value, now_ms)
            if limit == UNLIMITED:
                return 0, 0.0
            observed = self._rate.measure(now_ms)
            if observed <= limit:
                return 0, observed
            return throttle_ms(observed, limit, self._rate.window_ms(now_ms)), observed

    def record_unchecked(self, value: float, now_ms: int) -> None:
        """Add a value that only the next request is throttled for; a negative one takes another back."""
        with self._lock:
            self._rate.record(value, now_ms)

    def numbers(self, now_ms: int) -> tuple[float, ...]:
        """Return the rate."""
        with self._lock:
            return (self._rate.measure(now_ms),)


class BucketSensor:
    """A token bucket with a limit: changes of topics. With `numbers`, the tokens left and the rate of changes."""

    __slots__ = ("_bucket", "_lock", "_rate", "limit", "share", "throttles", "used_ms")

    def __init__(self, share: Share, limit: float, window: Window, now_ms: int) -> None:
        self.share = share  # fixed before start
        self._lock = threading.Lock()
        self._bucket = TokenBucket(window)  # guarded by: _lock
        self._rate = SampledRate(DEFAULT_WINDOW)  # guarded by: _lock
        self.limit = limit  # replaced whole
        self.used_ms = now_ms  # written by any thread that records
        self.throttles: AvgMax | None = None  # its throttle times; set once, at the first

    def record(self, value: float, now_ms: int, *, is_strict: bool) -> tuple[int, float]:
        """Take tokens; return how many ms the client must wait, and the tokens left.

        With `is_strict` an overdrawn bucket gives none, and a bucket that is not overdrawn gives any number.
        """
        self.used_ms = now_ms
        limit = self.limit
        with self._lock:
            if is_strict:
                left = self._bucket.measure(limit, now_ms)
                if left < 0:
                    return refill_ms(left, limit), left
            self._bucket.record(value, limit, now_ms)
            self._rate.record(value, now_ms)
            left = self._bucket.measure(limit, now_ms)
            return (0 if is_strict else refill_ms(left, limit)), left

    def numbers(self, now_ms: int) -> tuple[float, ...]:
        """Return the tokens left, and the rate."""
        with self._lock:
            return self._bucket.measure(self.limit, now_ms), self._rate.measure(now_ms)


S = TypeVar("S", RateSensor, BucketSensor)


class Sensors(Generic[S]):
    """The sensors of one kind of quota, by share (rule 1)."""

    def __init__(self, make: Callable[[Share, int], S]) -> None:
        self._make: Callable[[Share, int], S] = make  # fixed before start
        self._lock = threading.Lock()
        self._by_share: dict[Share, S] = {}  # changed under _lock; any thread reads

    def get(self, share: Share, now_ms: int) -> S:
        """Return the sensor of a share; a new one if it is not known."""
        found = self._by_share.get(share)
        if found is not None:
            return found
        with self._lock:
            found = self._by_share.get(share)
            if found is None:
                if len(self._by_share) >= SENSORS_MAX:
                    self._drop_oldest_locked()
                found = self._by_share[share] = self._make(share, now_ms)
            return found

    def set_limits(self, limit_of: Callable[[Share], float]) -> None:
        """Replace the limit of each sensor. Those of cut names are dropped, since their limit cannot be looked up."""
        with self._lock:
            for sensor in list(self._by_share.values()):
                if len(sensor.share.client_id) >= client_ids.NAME_MAX:
                    del self._by_share[sensor.share]
                else:
                    sensor.limit = limit_of(sensor.share)

    def expire(self, now_ms: int) -> None:
        """Drop the sensors that were not used for a long time."""
        with self._lock:
            for share in [s.share for s in self._by_share.values() if now_ms - s.used_ms >= EXPIRY_MS]:
                del self._by_share[share]

    def clear(self) -> None:
        """Drop all sensors."""
        with self._lock:
            self._by_share.clear()

    def __iter__(self) -> Iterator[S]:
        """Return all sensors, as a copy; from any thread."""
        return iter(list(self._by_share.values()))

    def _drop_oldest_locked(self) -> None:
        oldest = sorted(self._by_share.values(), key=lambda sensor: sensor.used_ms)
        for sensor in oldest[: 1 + len(oldest) // DROPPED_SHARE]:
            del self._by_share[sensor.share]


def bounded(share: Share) -> Share:
    """Return a share with a client id of bounded length (rule 2)."""
    if len(share.client_id) < client_ids.NAME_MAX:
        return share
    return share._replace(client_id=client_ids.bounded(share.client_id))


def sanitized(user: str) -> str:
    """Return a user's name as the labels of Kafka's metrics have it."""
    return quote(user, safe="-._").replace("~", "%7E")
