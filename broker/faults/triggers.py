"""The calls for which a fault fires: by count, probability and time. Pure, apart from the lock."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.faults.definition import Fault

ARMED, WAITING, SPENT = "armed", "waiting", "spent"


class Trigger:
    """Counts matching calls and decides for which of them the fault fires.

    `on_call` n with `times` m fires m times from the n-th call on; `on_call` alone fires once. `probability` applies to
    each of these calls, with random numbers from `seed`. `after_ms` and `for_ms` limit the time, from when the fault
    was added.

    Threads: any. `_lock` is a leaf.
    """

    def __init__(self, fault: Fault, now_ms: int) -> None:
        self._first = fault.on_call or 1  # fixed before start
        self._times = fault.times or (1 if fault.on_call else None)  # fixed before start; None: without end
        self._probability = fault.probability  # fixed before start
        self._from_ms = now_ms + (fault.after_ms or 0)  # fixed before start
        self._until_ms = None if fault.for_ms is None else self._from_ms + fault.for_ms  # fixed before start
        self._random = random.Random(fault.seed)  # guarded by: _lock
        self._lock = threading.Lock()  # a leaf
        self.calls = 0  # guarded by: _lock; matching calls within the time
        self.fired = 0  # guarded by: _lock

    def is_time(self, now_ms: int) -> bool:
        """Whether the time is between `after_ms` and the end of `for_ms`."""
        return self._from_ms <= now_ms and (self._until_ms is None or now_ms < self._until_ms)

    def call(self, now_ms: int) -> bool:
        """Count a matching call; return whether the fault fires for it."""
        if not self.is_time(now_ms):
            return False
        with self._lock:
            if self._is_spent():
                return False
            self.calls += 1
            if self.calls < self._first:
                return False
            if self._probability is not None and self._random.random() >= self._probability:
                return False
            self.fired += 1
            return True

    def state(self, now_ms: int) -> str:
        """Return `waiting` (before its time), `armed`, or `spent` (it will never fire again)."""
        if now_ms < self._from_ms:
            return WAITING
        with self._lock:
            is_over = self._is_spent() or (self._until_ms is not None and now_ms >= self._until_ms)
        return SPENT if is_over else ARMED

    def _is_spent(self) -> bool:
        return self._times is not None and self.fired >= self._times
