"""Metrics of the network layer: idle shares, connections by client software, connections opened and closed.

Threads: a processor owns its `ProcessorMetrics`; the scrape reads it, and may see values of different moments.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.sasl.metrics import LoginMetrics
from barnabas.common.clock import NS_PER_S, Clock
from barnabas.metrics.meters import Window
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.metrics.registry import Registry
    from barnabas.metrics.request_metrics import RequestMetrics, ThreadUse

_WINDOW_NS: Final = 30 * NS_PER_S

Software = tuple[str, str]

UNKNOWN_SOFTWARE: Software = ("unknown", "unknown")
#: The rows that a processor registers under its listener and number.
PROCESSOR_ROWS: Final = (
    c.CONNECTION_CREATION,
    c.CONNECTION_CLOSE,
    c.SUCCESSFUL_AUTHENTICATION,
    c.SUCCESSFUL_AUTHENTICATION_NO_REAUTH,
    c.FAILED_AUTHENTICATION,
    c.CONNECTION_COUNT,
    c.CONNECTIONS,
    c.EXPIRED_CONNECTIONS,
    c.IO_RATIO,
    c.IO_WAIT_RATIO,
    c.IO_WAIT_TIME_NS,
    c.REQUEST,
    c.RESPONSE,
    c.NETWORK_IO,
    c.INCOMING_BYTE,
    c.OUTGOING_BYTE,
)


class IdleMeter:
    """The share of time that a thread is idle, over the last 30 to 60 seconds."""

    __slots__ = ("_clock", "_idle_ns", "_lock", "_marks", "_since_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle_ns = 0  # owner: the metered thread
        self._since_ns = 0  # owner: the metered thread; when it became idle, 0 while busy
        self._lock = threading.Lock()  # a leaf: serialises scrapes
        self._marks = [(clock.monotonic_ns(), 0)] * 2  # guarded by: _lock; (time, idle time), older one first

    def begin(self, now_ns: int) -> None:
        """Note that the thread becomes idle."""
        self._since_ns = now_ns

    def end(self, now_ns: int) -> None:
        """Note that the thread is busy again."""
        self._idle_ns += now_ns - self._since_ns
        self._since_ns = 0

    def is_asleep(self) -> bool:
        """Return whether the thread is idle now; from any thread."""
        return self._since_ns != 0

    def total_ns(self) -> int:
        """Return the total idle time in nanoseconds; from any thread."""
        since_ns = self._since_ns
        return self._idle_ns + (self._clock.monotonic_ns() - since_ns if since_ns else 0)

    def share(self) -> float:
        """Return the share, 0 to 1; from any thread."""
        now_ns = self._clock.monotonic_ns()
        idle_ns = self.total_ns()
        with self._lock:
            begin_ns, idle_then_ns = self._marks[0]
            if now_ns - self._marks[1][0] >= _WINDOW_NS:
                self._marks = [self._marks[1], (now_ns, idle_ns)]
        elapsed_ns = now_ns - begin_ns
        return min(1.0, max(0.0, (idle_ns - idle_then_ns) / elapsed_ns)) if elapsed_ns > 0 else 1.0


class ProcessorMetrics:
    """The instruments of one processor.

    Request counts and sizes are read from `RequestMetrics`, where the processor's thread records them.
    """

    def __init__(
        self, registry: Registry, clock: Clock, listener: str, processor_id: int, requests: RequestMetrics
    ) -> None:
        self.idle = IdleMeter(clock)
        self.expired_count = 0  # owner: processor; sessions that failed to authenticate again
        self.connection_count = 0  # owner: processor
        self.logins = LoginMetrics(registry, listener, processor_id)
        self._registry = registry
        self._requests = requests
        self._labels = {"listener": listener, "networkProcessor": processor_id}
        self._thread_ident: int | None = None  # set by the processor's thread when it starts
        self._created = registry.sensor(c.CONNECTION_CREATION, **self._labels)
        self._closed = registry.sensor(c.CONNECTION_CLOSE, **self._labels)
        self._authenticated = registry.sensor(c.SUCCESSFUL_AUTHENTICATION, **self._labels)
        self._authenticated_for_good = registry.counter(c.SUCCESSFUL_AUTHENTICATION_NO_REAUTH, **self._labels)
        self._failed_authentication = registry.sensor(c.FAILED_AUTHENTICATION, **self._labels)
        self._by_software: dict[Software, int] = {}  # owner: processor
        sensors = {
            c.REQUEST: lambda: self._use().requests,
            c.RESPONSE: lambda: self._use().requests,
            c.NETWORK_IO: lambda: 2 * self._use().requests,
            c.INCOMING_BYTE: lambda: self._use().request_bytes,
            c.OUTGOING_BYTE: lambda: self._use().response_bytes,
        }
        gauges = {
            c.CONNECTION_COUNT: lambda: self.connection_count,
            c.EXPIRED_CONNECTIONS: lambda: self.expired_count,
            c.IO_WAIT_RATIO: self.idle.share,
            c.IO_RATIO: lambda: 1 - self.idle.share(),
            c.IO_WAIT_TIME_NS: self.idle.total_ns,
        }
        for row, total in sensors.items():
            registry.sensor_of(row, total, **self._labels)
        for row, read in gauges.items():
            registry.gauge(row, read, **self._labels)
        registry.gauge(c.PROCESSOR_IDLE_PERCENT, self.idle.share, networkProcessor=processor_id)

    def started(self) -> None:
        """Note the identity of the processor's thread, which calls this when it starts."""
        self._thread_ident = threading.get_ident()

    @property
    def created_count(self) -> int:
        """How many connections it has been given so far."""
        return self._created.count

    def opened(self) -> None:
        """Count a new connection."""
        self.connection_count += 1
        self._created.record()
        self._add(UNKNOWN_SOFTWARE, 1)

    def closed(self, software: Software | None) -> None:
        """Count a closed connection, of a client with this software."""
        self.connection_count -= 1
        self._closed.record()
        self._add(software or UNKNOWN_SOFTWARE, -1)

    def authenticated(self, *, can_repeat: bool = False) -> None:
        """Count a client that has authenticated, and whether it can do so again on this connection (KIP-368)."""
        self._authenticated.record()
        if not can_repeat:
            self._authenticated_for_good.inc()

    def failed_authentication(self) -> None:
        """Count a client that could not authenticate."""
        self._failed_authentication.record()

    def joined(self, software: Software | None) -> None:
        """Count a connection that came from another processor."""
        self.connection_count += 1
        self._add(software or UNKNOWN_SOFTWARE, 1)

    def left(self, software: Software | None) -> None:
        """Uncount a connection that went to another processor."""
        self.connection_count -= 1
        self._add(software or UNKNOWN_SOFTWARE, -1)

    def identified(self, before: Software | None, software: Software) -> None:
        """Count a connection under the client software that ApiVersions named."""
        self._add(before or UNKNOWN_SOFTWARE, -1)
        self._add(software, 1)

    def remove(self) -> None:
        """Unregister the instruments of a processor that ended."""
        for row in PROCESSOR_ROWS:
            self._registry.remove(row, **self._labels)
        self.logins.remove()
        self._registry.remove(c.PROCESSOR_IDLE_PERCENT, networkProcessor=self._labels["networkProcessor"])

    @property
    def thread_ident(self) -> int | None:
        """The identity of the processor's thread; None before it runs."""
        return self._thread_ident

    def _use(self) -> ThreadUse:
        return self._requests.of_thread(self._thread_ident)

    def _add(self, software: Software, change: int) -> None:
        count = self._by_software.get(software, 0) + change
        labels = {"clientSoftwareName": software[0], "clientSoftwareVersion": software[1], **self._labels}
        if count == 0:
            # Why removed: clients choose these names, and the page must not grow with invented ones.
            del self._by_software[software]
            self._registry.remove(c.CONNECTIONS, **labels)
            return
        if software not in self._by_software:
            self._registry.gauge(c.CONNECTIONS, lambda: self._by_software.get(software, 0), **labels)
        self._by_software[software] = count


def register_accept_rates(registry: Registry, accepted: Mapping[str, Callable[[], int]]) -> None:
    """Register the rate of accepted connections: by listener, and in all. `accepted` counts each listener's so far."""
    windows = {name: Window(registry.now_s()) for name in ("", *accepted)}
    for name, count in accepted.items():
        registry.gauge(
            c.CONNECTION_ACCEPT_RATE,
            lambda name=name, count=count: windows[name].rate(count(), registry.now_s()),  # type: ignore[misc]
            listener=name,
        )
    registry.gauge(
        c.BROKER_CONNECTION_ACCEPT_RATE,
        lambda: windows[""].rate(sum(count() for count in accepted.values()), registry.now_s()),
    )
