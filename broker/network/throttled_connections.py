"""Connections that stay muted for a time after their response, because a quota was exceeded.

A wait can last for days. Clients that close their connections and come again must not fill the memory with closed ones:
those are forgotten whenever the number of connections has doubled.

Threads: the processor that owns the connections.
Source: Kafka's ThrottledChannel, ThrottledChannelReaper (4.3), here without a thread of its own.
"""

from __future__ import annotations

import heapq
from typing import Final

from barnabas.broker.network.connection import Connection

KEPT_MIN: Final = 1_000  # closed ones are not looked for below this number


class ThrottledConnections:
    """Connections by when their throttle time ends."""

    __slots__ = ("_heap", "_look_at", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Connection]] = []  # (until, sequence, connection)
        self._sequence = 0  # breaks ties, since connections cannot be compared
        self._look_at = KEPT_MIN  # how many there are when closed ones are looked for

    def add(self, connection: Connection, until_ns: int) -> None:
        """Keep a connection muted until then."""
        connection.muted_until_ns = until_ns
        self._sequence += 1
        if len(self._heap) >= self._look_at:
            kept = [entry for entry in self._heap if not entry[2].is_closed]
            heapq.heapify(kept)
            self._heap = kept  # Why whole: other threads read it
            self._look_at = max(KEPT_MIN, 2 * len(kept))
        heapq.heappush(self._heap, (until_ns, self._sequence, connection))

    def wait_ns(self, now_ns: int) -> int | None:
        """Return the nanoseconds until the next throttle time ends; None if there is none."""
        return max(0, self._heap[0][0] - now_ns) if self._heap else None

    def snapshot(self) -> list[Connection]:
        """Return the connections, of which some may be closed or free again by now; from any thread."""
        return [connection for _, _, connection in self._heap.copy()]

    def next_expired(self, now_ns: int) -> Connection | None:
        """Remove and return a connection whose throttle time is over; it may have been closed meanwhile."""
        if not self._heap or self._heap[0][0] > now_ns:
            return None
        return heapq.heappop(self._heap)[2]
