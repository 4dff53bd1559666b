"""Quota managers: they count what clients use, and decide how long a client waits that used too much.

Rules
1. A value is counted even above the limit. The client waits until its rate would be back within the limit if nothing
   else came: `(rate - limit) / limit * window`.
2. Thread time (`request_percentage`) is the share of one thread's time: of handlers and of network threads. Its waits
   are at most one sample long.
3. Requests of brokers and controllers are never throttled; their thread time shows as exempt-request-time.

Threads: any thread counts; the one that applies a push calls `set_table`.
Source: ClientQuotaManager, ClientRequestQuotaManager (Kafka 4.3).
"""

from __future__ import annotations

import threading
from typing import Final, Generic, TypeVar

from barnabas.broker.quotas.limits import Share, Table
from barnabas.broker.quotas.rates import DEFAULT_WINDOW, THROTTLE_MS_MAX, UNLIMITED, SampledRate, Window
from barnabas.broker.quotas.sensors import BucketSensor, RateSensor, Sensors, bounded
from barnabas.broker.quotas.throttle import UNTHROTTLED, Throttle
from barnabas.common.clock import NS_PER_S, Clock
from barnabas.metrics.meters import AvgMax

PERCENT: Final = 100

S = TypeVar("S", RateSensor, BucketSensor)


class Manager(Generic[S]):
    """What managers have in common: the table of limits, and a sensor for each share."""

    def __init__(self, table: Table, sensors: Sensors[S], clock: Clock) -> None:
        self._clock = clock  # fixed before start
        self._sensors: Sensors[S] = sensors  # fixed before start
        self.table = table  # replaced whole
        self._lock = threading.Lock()  # serializes first throttles

    def set_table(self, table: Table) -> None:
        """Replace the limits."""
        self.table = table
        self._sensors.set_limits(table.limit_of)

    def ask_again(self) -> None:
        """Look the limit of each sensor up again."""
        self._sensors.set_limits(self.table.limit_of)

    def sensor(self, user: str, client_id: str, now_ms: int) -> S:
        """Return the sensor that a client's use counts with."""
        return self._sensors.get(bounded(self.table.share_of(user, client_id)), now_ms)

    def expire(self, now_ms: int) -> None:
        """Drop the sensors that were not used for a long time."""
        self._sensors.expire(now_ms)

    def note(self, throttle: Throttle, now_ms: int) -> None:
        """Record a throttle time that is in force."""
        sensor = self._sensors.get(Share(throttle.user, throttle.client_id), now_ms)
        if sensor.throttles is None:
            with self._lock:
                if sensor.throttles is None:
                    sensor.throttles = AvgMax(self._now_s)
        sensor.throttles.record(throttle.ms)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def numbers(self) -> list[tuple[Share, tuple[float, ...], float]]:
        """Return what the page shows of each share: its numbers, and the mean throttle time (NaN: none lately)."""
        now_ms = self._clock.monotonic_ms()
        return [
            (
                sensor.share,
                sensor.numbers(now_ms),
                float("nan") if sensor.throttles is None else sensor.throttles.snapshot()[0],
            )
            for sensor in self._sensors
        ]

    def _throttle(self, sensor: S, ms: int, observed: float) -> Throttle:
        share = sensor.share
        return Throttle(ms, self.table.key, share.user, share.client_id, sensor.limit, observed)


class RateManager(Manager[RateSensor]):
    """The limit of bytes produced or consumed a second."""

    def __init__(self, table: Table, window: Window, clock: Clock) -> None:
        def make(share: Share, now_ms: int) -> RateSensor:
            return RateSensor(share, self.table.limit_of(share), window, now_ms)

        super().__init__(table, Sensors(make), clock)
        self._window = window  # fixed before start
        self._ms_max = THROTTLE_MS_MAX

    def count(self, user: str, client_id: str, value: float, now_ms: int) -> Throttle:
        """Count a value; return the wait that it causes (rule 1)."""
        sensor = self.sensor(user, client_id, now_ms)
        ms, observed = sensor.record(value, now_ms)
        return UNTHROTTLED if ms <= 0 else self._throttle(sensor, min(ms, self._ms_max), observed)

    def count_unchecked(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Count a value that only the next request is throttled for; a negative one takes another back."""
        self.sensor(user, client_id, now_ms).record_unchecked(value, now_ms)

    def burst_max(self, user: str, client_id: str) -> float:
        """Return the greatest value that is not throttled if nothing else was counted in the whole window."""
        limit = self.table.limit_of(self.table.share_of(user, client_id))
        return limit if limit == UNLIMITED else limit * (self._window.length_ms - self._window.sample_ms) / 1000


class RequestManager(RateManager):
    """The limit of thread time (rule 2)."""

    def __init__(self, table: Table, window: Window, clock: Clock) -> None:
        super().__init__(table, window, clock)
        self._ms_max = window.sample_ms
        self._exempt = SampledRate(DEFAULT_WINDOW)  # guarded by: _exempt_lock
        self._exempt_lock = threading.Lock()  # a leaf

    def count_exempt(self, thread_ns: int, now_ms: int) -> None:
        """Count the thread time of a request that is never throttled (rule 3)."""
        with self._exempt_lock:
            self._exempt.record(percent(thread_ns), now_ms)

    def exempt_time(self) -> float:
        """Return the exempt thread time, in percent of one thread."""
        with self._exempt_lock:
            return self._exempt.measure(self._clock.monotonic_ms())


def percent(thread_ns: int) -> float:
    """Return thread time as percent of a second."""
    return thread_ns * PERCENT / NS_PER_S
