"""OpenFiles: limits the number of files that are held open, or mapped, to the process's limits.

Without it, a broker with thousands of partitions would keep a descriptor for each log that it ever used, and a map for
each index that it ever searched. A holder (a segment, an index) registers when it opens its file. Above the limit, the
holder that opened its file first closes it, and opens it again when it needs it. Why not least recently used: recording
each use would cost time on every append, while opening a file costs 10 µs.

Rules
1. `let_go` never closes a file in use: the holder drops its reference, and the descriptor closes with the last one (a
   reader's, or that of a slice that is being sent).

*Threads*: any; `_lock` is a leaf.
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
    """An object that keeps a file open only for speed."""

    def let_go(self) -> None:
        """Drop the file; any thread may call it, and it must not block."""


class OpenFiles:
    """The holders of open files, in the order in which they opened them."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit_of_process() if limit is None else limit  # fixed before start
        self._lock = threading.Lock()
        self._holders: dict[int, Holder] = {}  # guarded by: _lock; by id

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, holder: Holder) -> None:
        """Note that `holder` has opened its file; above the limit, others let go of theirs."""
        with self._lock:
            self._holders[id(holder)] = holder
            excess = self._take_locked(len(self._holders) - self.limit)
        for other in excess:
            other.let_go()

    def remove(self, holder: Holder) -> None:
        """Note that `holder` has closed its file, or must keep it open."""
        with self._lock:
            self._holders.pop(id(holder), None)

    def shrink(self) -> None:
        """Let half of the holders let go, since the process has run out of descriptors."""
        with self._lock:
            excess = self._take_locked((len(self._holders) + 1) // 2)
        for other in excess:
            other.let_go()

    def _take_locked(self, count: int) -> list[Holder]:
        """Remove and return the `count` first holders."""
        return [self._holders.pop(key) for key in list(self._holders)[:count]] if count > 0 else []


def limit_of_process() -> int:
    """Return how many files this process may hold open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(LIMIT_MIN, soft // SHARE)


def descriptors_for_connections() -> int:
    """Return the number below which a descriptor may be a connection's; the rest is reserved for files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(KEPT_MAX, max(KEPT_MIN, soft // KEPT_SHARE))


def limit_of_maps() -> int:
    """Return how many files this process may map."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(LIMIT_MIN, soft // MAPS_SHARE), MAPS_MAX)


def raise_limit() -> None:
    """Raise the soft limit of descriptors, often 1024, to the hard limit, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
