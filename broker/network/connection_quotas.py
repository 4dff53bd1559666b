"""Limits on connections: of the broker, of a listener and of an address, and on the rate of new ones.

Rules
1. Over max.connections (of the broker or the listener) or max.connection.creation.rate the acceptor waits. The client
   stays in the kernel's backlog, and the wait counts as AcceptorBlockedPercent.
2. Over max.connections.per.ip the new connection is closed at once.
3. Over connection_creation_rate of its address (a client quota, KIP-612) a new connection is not accepted: the acceptor
   closes it when the address is back within its rate. It does not count, also not for the rates of rule 1.
4. The inter-broker listener, if there are others, is exempt from the broker's limit. A connection beyond it is
   accepted, and a processor of another listener closes its least recently used connection (`is_exceeded`).

Rates are measured over `quota.window.num` samples; a wait is at most one sample long.

Threads: acceptors call `acquire`, processors `release`, `is_exceeded` and `is_reached`; any thread updates the limits.
Source: Kafka's ConnectionQuotas (4.3).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.broker.quotas.rates import SampledRate, Window, throttle_ms
from barnabas.common.clock import NS_PER_S, Clock
from barnabas.metrics.meters import AvgMax

UNLIMITED = 2**31 - 1
DEFAULT_RATE_WINDOW: Final = Window(11, 1000)
# Why not Final: a test changes it, and compiled code would ignore that.
ADDRESSES_MAX = 10_000  # whose rates are remembered


class TooManyConnectionsError(Exception):
    """An address already has as many connections as it may."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(f"address {address} already has the configured maximum of {limit} connections")
        self.address = address
        self.limit = limit


class ConnectionThrottledError(Exception):
    """An address opens connections faster than it may."""

    def __init__(self, address: str, throttle_ms: int) -> None:
        super().__init__(f"address {address} opens connections faster than its quota allows")
        self.address = address
        self.throttle_ms = throttle_ms  # until it is back within its rate


class RateLimit:
    """The rate of new connections, and its limit. Guarded by the quotas' lock."""

    __slots__ = ("_measured", "_window", "limit", "used_ms")

    def __init__(self, limit: float, window: Window) -> None:
        self.limit = limit  # connections a second
        self._window = window
        self._measured = SampledRate(window)
        self.used_ms = 0

    def take(self, now_ms: int) -> int:
        """Count a connection; return the milliseconds until the rate is back within the limit."""
        if self.limit >= UNLIMITED:
            return 0
        self.used_ms = now_ms
        measured = self._measured
        measured.record(1, now_ms)
        wait_ms = throttle_ms(measured.measure(now_ms), self.limit, measured.window_ms(now_ms))
        return min(wait_ms, self._window.sample_ms)

    def take_back(self, now_ms: int) -> None:
        """Uncount a connection that was not accepted."""
        if self.limit < UNLIMITED:
            self._measured.record(-1, now_ms)


class ListenerLimits:
    """The connections and limits of one listener. Guarded by the quotas' lock, but for the times, which have theirs."""

    __slots__ = ("address_throttles", "count", "limit", "rate", "throttles")

    def __init__(self, limit: int, rate: RateLimit, now_s: Callable[[], float]) -> None:
        self.limit = limit
        self.rate = rate
        self.count = 0
        self.throttles = AvgMax(now_s)  # waits because of the rate of the listener or the broker
        self.address_throttles = AvgMax(now_s)  # waits because of the rate of an address


class ConnectionQuotas:
    """Counts connections, and holds acceptors back at the limits."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_connections: int = UNLIMITED,
        max_per_ip: int = UNLIMITED,
        per_ip_overrides: Mapping[str, int] | None = None,
        max_creation_rate: int = UNLIMITED,
        inter_broker_listener: str | None = None,
        window: Window = DEFAULT_RATE_WINDOW,
    ) -> None:
        self._clock = clock  # fixed before start
        self._window = window  # fixed before start
        self._inter_broker_listener = inter_broker_listener  # fixed before start
        self._changed = threading.Condition(
            threading.Lock()
        )  # a connection closed, a limit changed, or the quotas closed
        self._max_connections = max_connections  # guarded by: _changed
        self._max_per_ip = max_per_ip  # guarded by: _changed
        self._overrides = resolve_overrides(per_ip_overrides or {})  # guarded by: _changed
        self._rate = RateLimit(max_creation_rate, window)  # guarded by: _changed
        self._limits_by_address: Mapping[str | None, float] = {}  # guarded by: _changed; None: all others
        self._rates_by_address: dict[str, RateLimit] = {}  # guarded by: _changed; of addresses with a limit
        self._by_address: dict[str, int] = {}  # guarded by: _changed
        self._listeners: dict[str, ListenerLimits] = {}  # guarded by: _changed
        self._total = 0  # guarded by: _changed
        self._is_closed = False  # guarded by: _changed

    # Called by acceptors

    def acquire(self, listener: str, address: str) -> int:
        """Count a connection, waiting until the limits allow it; return the nanoseconds waited.

        Returns at once after `close`. Raises TooManyConnectionsError; the connection is counted all the same, and must
        be released. Raises ConnectionThrottledError; then it is not counted.
        """
        with self._changed:
            waited_ns = self._wait_locked(listener)
            if self._limits_by_address:
                self._check_address_locked(listener, address)
            count = self._by_address.get(address, 0) + 1
            self._by_address[address] = count
            self._total += 1
            self._listeners[listener].count += 1
            limit = self._overrides.get(address, self._max_per_ip)
            if count > limit:
                raise TooManyConnectionsError(address, limit)
            return waited_ns

    # Called by processors

    def release(self, listener: str, address: str) -> None:
        """Uncount a connection."""
        with self._changed:
            count = self._by_address[address] - 1
            if count:
                self._by_address[address] = count
            else:
                del self._by_address[address]
            self._total -= 1
            self._listeners[listener].count -= 1
            self._changed.notify_all()

    def is_exceeded(self, listener: str) -> bool:
        """Return whether this listener must close a connection because the exempt listener exceeded the limit."""
        # Why unlocked: each processor calls it often, and the next call corrects a stale answer.
        return self._total > self._max_connections and not self._is_protected(listener)

    def is_reached(self, listener: str) -> bool:
        """Return whether the next connection of the exempt listener exceeds the limit, at this listener's expense."""
        return self._total >= self._max_connections and not self._is_protected(listener)

    # Called by anyone

    def add_listener(self, listener: str, limit: int = UNLIMITED, creation_rate: int = UNLIMITED) -> None:
        """Add a listener with its own limits (listener.name.<name>.max.connections and the like)."""
        with self._changed:
            assert listener not in self._listeners, f"listener {listener} was added before"
            self._listeners[listener] = ListenerLimits(limit, RateLimit(creation_rate, self._window), self._now_s)

    def set_address_rates(self, limits: Mapping[str | None, float]) -> None:
        """Replace the connections a second by address; None is the limit of all others."""
        with self._changed:
            self._limits_by_address = limits
            for address in list(self._rates_by_address):
                limit = limits.get(address, limits.get(None))
                if limit is None:
                    del self._rates_by_address[address]
                else:
                    self._rates_by_address[address].limit = limit

    def update(
        self,
        *,
        max_connections: int | None = None,
        max_per_ip: int | None = None,
        per_ip_overrides: Mapping[str, int] | None = None,
        max_creation_rate: int | None = None,
    ) -> None:
        """Change limits of the broker; None keeps one. Existing connections stay open, except by `is_exceeded`."""
        overrides = None if per_ip_overrides is None else resolve_overrides(per_ip_overrides)
        with self._changed:
            if max_connections is not None:
                self._max_connections = max_connections
            if max_per_ip is not None:
                self._max_per_ip = max_per_ip
            if overrides is not None:
                self._overrides = overrides
            if max_creation_rate is not None:
                self._rate.limit = max_creation_rate
            self._changed.notify_all()

    def update_listener(self, listener: str, limit: int, creation_rate: int) -> None:
        """Change the limits of one listener."""
        with self._changed:
            limits = self._listeners[listener]
            limits.limit = limit
            limits.rate.limit = creation_rate
            self._changed.notify_all()

    def close(self) -> None:
        """Release waiting acceptors, and limit nothing from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def total(self) -> int:
        """Return the number of connections."""
        return self._total

    def count(self, address: str) -> int:
        """Return the number of connections from an address."""
        return self._by_address.get(address, 0)

    def throttle_ms(self, listener: str) -> float:
        """Return the mean wait of new connections of a listener because of its rate or the broker's; NaN: none."""
        return self._listeners[listener].throttles.snapshot()[0]

    def address_throttle_ms(self, listener: str) -> float:
        """Return the same because of rates of addresses."""
        return self._listeners[listener].address_throttles.snapshot()[0]

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _check_address_locked(self, listener: str, address: str) -> None:
        """Count a connection for the rate of its address; raises ConnectionThrottledError, uncounted (rule 3)."""
        limit = self._limits_by_address.get(address, self._limits_by_address.get(None))
        if limit is None:
            return
        now_ms = self._clock.monotonic_ms()
        rate = self._rates_by_address.get(address)
        if rate is None:
            if len(self._rates_by_address) >= ADDRESSES_MAX:
                self._drop_unused_locked()
            rate = self._rates_by_address[address] = RateLimit(limit, self._window)
        wait_ms = rate.take(now_ms)
        if wait_ms > 0:
            limits = self._listeners[listener]
            rate.take_back(now_ms)
            limits.rate.take_back(now_ms)
            if not self._is_protected(listener):
                self._rate.take_back(now_ms)
            limits.address_throttles.record(wait_ms)
            raise ConnectionThrottledError(address, wait_ms)

    def _drop_unused_locked(self) -> None:
        """Forget the rates of the addresses that were not seen for the longest time."""
        oldest = sorted(self._rates_by_address.items(), key=lambda item: item[1].used_ms)
        for address, _ in oldest[: 1 + len(oldest) // 10]:
            del self._rates_by_address[address]

    def _wait_locked(self, listener: str) -> int:
        started_ns = self._clock.monotonic_ns()
        until_ms = self._clock.monotonic_ms() + self._throttle_ms_locked(listener)
        has_waited = False
        while not self._is_closed:
            remaining_ms = until_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0 and self._is_below_limits_locked(listener):
                break
            has_waited = True
            self._changed.wait(remaining_ms / 1000 if remaining_ms > 0 else None)
        return self._clock.monotonic_ns() - started_ns if has_waited else 0

    def _throttle_ms_locked(self, listener: str) -> int:
        now_ms = self._clock.monotonic_ms()
        limits = self._listeners[listener]
        wait_ms = limits.rate.take(now_ms)
        if not self._is_protected(listener):
            wait_ms = max(wait_ms, self._rate.take(now_ms))
        if wait_ms > 0:
            limits.throttles.record(wait_ms)
        return wait_ms

    def _is_below_limits_locked(self, listener: str) -> bool:
        limits = self._listeners[listener]
        if limits.count >= limits.limit:
            return False
        return self._is_protected(listener) or self._total < self._max_connections

    def _is_protected(self, listener: str) -> bool:
        return listener == self._inter_broker_listener and len(self._listeners) > 1


def resolve_overrides(overrides: Mapping[str, int]) -> dict[str, int]:
    """Resolve the host names of max.connections.per.ip.overrides to addresses; raises OSError for an unknown one."""
    resolved: dict[str, int] = {}
    for host, limit in overrides.items():
        for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            resolved[str(address[0])] = limit
    return resolved
