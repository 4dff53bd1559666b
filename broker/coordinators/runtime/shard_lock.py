"""A shard's lock, with a queue for events that must not wait for it and a list of actions for after its release.

Theory
A shard appends to its partition while it holds its lock. So a partition's lock, and the locks of delayed operations,
come after the shard's. But commits and due timers are reported by threads that may already hold those locks:
    1. thread A holds the shard and appends: it wants operation X's lock;
    2. thread B holds X's lock, completes X and reports to the shard: it wants the shard.
That is a deadlock. So B only posts an event and continues. The current holder runs the event after it has released the
lock. No event is lost: the poster tries the lock without waiting. If that fails, another thread held the lock *after*
the event was posted, and that thread checks the queue after its release.

Rules
1. `post` never blocks.
2. Actions (`after_release`: answers, wake-ups) run after the lock is released, in order.
3. An event runs on any thread: a reaper's, a fetcher's, another client's handler. So a failing event never raises
   there. The shard handles the failure (`on_failure`, with the lock held), and the remaining events still run. A
   failing action is logged, and the remaining actions still run.

Threads: any.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

log = logging.getLogger("barnabas.group")

Action: TypeAlias = Callable[[], object]


class ShardLock:
    """The lock; hold it with a `with` statement."""

    __slots__ = ("_actions", "_events", "_lock", "_on_failure")

    def __init__(self, on_failure: Callable[[Exception], object]) -> None:
        self._on_failure = on_failure  # fixed before start; called with the lock held
        self._lock = threading.Lock()  # the shard's: taken before any partition's
        self._events: deque[Action] = deque()  # any thread appends; taken out under _lock
        self._actions: list[Action] = []  # guarded by: _lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self._events:
            self._run_events()

    def post(self, event: Action) -> None:
        """Have `event` run with the lock held: now, if the lock is free, else after its holder releases it."""
        self._events.append(event)
        self._run_events()

    def after_release(self, action: Action) -> None:
        """Have `action` run once the lock is released. The caller holds the lock."""
        self._actions.append(action)

    def _release(self) -> None:
        actions = self._actions
        if actions:
            self._actions = []
        self._lock.release()
        for action in actions:
            try:
                action()
            except Exception:
                log.exception("an answer of a coordinator could not be delivered")

    def _run_events(self) -> None:
        while self._events and self._lock.acquire(blocking=False):
            try:
                while self._events:
                    event = self._events.popleft()
                    try:
                        event()
                    except Exception as error:
                        self._on_failure(error)
            finally:
                self._release()
