"""Locks that count: how often they are taken, how often a thread had to wait for them, and how long.

Rules
1. A lock counts while it is held, in numbers of its own, so no other thread writes them. Readers take no lock: they may
   see one number of an acquisition before the others, and no number ever decreases.
2. The tally holds the numbers of a lock, not the lock. A lock that ends gives its numbers to `_ended`, a queue, since
   the collector of garbage may end it on a thread that holds the tally's lock. They are added up when the next lock is
   made or the tally is read. So there are never more numbers than locks were alive at once.
3. Only acquisitions are counted. A try that failed, or whose time ran out, is none.

Threads: any thread may make, take and drop a lock. The scraper reads the tally.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.common.clock import NS_PER_S

if TYPE_CHECKING:
    from types import TracebackType


class Totals(NamedTuple):
    """What all locks of a name have counted."""

    taken: int
    contended: int  # of those: another thread held the lock at first
    waited_s: float


class Counts:
    """What one lock has counted, or the ended ones of a name."""

    __slots__ = ("contended", "name", "taken", "waited_ns")

    def __init__(self, name: str) -> None:
        self.name = name  # fixed before start
        # Owner: whoever holds the lock; of ended locks, the tally's.
        self.taken = 0
        self.contended = 0
        self.waited_ns = 0

    def add(self, other: Counts) -> None:
        """Add what another one has counted."""
        self.taken += other.taken
        self.contended += other.contended
        self.waited_ns += other.waited_ns


class LockTally:
    """The counted locks of a process."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns  # fixed before start; monotonic
        self._lock = threading.Lock()  # a leaf
        self._living: dict[int, Counts] = {}  # guarded by: _lock; by id
        self._past: dict[str, Counts] = {}  # guarded by: _lock; of the ended locks of a name
        self._ended: deque[Counts] = deque()  # any thread appends; emptied under _lock

    def add(self, counts: Counts) -> None:
        """Note the counts of a new lock."""
        with self._lock:
            self._add_ended_locked()
            self._living[id(counts)] = counts

    def end(self, counts: Counts) -> None:
        """Note that the lock of these counts is gone. Takes no lock (rule 2)."""
        self._ended.append(counts)

    def totals(self) -> dict[str, Totals]:
        """Return what was counted until now, by the name of the locks."""
        with self._lock:
            self._add_ended_locked()
            sums: dict[str, Counts] = {}
            for counts in [*self._past.values(), *self._living.values()]:
                sums.setdefault(counts.name, Counts(counts.name)).add(counts)
        return {name: Totals(each.taken, each.contended, each.waited_ns / NS_PER_S) for name, each in sums.items()}

    def living(self) -> int:
        """Return how many locks are alive."""
        with self._lock:
            self._add_ended_locked()
            return len(self._living)

    def _add_ended_locked(self) -> None:
        while self._ended:  # Why no race: only the holder of _lock takes from it
            counts = self._ended.popleft()
            del self._living[id(counts)]
            self._past.setdefault(counts.name, Counts(counts.name)).add(counts)


class CountedLock:
    """A `threading.Lock` that counts. A `threading.Condition` may use it."""

    __slots__ = ("_counts", "_lock", "_tally")

    def __init__(self, name: str, tally: LockTally, lock: Any) -> None:
        self._lock = lock  # fixed before start
        self._tally = tally  # fixed before start
        self._counts = Counts(name)  # counts under the lock itself
        tally.add(self._counts)

    def __del__(self) -> None:
        self._tally.end(self._counts)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See threading.Lock."""
        lock = self._lock
        # Why not always -1: a time limit without blocking is an error, as of a plain lock.
        if lock.acquire(False, -1 if blocking else timeout):
            self._counts.taken += 1
            return True
        if not blocking:
            return False
        began_ns = self._tally.now_ns()
        if not lock.acquire(True, timeout):
            return False
        self._count_wait_locked(began_ns)
        return True

    def release(self) -> None:
        """See threading.Lock."""
        self._lock.release()

    def locked(self) -> bool:
        """See threading.Lock."""
        is_locked: bool = self._lock.locked()
        return is_locked

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def _count_wait_locked(self, began_ns: int) -> None:
        counts = self._counts
        counts.taken += 1
        counts.contended += 1
        counts.waited_ns += self._tally.now_ns() - began_ns


class CountedRLock(CountedLock):
    """A `threading.RLock` that counts; taken again by the thread that holds it, it counts again."""

    __slots__ = ()

    # What threading.Condition asks of a lock that may be held more than once.

    def _is_owned(self) -> bool:
        is_owned: bool = self._lock._is_owned()
        return is_owned

    def _release_save(self) -> Any:
        return self._lock._release_save()

    def _acquire_restore(self, state: Any) -> None:
        lock = self._lock
        is_free = lock.acquire(False)
        if is_free:
            lock.release()
        began_ns = self._tally.now_ns()
        lock._acquire_restore(state)
        if is_free:
            self._counts.taken += 1
        else:
            self._count_wait_locked(began_ns)
