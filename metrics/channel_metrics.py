"""Traffic on the connections to another node, for one purpose: Kafka's `<purpose>-metrics` of a NetworkClient.

Threads: any thread with a connection for this purpose; each thread has its own connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.table.catalogue import CHANNELS

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry


class ChannelMetrics:
    """Counts connections, requests and bytes. `NodeConnection` calls it."""

    def __init__(self, registry: Registry, channel: str, **labels: object) -> None:
        rows = CHANNELS[channel]
        self._connects = registry.sensor(rows["connection-creation"], **labels)
        self._closes = registry.sensor(rows["connection-close"], **labels)
        self._requests = registry.sensor(rows["request"], **labels)
        self._responses = registry.sensor(rows["response"], **labels)
        self._bytes_out = registry.sensor(rows["outgoing-byte"], **labels)
        self._bytes_in = registry.sensor(rows["incoming-byte"], **labels)
        self._request_size = registry.avg_max(rows["request-size"], **labels)
        registry.sensor_of(rows["network-io"], lambda: self._requests.count + self._responses.count, **labels)
        registry.gauge(rows["connection-count"], lambda: self._connects.count - self._closes.count, **labels)

    def connected(self) -> None:
        """Count a new connection."""
        self._connects.record()

    def closed(self) -> None:
        """Count a closed connection."""
        self._closes.record()

    def sent(self, size_bytes: int) -> None:
        """Count a sent request."""
        self._requests.record()
        self._bytes_out.record(size_bytes)
        self._request_size.record(size_bytes)

    def received(self, size_bytes: int) -> None:
        """Count a received response."""
        self._responses.record()
        self._bytes_in.record(size_bytes)
