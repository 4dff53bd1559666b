"""Finds connections that have been idle for too long, without a scan.

A connection lies in the bucket of the time at which it will have been idle for too long, computed when it was put
there. Activity does not move it. When the bucket's time comes, the connection is moved to its current bucket or
expires. So a request costs nothing here, and a connection is checked once per idle limit, however many there are.

Threads: the processor that owns the connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.broker.network.connection import Connection

BUCKETS: Final = 128  # per idle limit: the limit is exact to one bucket


class IdleConnections:
    """A processor's connections by when they expire; `limit_ns` is the longest idle time."""

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns  # fixed before start
        self.width_ns = max(1, limit_ns // BUCKETS)  # fixed before start
        self._buckets: dict[int, dict[Connection, None]] = {}  # owner: processor; by number
        self._last_checked = -1  # owner: processor; the number of a bucket

    def add(self, connection: Connection) -> None:
        """Watch a connection."""
        number = max(self._due_in(connection), self._last_checked + 1)  # never a bucket that is not checked again
        connection.idle_bucket = number
        self._buckets.setdefault(number, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        """Stop watching a connection."""
        bucket = self._buckets.get(connection.idle_bucket)
        if bucket is None or connection not in bucket:
            return
        del bucket[connection]
        if not bucket:
            del self._buckets[connection.idle_bucket]

    def take_expired(self, now_ns: int) -> list[Connection]:
        """Remove and return the connections that have been idle for too long."""
        last = now_ns // self.width_ns
        if last <= self._last_checked:
            return []
        due = sorted(number for number in self._buckets if number <= last)
        self._last_checked = last
        expired: list[Connection] = []
        for number in due:
            for connection in self._buckets.pop(number):
                if now_ns - connection.last_active_ns >= self._limit_ns:
                    expired.append(connection)
                else:
                    self.add(connection)
        return expired

    def least_recently_active(self) -> Connection | None:
        """Return the connection that has been idle longest; None if there is none."""
        while self._buckets:
            first = min(self._buckets)
            for connection in [found for found in self._buckets[first] if self._due_in(found) > first]:
                self.discard(connection)
                self.add(connection)
            if first in self._buckets:
                return min(self._buckets[first], key=lambda connection: connection.last_active_ns)
        return None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def _due_in(self, connection: Connection) -> int:
        """Return the bucket in which the connection expires, rounded up so that its time has come."""
        return -(-(connection.last_active_ns + self._limit_ns) // self.width_ns)
