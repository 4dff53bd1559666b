"""When a fault fires: by count, by chance, by time. Pure but for the lock."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.faults.definition import Fault

ARMED, WAITING, SPENT = "armed", "waiting", "spent"


class Trigger:
    """Counts matching calls and says for which of them the fault fires.

    `on_call` n and `times` m: from the n-th call on, m times; `on_call` alone once. `probability` draws for each of
    those calls from `seed`. `after_ms` and `for_ms` bound the time, from the moment the fault was added.

    Threads: any; nothing is called while `_lock` is held.
    """

    def __init__(self, fault: Fault, now_ms: int) -> None:
        self._first = fault.on_call or 1  # fixed before start
        self._times = fault.times or (1 if fault.on_call else None)  # fixed before start; None: without end
        self._probability = fault.probability  # fixed before start
        self._from_ms = now_ms + (fault.after_ms or 0)  # fixed before start
        self._until_ms = None if fault.for_ms is None else self._from_ms + fault.for_ms  # fixed before start
        self._random = random.Random(fault.seed)  # guarded by: _lock
        self._lock = threading.Lock()  # a leaf
        self.calls = 0  # guarded by: _lock; matching ones, while it was its time
        self.fired = 0  # guarded by: _lock

    def is_time(self, now_ms: int) -> bool:
        """Whether the fault is in its window."""
        return self._from_ms <= now_ms and (self._until_ms is None or now_ms < self._until_ms)

    def call(self, now_ms: int) -> bool:
        """Count a matching call; whether the fault fires for it."""
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
        """`waiting` for its time, `armed`, or `spent`: it will not fire any more."""
        if now_ms < self._from_ms:
            return WAITING
        with self._lock:
            is_over = self._is_spent() or (self._until_ms is not None and now_ms >= self._until_ms)
        return SPENT if is_over else ARMED

    def _is_spent(self) -> bool:
        return self._times is not None and self.fired >= self._times
