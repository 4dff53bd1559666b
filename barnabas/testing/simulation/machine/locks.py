"""Locks as `threading` has them; conditions, events, semaphores and queues are the standard library's, built of these.

Each operation is a point of the scheduler. A released lock wakes one waiting task of the seed's choice, and a task that
comes in between may take it first, as the kernel allows.

Threads: any task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.simulation.machine.scheduler import active

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.testing.simulation.machine.scheduler import Task

_HUB = "the hub"  # the owner of a lock that is taken outside of all tasks


class Lock:
    """See threading.Lock."""

    __slots__ = ("_owner", "_scheduler", "_waiters")

    def __init__(self) -> None:
        self._scheduler = active()
        self._owner: Task | str | None = None
        self._waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See threading.Lock."""
        scheduler = self._scheduler
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        scheduler.countdown -= 1  # as `point` does
        if scheduler.countdown <= 0:
            scheduler.interrupt()
        if self._owner is not None and (not blocking or not self._wait(timeout)):
            return False
        self._owner = scheduler.current or _HUB
        return True

    def release(self) -> None:
        """See threading.Lock."""
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._owner = None
        if self._waiters:
            self._wake_one()
        scheduler = self._scheduler
        scheduler.countdown -= 1  # as `point` does
        if scheduler.countdown <= 0:
            scheduler.interrupt()

    def locked(self) -> bool:
        """See threading.Lock."""
        return self._owner is not None

    #: The question of threading.Condition: without it, each wait and each notify would try to take the lock.
    _is_owned = locked

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._owner = None
        self._waiters = []

    def describe(self) -> str:
        """See Wait."""
        return f"a lock of {self._owner!r}" if self._owner is not None else "a free lock"

    def blocker(self) -> Task | None:
        """See Wait."""
        return None if isinstance(self._owner, str) else self._owner

    def _wait(self, timeout: float) -> bool:
        """Wait until the lock is free; false if the time is up first."""
        scheduler = self._scheduler
        deadline_ns = scheduler.deadline_ns(timeout)
        while self._owner is not None:
            task = scheduler.current
            if task is not None:
                self._waiters.append(task)
            # Why not always: a task whose time is up may have been chosen by a release before it got its turn. It must
            # try, or the wake-up would be lost.
            if not scheduler.park(self, deadline_ns) and task in self._waiters:
                self._waiters.remove(task)
                return False
        return True

    def _wake_one(self) -> None:
        scheduler, waiters = self._scheduler, self._waiters
        index = int(scheduler.random.random() * len(waiters)) if len(waiters) > 1 else 0
        scheduler.wake(waiters.pop(index))


class RLock(Lock):
    """See threading.RLock."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See threading.RLock."""
        if self._owner is not None and self._owner is (self._scheduler.current or _HUB):
            self._count += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._count = 1
        return True

    def release(self) -> None:
        """See threading.RLock."""
        if self._owner is None or self._owner is not (self._scheduler.current or _HUB):
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            super().release()

    __enter__ = acquire

    def _is_owned(self) -> bool:
        return self._owner is not None and self._owner is (self._scheduler.current or _HUB)

    # What threading.Condition asks of a lock that may be held more than once.

    def _release_save(self) -> int:
        count, self._count = self._count, 0
        super().release()
        return count

    def _acquire_restore(self, count: int) -> None:
        super().acquire()
        self._count = count
