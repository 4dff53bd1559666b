"""Waking share fetches, without recursion.

A share fetch that completes frees its partitions for the next one that waits for them, which may complete in turn. If
each completion woke the next fetch itself, a thousand waiting members would be a thousand nested calls. So the keys to
check are queued, and one thread at a time checks them all.

Why no deadlock: the checking thread may hold the lock of the operation whose completion began the round, and takes
those of others. Every other thread that holds an operation's lock only adds to the queue, and waits for no other one.

Threads: any. The caller holds no lock of a share partition.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from barnabas.broker.purgatory import Purgatory

log = logging.getLogger("barnabas.share")


class Wakes:
    """Checks the keys of a purgatory."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._keys: deque[Hashable] = deque()  # guarded by: _lock
        self._is_checking = False  # guarded by: _lock; a thread goes through the keys

    def now_ms(self) -> int:
        """Return the time of the purgatory's clock (monotonic)."""
        return self._purgatory.now_ms()

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Try the operations that wait for these keys: now, or soon on the thread that is at it."""
        with self._lock:
            self._keys.extend(keys)
            if self._is_checking:
                return
            self._is_checking = True
        while True:
            with self._lock:
                if not self._keys:
                    self._is_checking = False
                    return
                key = self._keys.popleft()
            try:
                self._purgatory.check_and_complete(key)
            except Exception:  # Why: a bug of one request must not end the checks for all others.
                log.exception("completing what waits for %s failed", key)
