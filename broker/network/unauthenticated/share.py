"""Share: how much of the processor's time goes to connections that are not authenticated yet.

Anybody can open connections, begin TLS handshakes and try passwords. That must not slow down the clients that have
logged in, and logins must not starve behind these either.

Rules
1. While the process has requests to answer, work for connections that are not authenticated gets a share of one core,
   measured as CPU time of the threads that do it. All threads of a process share one account.
2. The share is at least `least_percent`. It is what requests leave of `FULL_PERCENT`, if that is more: of the CPU time,
   and of the moments at which this was asked. Why both: a process that does not get its time uses little, and requests
   are then under way most of the time.
3. Unused time is kept up to `SAVED_NS`, so that a single login is never delayed.
4. When the account is empty, nothing is done before it has a portion again. Why: each return to such work wakes a
   thread, and interrupts another one that has the interpreter's lock.
5. While the process is idle, the work is free: logins then get the whole processor. Idle means that all request
   handlers sleep, no request waits, and none came for `IDLE_NS`.
6. A piece of work is charged after it was done, since its cost is not known before. The account may be overdrawn by one
   piece.

Threads: acceptors and processors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from barnabas.common.clock import NS_PER_MS

FULL_PERCENT: Final = 50
SAVED_NS: Final = 8 * NS_PER_MS
PORTION_NS: Final = 4 * NS_PER_MS  # if its owner asks for no other
IDLE_NS: Final = 250 * NS_PER_MS
LOOK_AGAIN_NS: Final = 50 * NS_PER_MS
MEASURE_NS: Final = 100 * NS_PER_MS


class Requests(Protocol):
    """The request queue, as a share sees it."""

    def is_idle(self) -> bool:
        """Return whether no request waits and all handlers sleep."""

    def last_take_ns(self) -> int:
        """Return when a handler last took a request."""


class CpuTime(NamedTuple):
    """CPU time so far, in nanoseconds."""

    of_thread: Callable[[], int] = time.thread_time_ns  # the calling one
    of_process: Callable[[], int] = time.process_time_ns


CPU_TIME: Final = CpuTime()


class Share:
    """See the module."""

    def __init__(
        self,
        least_percent: int,
        requests: Requests,
        now_ns: Callable[[], int],
        cpu: CpuTime = CPU_TIME,
        portion_ns: int = PORTION_NS,
    ) -> None:
        # Fixed before start.
        self._least_percent = least_percent
        self._requests = requests
        self._now_ns = now_ns
        self._cpu = cpu
        self._portion_ns = portion_ns
        self.cpu_ns = cpu.of_thread
        self._lock = threading.Lock()  # a leaf
        # Guarded by: _lock.
        self._percent = FULL_PERCENT
        self._empty_ns = now_ns() - self._wall_ns(SAVED_NS)  # when the account is or was empty
        self._is_open = True  # false from when the account is empty until it has a portion again
        self._charged_ns = 0  # in all
        self._measured_ns = now_ns()
        self._used_ns = cpu.of_process()  # by all else, up to then
        self._asked = self._busy = 0  # since then: how often it was asked, and found requests under way

    def is_free(self) -> bool:
        """Return whether work costs nothing now (rule 5)."""
        return self._is_idle(self._now_ns())

    def wait_ns(self) -> int:
        """Return 0 if work may be done now, else after how many nanoseconds to ask again."""
        now_ns = self._now_ns()
        with self._lock:
            self._asked += 1
            self._busy += not self._requests.is_idle()
            if now_ns - self._measured_ns >= MEASURE_NS:
                self._measure_locked(now_ns)
            opens_ns = self._empty_ns if self._is_open else self._empty_ns + self._wall_ns(self._portion_ns)
            self._is_open = now_ns > opens_ns
            if self._is_open or self._is_idle(now_ns):
                return 0
            return min(self._empty_ns + self._wall_ns(self._portion_ns) - now_ns + 1, LOOK_AGAIN_NS)

    def charge(self, spent_ns: int) -> None:
        """Take the CPU time of work that was done out of the account, unless the process is idle."""
        now_ns = self._now_ns()
        is_idle = self._is_idle(now_ns)
        with self._lock:
            self._charged_ns += spent_ns
            if not is_idle:
                self._empty_ns = max(self._empty_ns, now_ns - self._wall_ns(SAVED_NS)) + self._wall_ns(spent_ns)

    def _measure_locked(self, now_ns: int) -> None:
        """Set the share by what requests have used since the last time (rule 2)."""
        used_ns = self._cpu.of_process() - self._charged_ns
        used_percent = (used_ns - self._used_ns) * 100 // (now_ns - self._measured_ns)
        used_percent = max(0, used_percent, self._busy * 100 // self._asked)
        self._percent = max(self._least_percent, FULL_PERCENT - used_percent)
        self._measured_ns, self._used_ns = now_ns, used_ns
        self._asked = self._busy = 0

    def _is_idle(self, now_ns: int) -> bool:
        return self._requests.is_idle() and now_ns - self._requests.last_take_ns() >= IDLE_NS

    def _wall_ns(self, cpu_ns: int) -> int:
        """Return how long it takes until the account has gained this much CPU time."""
        return cpu_ns * 100 // self._percent
