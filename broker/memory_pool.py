"""How many bytes requests may hold before they are carried out (queued.max.request.bytes).

Rules
1. A frame is counted whole, as soon as its size is known, until its request is answered, or waits for something. It is
   let in while anything is left, however large it is: then it can be finished, whatever others wait for. So the pool
   is overdrawn by one frame at most.
2. A frame for which nothing is left gets no buffer: its client waits in the kernel's. What is begun goes on. The
   processor is woken when something is left again (`wait`).
3. What is whole in one read is let in all the same, and counted: it needs no buffer, and the request queue bounds it.
   So who sends large requests slowly, and holds the pool for long, keeps nobody else out.

Threads: all processors share the pool; each has a `MemoryGate` for its own connections.
Source: Kafka's SimpleMemoryPool, not strict (4.3). Different: a request that waits for nothing gives back when its
processor takes the answer, not when the handler is done with it; and rule 3, without which half a request of a few
clients stops all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection


class MemoryPool:
    """Bytes for requests."""

    def __init__(self, size_bytes: int, now_ns: Callable[[], int]) -> None:
        self.size_bytes = size_bytes  # fixed before start
        self._now_ns = now_ns  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._left = size_bytes  # guarded by: _lock; below 0 when overdrawn
        self._waiting: list[Callable[[], None]] = []  # guarded by: _lock; wakes of processors
        self._depleted_since_ns = 0  # guarded by: _lock; 0 while something is left
        self._depleted_ns = 0  # guarded by: _lock

    def has_room(self) -> bool:
        """Tell whether anything is left, at a glance."""
        return self._left > 0

    def try_take(self, size_bytes: int) -> bool:
        """Count a frame that begins if anything is left (rule 1); tell whether it was."""
        with self._lock:
            if self._left <= 0:
                return False
            self._take_locked(size_bytes)
            return True

    def take(self, size_bytes: int) -> None:
        """Count what is whole, whether anything is left or not (rule 3)."""
        with self._lock:
            self._take_locked(size_bytes)

    def _take_locked(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left <= 0 and not self._depleted_since_ns:
            self._depleted_since_ns = self._now_ns()

    def give_back(self, size_bytes: int) -> None:
        """Uncount a frame; wake who waits if that makes room."""
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
        """Have `wake` called, once, when there is room again; false if there is by now."""
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
        """Return for how long in all nothing was left (MemoryPoolDepletedTimeTotal)."""
        with self._lock:
            since_ns = self._depleted_since_ns
            return self._depleted_ns + (self._now_ns() - since_ns if since_ns else 0)


class MemoryGate:
    """Lets the connections of one processor begin a large frame, or has them wait for memory."""

    def __init__(self, pool: MemoryPool, wake: Callable[[], None]) -> None:
        self._pool = pool  # fixed before start
        self._wake = wake  # fixed before start; has the processor do a turn
        self._starved: dict[Connection, None] = {}  # owner: processor; they have input, the first one first
        self._is_waiting = False  # set by the processor, cleared by whoever makes room

    def begin(self, connection: Connection, size_bytes: int) -> bool:
        """Count a frame of which the beginning is there, or have its connection wait for memory (rule 2)."""
        assert not connection.pooled_bytes, "one frame at a time"
        if self._pool.try_take(size_bytes):
            connection.pooled_bytes = size_bytes
            return True
        self._starved[connection] = None
        self._has_room()
        return False

    def count_whole(self, connection: Connection, size_bytes: int) -> None:
        """Count a frame that is whole, unless it was counted when it began (rule 3)."""
        if not connection.pooled_bytes:
            self.count_more(connection, size_bytes)

    def count_more(self, connection: Connection, size_bytes: int) -> None:
        """Count what came in the same read as the frame that was counted, or is queued again (rule 3)."""
        connection.pooled_bytes += size_bytes
        self._pool.take(size_bytes)

    def release(self, connection: Connection) -> None:
        """Uncount a frame, with what came with it: the last of these requests was answered, one of them waits, or the
        frame will never be whole; by whoever has the request.
        """
        size, connection.pooled_bytes = connection.pooled_bytes, 0
        if size:
            self._pool.give_back(size)

    def forget(self, connection: Connection) -> None:
        """Let a connection wait no more."""
        self._starved.pop(connection, None)

    def is_due(self) -> bool:
        """Tell whether connections waited for memory, and it is there."""
        return bool(self._starved) and not self._is_waiting

    def next_admitted(self) -> Connection | None:
        """Take out the connection that has waited for longest, if there is memory for it."""
        if not self._starved or not self._has_room():
            return None
        connection = next(iter(self._starved))
        del self._starved[connection]
        return connection

    def _has_room(self) -> bool:
        """Tell whether there is memory; if not, the processor will be woken when there is."""
        if self._pool.has_room():
            return True
        if self._is_waiting:
            return False
        self._is_waiting = True
        if self._pool.wait(self._make_room):
            return False
        self._is_waiting = False
        return True

    def _make_room(self) -> None:
        """There is room: on any thread."""
        self._is_waiting = False
        self._wake()
