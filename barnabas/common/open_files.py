"""OpenFiles: keeps the number of files that are held open, or mapped, within what the process may have.

A broker with thousands of partitions would hold a descriptor for each log that was ever written to or read, and a map
for each index that was ever searched. A holder (a segment, an index) says when it opens its file; above the limit the
one that opened first lets go of its own, and opens it again when it needs to. Why not the one used last: noting each
use would cost every append, an opening costs 10 µs.

Rules
1. Letting go does not close under anybody's hands: a holder drops its reference, and the descriptor closes with the
   last one (a reader's, a slice that is being sent).

Threads: any; `_lock` is a leaf.
"""

from __future__ import annotations

import resource
import threading
from typing import Protocol

SHARE = 2  # half of the descriptors are for files, the rest for connections
MAPS_SHARE = 8  # uncompiled, a map has a descriptor (file_maps.py)
LIMIT_MIN = 64
KEPT_SHARE, KEPT_MIN, KEPT_MAX = 64, 16, 1024  # of the descriptors, these are never a connection's
MAPS_MAX = 16_384  # a quarter of the maps that Linux allows a process (vm.max_map_count)


class Holder(Protocol):
    """Somebody who keeps a file open only for speed."""

    def let_go(self) -> None:
        """Drop the file, on another thread than the one that uses it; must not block."""


class OpenFiles:
    """Who keeps a file open, the first one first."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit_of_process() if limit is None else limit  # fixed before start
        self._lock = threading.Lock()
        self._holders: dict[int, Holder] = {}  # guarded by: _lock; by id

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, holder: Holder) -> None:
        """`holder` has opened its file; others let go if these are too many now."""
        with self._lock:
            self._holders[id(holder)] = holder
            excess = self._take_locked(len(self._holders) - self.limit)
        for other in excess:
            other.let_go()

    def remove(self, holder: Holder) -> None:
        """`holder` has closed its file, or wants to keep it whatever happens."""
        with self._lock:
            self._holders.pop(id(holder), None)

    def shrink(self) -> None:
        """Have half of the holders let go: the process has run out of descriptors all the same."""
        with self._lock:
            excess = self._take_locked((len(self._holders) + 1) // 2)
        for other in excess:
            other.let_go()

    def _take_locked(self, count: int) -> list[Holder]:
        """Take out those that opened first."""
        return [self._holders.pop(key) for key in list(self._holders)[:count]] if count > 0 else []


def limit_of_process() -> int:
    """Return how many files may be held open here."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(LIMIT_MIN, soft // SHARE)


def descriptors_for_connections() -> int:
    """Return below which number descriptors may be connections': the rest is kept for files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(KEPT_MAX, max(KEPT_MIN, soft // KEPT_SHARE))


def limit_of_maps() -> int:
    """Return how many files may be mapped here."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(LIMIT_MIN, soft // MAPS_SHARE), MAPS_MAX)


def raise_limit() -> None:
    """Take as many descriptors as the process may have, as a JVM does; the soft limit is often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
