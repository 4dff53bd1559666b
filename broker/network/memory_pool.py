"""How many bytes requests may hold before they are carried out (queued.max.request.bytes).

Rules
1. A frame counts in full, from when its size is known until its request is answered or parked. It is let in while any
   byte is left, however large it is: then it can be finished, whatever others wait for. So the pool is overdrawn by one
   frame at most.
2. When the pool is empty, no new large frame starts; started ones finish. A frame that may not start gets no buffer:
   its client waits in the kernel's. The processor is woken when the pool has bytes again (`wait`).
3. A frame that is whole in one read is always let in, and counted. It needs no buffer, and the request queue bounds it.
   So a client that sends large requests slowly, and holds the pool for long, keeps no other client out.

Threads: all processors share the pool; each has a `MemoryGate` for its own connections.
Source: Kafka's SimpleMemoryPool, not strict (4.3). Different: a request that is not parked gives its bytes back when
its processor takes the answer, not when the handler is done with it. Rule 3 also differs: without it, half a request
from a few clients stops all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class MemoryPool:
    """A bounded number of bytes for requests."""

    def __init__(self, size_bytes: int, now_ns: Callable[[], int]) -> None:
        self.size_bytes = size_bytes  # fixed before start
        self._now_ns = now_ns  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._left = size_bytes  # guarded by: _lock; below 0 when overdrawn
        self._waiting: list[Callable[[], None]] = []  # guarded by: _lock; each wakes a processor
        self._depleted_since_ns = 0  # guarded by: _lock; 0 while something is left
        self._depleted_ns = 0  # guarded by: _lock

    def has_bytes(self) -> bool:
        """Return whether any byte is left; unlocked, so the answer may be stale."""
        return self._left > 0

    def try_take(self, size_bytes: int) -> bool:
        """Count a starting frame if any byte is left (rule 1); false if none is."""
        with self._lock:
            if self._left <= 0:
                return False
            self._take_locked(size_bytes)
            return True

    def take(self, size_bytes: int) -> None:
        """Count a whole frame, even if no byte is left (rule 3)."""
        with self._lock:
            self._take_locked(size_bytes)

    def _take_locked(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left <= 0 and not self._depleted_since_ns:
            self._depleted_since_ns = self._now_ns()

    def give_back(self, size_bytes: int) -> None:
        """Uncount a frame; wake the waiting processors if bytes are left again."""
        woken: list[Callable[[], None]] = []
        with self._lock:
            self._left += size_bytes
            assert self._left <= self.size_bytes, "more was given back than taken"
            if self._left > 0 and self._depleted_since_ns:
                self._depleted_ns += self._now_ns() - self._depleted_since_ns
                self._depleted_since_ns = 0
                woken, self._waiting = self._waiting, []
        for wake in woken:
            wake()

    def wait(self, wake: Callable[[], None]) -> bool:
        """Call `wake` once when bytes are left again; false, without calling it, if some are left now."""
        with self._lock:
            if self._left > 0:
                return False
            self._waiting.append(wake)
            return True

    def left_bytes(self) -> int:
        """Return how many bytes are left (MemoryPoolAvailable)."""
        return max(0, self._left)

    def used_bytes(self) -> int:
        """Return how many bytes requests hold (MemoryPoolUsed)."""
        return self.size_bytes - self._left

    def depleted_ns(self) -> int:
        """Return for how many nanoseconds in all no byte was left (MemoryPoolDepletedTimeTotal)."""
        with self._lock:
            since_ns = self._depleted_since_ns
            return self._depleted_ns + (self._now_ns() - since_ns if since_ns else 0)


class Holder(Protocol):
    """A connection as the gate sees it."""

    pooled_bytes: int  # what it holds of the pool


C = TypeVar("C", bound=Holder)


class MemoryGate(Generic[C]):
    """Lets the connections of one processor start a large frame, or makes them wait for memory."""

    def __init__(self, pool: MemoryPool, wake: Callable[[], None]) -> None:
        self._pool = pool  # fixed before start
        self._wake = wake  # fixed before start; makes the processor do a turn
        self._starved: dict[C, None] = {}  # owner: processor; connections with input that wait for memory, oldest first
        self._is_waiting = False  # set by the processor, cleared by the thread that gives bytes back

    def begin(self, connection: C, size_bytes: int) -> bool:
        """Count a frame whose start was read, or make its connection wait for memory (rule 2); false if it waits."""
        assert not connection.pooled_bytes, "one frame at a time"
        if self._pool.try_take(size_bytes):
            connection.pooled_bytes = size_bytes
            return True
        self._starved[connection] = None
        self._has_bytes()
        return False

    def count_whole(self, connection: C, size_bytes: int) -> None:
        """Count a whole frame, unless it was counted when it started (rule 3)."""
        if not connection.pooled_bytes:
            self.count_more(connection, size_bytes)

    def count_more(self, connection: C, size_bytes: int) -> None:
        """Count frames that came in the same read as a counted one, or are queued again (rule 3)."""
        connection.pooled_bytes += size_bytes
        self._pool.take(size_bytes)

    def release(self, connection: C) -> None:
        """Uncount a frame and those that came with it; called by the thread that has the request.

        That is when the last of these requests was answered, one of them is parked, or the frame will never be whole.
        """
        size, connection.pooled_bytes = connection.pooled_bytes, 0
        if size:
            self._pool.give_back(size)

    def forget(self, connection: C) -> None:
        """Stop a connection's wait for memory."""
        self._starved.pop(connection, None)

    def is_due(self) -> bool:
        """Return whether connections waited for memory that is there now."""
        return bool(self._starved) and not self._is_waiting

    def next_admitted(self) -> C | None:
        """Remove and return the connection that has waited longest, if there is memory for it; else None."""
        if not self._starved or not self._has_bytes():
            return None
        connection = next(iter(self._starved))
        del self._starved[connection]
        return connection

    def _has_bytes(self) -> bool:
        """Return whether there is memory; if not, have the processor woken when there is."""
        if self._pool.has_bytes():
            return True
        if self._is_waiting:
            return False
        self._is_waiting = True
        if self._pool.wait(self._wake_up):
            return False
        self._is_waiting = False
        return True

    def _wake_up(self) -> None:
        """Wake the processor, since bytes are left; on any thread."""
        self._is_waiting = False
        self._wake()
