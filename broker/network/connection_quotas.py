"""Limits on connections: of the broker, of a listener and of an address, and on the rate of new ones.

Rules
1. Over max.connections (of the broker or the listener) or max.connection.creation.rate the acceptor waits. The client
   stays in the kernel's backlog, and the wait counts as AcceptorBlockedPercent.
2. Over max.connections.per.ip the new connection is closed at once.
3. The inter-broker listener, if there are others, is exempt from the broker's limit. A connection beyond it is
   accepted, and a processor of another listener closes its least recently used connection (`is_exceeded`).

Threads: acceptors call `acquire`, processors `release` and `is_exceeded`; any thread updates the limits.
Source: Kafka's ConnectionQuotas (4.3). Different: the rate limit is a token bucket that holds one second's connections,
not a rate sampled over eleven windows; the long-term limit is the same.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.common.clock import Clock

UNLIMITED = 2**31 - 1


class TooManyConnectionsError(Exception):
    """An address already has as many connections as it may."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(f"address {address} already has the configured maximum of {limit} connections")
        self.address = address
        self.limit = limit


class RateLimit:
    """A token bucket of connections; `rate` is connections a second. Guarded by the quotas' lock."""

    __slots__ = ("_rate", "_tokens", "_updated_ms")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._updated_ms = now_ms

    def set_rate(self, rate: int, now_ms: int) -> None:
        """Change the rate, and fill the bucket."""
        if rate != self._rate:
            self._rate = rate
            self._tokens = float(rate)
            self._updated_ms = now_ms

    def take(self, now_ms: int) -> int:
        """Take a token; return the milliseconds to wait before using it."""
        if self._rate >= UNLIMITED:
            return 0
        self._tokens = min(self._rate, self._tokens + (now_ms - self._updated_ms) * self._rate / 1000)
        self._updated_ms = now_ms
        self._tokens -= 1
        return 0 if self._tokens >= 0 else int(-self._tokens * 1000 / self._rate) + 1


@dataclass(slots=True)
class ListenerLimits:
    """The connections and limits of one listener. Guarded by the quotas' lock."""

    limit: int
    rate: RateLimit
    count: int = 0


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
    ) -> None:
        self._clock = clock  # fixed before start
        self._inter_broker_listener = inter_broker_listener  # fixed before start
        self._changed = threading.Condition(
            threading.Lock()
        )  # a connection closed, a limit changed, or the quotas closed
        self._max_connections = max_connections  # guarded by: _changed
        self._max_per_ip = max_per_ip  # guarded by: _changed
        self._overrides = resolve_overrides(per_ip_overrides or {})  # guarded by: _changed
        self._rate = RateLimit(max_creation_rate, clock.monotonic_ms())  # guarded by: _changed
        self._by_address: dict[str, int] = {}  # guarded by: _changed
        self._listeners: dict[str, ListenerLimits] = {}  # guarded by: _changed
        self._total = 0  # guarded by: _changed
        self._is_closed = False  # guarded by: _changed

    # Called by acceptors

    def acquire(self, listener: str, address: str) -> int:
        """Count a connection, waiting until the limits allow it; return the nanoseconds waited.

        Returns at once after `close`. Raises TooManyConnectionsError; the connection is counted all the same, and must
        be released.
        """
        with self._changed:
            waited_ns = self._wait_locked(listener)
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

    # Called by anyone

    def add_listener(self, listener: str, limit: int = UNLIMITED, creation_rate: int = UNLIMITED) -> None:
        """Add a listener with its own limits (listener.name.<name>.max.connections and the like)."""
        with self._changed:
            assert listener not in self._listeners, f"listener {listener} was added before"
            self._listeners[listener] = ListenerLimits(limit, RateLimit(creation_rate, self._clock.monotonic_ms()))

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
                self._rate.set_rate(max_creation_rate, self._clock.monotonic_ms())
            self._changed.notify_all()

    def update_listener(self, listener: str, limit: int, creation_rate: int) -> None:
        """Change the limits of one listener."""
        with self._changed:
            limits = self._listeners[listener]
            limits.limit = limit
            limits.rate.set_rate(creation_rate, self._clock.monotonic_ms())
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
        throttle_ms = self._listeners[listener].rate.take(now_ms)
        if not self._is_protected(listener):
            throttle_ms = max(throttle_ms, self._rate.take(now_ms))
        return throttle_ms

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
