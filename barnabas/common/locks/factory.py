"""Makes the locks that most requests take: plain ones, unless their contention is measured.

`count_locks` is called before a server is built (`barnabas.lock.counts`). A plain lock is Python's own, so what is not
measured costs nothing. docs/internals/threads.md says how to read the counts.

Threads: `count_locks` is called by main before the first thread starts; any thread may make locks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, cast

from barnabas.common.clock import SystemClock
from barnabas.common.locks.counting import CountedLock, CountedRLock, LockTally

_tally: LockTally | None = None  # fixed before start; None: locks do not count


def count_locks(now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
    """Make locks that count from now on."""
    global _tally
    _tally = LockTally(now_ns)


def lock_tally() -> LockTally | None:
    """Return the tally of the locks; None if they do not count."""
    return _tally


def new_lock(name: str) -> threading.Lock:
    """Return a new lock; locks of the same name count together."""
    if _tally is None:
        return threading.Lock()  # for the caller, who says what it guards
    return cast(threading.Lock, CountedLock(name, _tally, threading.Lock()))


def new_rlock(name: str) -> threading.RLock:
    """Return a new lock that its owner may take again; locks of the same name count together."""
    if _tally is None:
        return threading.RLock()  # for the caller, who says what it guards
    return cast(threading.RLock, CountedRLock(name, _tally, threading.RLock()))


def count_mutex(fresh: queue.Queue[Any], name: str) -> None:
    """Have the mutex of a queue that nobody uses yet count, if locks do."""
    if _tally is None:
        return
    fresh.mutex = new_lock(name)  # as in Queue.__init__: the conditions share it
    fresh.not_empty = threading.Condition(fresh.mutex)
    fresh.not_full = threading.Condition(fresh.mutex)
    fresh.all_tasks_done = threading.Condition(fresh.mutex)
