"""Purgatories: where requests wait for an event, or for their time to run out.

To add a new kind of wait: subclass `DelayedOperation` with `try_complete` (check the state, call `force_complete()`
when it is satisfied) and `response` (build the answer, satisfied or expired). Return `Park(operation, purgatory, keys)`
from the API. Add the key to `request.moved` (or call `complete_delayed`) wherever the awaited state changes.

Rules
1. An operation completes exactly once, by the first of: a request that moved its key, its expiration, its owner.
2. `try_complete` runs holding the operation's own lock, so it may take the lock of a partition. Therefore keys are
   checked (`check_all`) without holding the lock of a partition or a log. The interleaving that would
   deadlock:
     1. thread A holds the partition's lock and checks the key: it wants operation X's lock;
     2. thread B checks another key of X: it holds X's lock, and `try_complete` wants the partition's lock.
   Hence `request.moved`: handlers check the keys after the API has returned.
3. Watching must not miss a change: the operation is tried again once it is watched under every key, while its lock is
   held. The interleaving that a single try would lose:
     1. A tries: not satisfied; 2. B changes the state and checks the key: nothing is watched yet; 3. A watches, and no
     thread checks the key again. With the second try, either B finds the watcher or A sees B's change.
4. Completed operations stay in the lists of their other keys until those are checked or purged. `watched()` counts them
   too, `delayed()` only operations whose time still runs.

Threads: any thread may watch, check and complete; the reaper (`ExpirationReaper-<broker>-<name>`) only completes.
Source: Kafka's DelayedOperation, DelayedOperationPurgatory (4.3); KAFKA-8334 for the blocking try.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.timing_wheel import Timer, TimerTask
from barnabas.common.extendable import mypyc_attr
from barnabas.common.locks.factory import new_lock, new_rlock
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.requests.answers import Outcome
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.common.pages.live_shape import Reason

log = logging.getLogger("barnabas.purgatory")

REAPER_WAIT_MS_MAX = 60_000
LOOKS_MAX = 262_144
PURGE_INTERVAL = 1000
_FOR_EVER_MS = -1

Callback: TypeAlias = "Callable[[DelayedOperation], None]"


def _called(_operation: DelayedOperation) -> None:
    """Stand for a callback that was called; never called itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Something a request waits for; its completion runs exactly once.

    `delay_ms` is the longest wait. None is without end; a negative one, which a client may send, ends at once, as in
    Kafka. `lock` serialises `try_complete`; pass the lock of the state it checks, or let the operation have its own.
    """

    __slots__ = ("_callback", "_guard", "_is_completed", "_timer", "is_watched", "lock", "request", "was_tried")

    def __init__(self, delay_ms: int | None, lock: AbstractContextManager[object] | None = None) -> None:
        super().__init__(_FOR_EVER_MS if delay_ms is None else max(0, delay_ms))
        if lock is None:
            lock = new_rlock("operation")  # a leaf unless `try_complete` takes others
        self.lock = lock  # taken before any partition's lock
        self._guard = threading.Lock()  # a leaf: nothing is called while it is held
        self._is_completed = False  # guarded by: _guard; goes to True once
        self._callback: Callback | None = None  # guarded by: _guard; set once, `_called` from then on
        self._timer: Timer | None = None  # set by the purgatory before the operation is timed
        # Set once, by the purgatory that watches it. Others have no keys: a purgatory only times them, and lists none.
        self.is_watched = False
        # Fixed before start: whether its maker has just looked. Then the one try is that of rule 3, once it is watched.
        self.was_tried = False
        self.request: Request | None = None  # set by `bind`: the request that waits, if any

    # For subclasses

    def try_complete(self) -> bool:
        """Check the state and call `force_complete()` when it is satisfied; return what that returned, else false.

        Called holding `lock`, never after completion.
        """
        raise NotImplementedError

    def response(self) -> Outcome:
        """Build the answer, after completion or expiration; called once, on the thread that completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Hook for work at completion; called once, before the answer is built."""

    def on_expiration(self) -> None:
        """Hook to count the expiration; called after completion if the time had run out."""

    def waits_for(self) -> list[Reason]:
        """Return what is missing now, for the live page; called by any thread, at any time, holding no lock."""
        return []

    # For its users

    @property
    def is_completed(self) -> bool:
        """Whether the operation is complete; that does not change back."""
        return self._is_completed

    def force_complete(self) -> bool:
        """Complete the operation whatever its state; true for the one call that did."""
        with self._guard:
            if self._is_completed:
                return False
            self._is_completed = True
            callback = self._take_callback_locked()
        self._finish(callback)
        return True

    def bind(self, callback: Callback, request: Request | None = None) -> None:
        """Set the callback of the completion: called at once if it is complete, else on the completing thread.

        `request` is the one that waits. Only the dispatcher binds (requests/parking.py, rule 1).
        """
        with self._guard:
            assert self._callback is None, "an operation has one callback"
            self.request = request
            if not self._is_completed:
                self._callback = callback
                return
            self._callback = _called
        callback(self)

    def cancel(self) -> None:
        """Stop the operation's timeout; it can still be completed."""
        timer = self._timer
        if timer is not None:
            timer.cancel(self)

    def run(self) -> None:
        """Expire; on the reaper's thread."""
        if self.force_complete():
            self.on_expiration()

    def safe_try_complete(self) -> bool:
        """Try to complete it under its lock; true if this call completed it."""
        if self._is_completed:
            return False
        with self.lock:
            return not self._is_completed and self.try_complete()

    def _take_callback_locked(self) -> Callback | None:
        """Return the callback, and drop it: it refers to the operation, and cycles need the garbage collector."""
        callback = self._callback
        if callback is not None:
            self._callback = _called
        return callback

    def _finish(self, callback: Callback | None) -> None:
        self.cancel()
        self.on_complete()
        if callback is not None:
            callback(self)


@mypyc_attr(allow_interpreted_subclasses=True)
class Deferred(DelayedOperation):
    """An answer that its owner gives, from any thread, once.

    With `timeout_ms` it must be parked in a purgatory (no keys needed); `on_timeout()` is the answer if the owner is
    late. Without it, the wait has no end.
    """

    __slots__ = ("_on_timeout", "_outcome")

    def __init__(self, timeout_ms: int | None = None, on_timeout: Callable[[], Outcome] | None = None) -> None:
        assert (timeout_ms is None) == (on_timeout is None), "a timeout needs its answer"
        super().__init__(timeout_ms)
        self._on_timeout = on_timeout  # fixed before start
        self._outcome: Outcome | None = None  # guarded by: _guard; set by the thread that completes

    def complete(self, outcome: Outcome) -> bool:
        """Give the answer; false if it was given before, or the time had run out."""
        with self._guard:
            if self._is_completed:
                return False
            self._is_completed = True
            self._outcome = outcome
            callback = self._take_callback_locked()
        self._finish(callback)
        return True

    def try_complete(self) -> bool:
        """Return false: only the owner or the timeout completes it."""
        return False

    def response(self) -> Outcome:
        """Return the owner's answer, or that of the timeout."""
        outcome = self._outcome
        if outcome is not None:
            return outcome
        assert self._on_timeout is not None, "completed by neither its owner nor its timeout"
        return self._on_timeout()


class Purgatory:
    """Operations of one kind, each watched under its keys and timed.

    `start` runs the reaper; without it (tests, with a FakeClock) `advance` expires what is due.
    """

    def __init__(self, name: str, clock: Clock, *, broker_id: int = 0, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name  # fixed before start; the metrics' delayedOperation label
        self._timer = Timer(clock)
        self._purge_interval = purge_interval  # fixed before start
        self._lock = new_lock("purgatory")  # a leaf: operations are tried only after it was released
        self._lists: dict[Hashable, list[DelayedOperation]] = {}  # guarded by: _lock; by key
        self._added_count = 0  # guarded by: _lock; operations watched so far, without purged ones
        self._is_running = False  # set by start, cleared by shutdown
        self._reaper = ServiceThread(f"ExpirationReaper-{broker_id}-{name}", f"reaper-{name}", self._reap, daemon=True)

    def start(self) -> None:
        """Start the reaper."""
        self._is_running = True
        self._reaper.start()

    def shutdown(self) -> None:
        """Stop the reaper; operations that still wait end with their connections."""
        self._is_running = False
        self._timer.close()
        if self._reaper.is_alive():
            self._reaper.join()

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Try the operation, else watch it under every key and start its timeout; true if it is complete now.

        The caller holds no lock of a partition. An operation that may wait for ever is not timed.
        """
        operation._timer = self._timer
        if self._try_else_watch(operation, keys):
            return True
        if operation.delay_ms != _FOR_EVER_MS:
            self._time(operation)
        return operation.is_completed

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation watched under `key`; return how many this call completed. Hold no lock."""
        return self.check_all((key,))

    def check_all(self, keys: Collection[Hashable]) -> int:
        """Try every operation watched under any of these keys, once; return how many this call completed.

        Hold no lock.
        """
        lists = self._lists
        # Why unlocked: this runs after every append, mostly in vain. A watcher added after this check tries again
        # itself (rule 3), and the caller changed the state before.
        if not lists:
            return 0
        watched = {key: None for key in keys if key in lists}  # Why no list: a request may name a partition often
        if not watched:
            return 0
        operations: dict[DelayedOperation, None] = {}  # Why no set: it has no order
        with self._lock:
            for key in watched:
                for operation in lists.get(key, ()):
                    operations[operation] = None
        completed = 0
        is_stale = False
        for operation in operations:
            if operation.is_completed:
                is_stale = True
                continue
            try:
                completed += operation.safe_try_complete()
            except Exception:  # Why: a bug of one request must not hold the others back
                log.exception("trying an operation that waits in purgatory %s failed", self.name)
        if completed or is_stale:
            self._drop_completed(watched)
        return completed

    def watched(self) -> int:
        """Return the length of all watch lists (PurgatorySize): an operation counts once a key."""
        with self._lock:
            return sum(map(len, self._lists.values()))

    @property
    def timer(self) -> Timer:
        """The timer of the timeouts."""
        return self._timer

    def now_ms(self) -> int:
        """Return the time of the clock that times the operations (monotonic)."""
        return self._timer.now_ms()

    def delayed(self) -> int:
        """Return how many operations have a running timeout (NumDelayedOperations)."""
        return len(self._timer)

    def waiting(
        self, limit: int, is_wanted: Callable[[Hashable], bool] = lambda _key: True
    ) -> list[tuple[DelayedOperation, list[Hashable]]]:
        """Return up to `limit` waiting operations, the oldest of those examined, each with (some of) its keys.

        `is_wanted` selects keys. Not more than LOOKS_MAX are examined; the lock is held to copy one list at a time.
        """
        found: dict[DelayedOperation, list[Hashable]] = {}
        left = LOOKS_MAX
        with self._lock:
            keys = list(self._lists)
        for key in keys:
            if left <= 0:
                break
            if not is_wanted(key):
                continue
            with self._lock:
                operations = self._lists.get(key, [])[:left]
            left -= len(operations)
            waiting = [operation for operation in operations if not operation.is_completed]  # others linger (rule 4)
            for operation in waiting[:limit]:
                found.setdefault(operation, []).append(key)
        return sorted(found.items(), key=lambda item: item[0].started_ms)[:limit]

    def advance(self) -> int:
        """Expire what is due now and purge if many are complete; return how many tasks ran."""
        ran = self._timer.advance()
        self._maybe_purge()
        return ran

    def _time(self, operation: DelayedOperation) -> None:
        if not operation.is_completed:
            self._timer.add(operation)
        # Why once more: a thread may have completed it before it was timed, and found nothing to cancel.
        if operation.is_completed:
            operation.cancel()

    def _try_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        if not operation.was_tried and operation.safe_try_complete():
            return True
        if not keys:
            return False
        operation.is_watched = True
        with operation.lock:
            with self._lock:
                for key in keys:
                    self._lists.setdefault(key, []).append(operation)
                self._added_count += 1
            is_complete = not operation.is_completed and operation.try_complete()
        if is_complete:
            self._drop_completed(keys)  # Why at once: no timeout of it is about to purge them
        return is_complete

    def _drop_completed(self, keys: Iterable[Hashable]) -> int:
        dropped = 0
        with self._lock:
            for key in keys:
                operations = self._lists.get(key)
                if operations is None:
                    continue
                remaining = [operation for operation in operations if not operation.is_completed]
                dropped += len(operations) - len(remaining)
                if remaining:
                    self._lists[key] = remaining
                else:
                    del self._lists[key]
        return dropped

    def _maybe_purge(self) -> None:
        """Drop completed operations from all lists if more of them than the purge interval may linger."""
        with self._lock:
            delayed = self.delayed()
            if self._added_count - delayed <= self._purge_interval:
                return
            self._added_count = delayed
            keys = list(self._lists)
        purged = 0
        for key in keys:  # Why one at a time: the lock is free in between
            purged += self._drop_completed((key,))
        log.debug("purged %d completed operations from purgatory %s", purged, self.name)

    def _reap(self) -> None:
        while self._is_running:
            self._timer.wait_and_advance(REAPER_WAIT_MS_MAX)
            self._maybe_purge()


@dataclass(slots=True)
class Purgatories:
    """A broker's purgatories. Watch keys: TopicPartition; in `topic`: the topic's name.

    In `share_fetch`: SharePartitionKey, too.
    """

    produce: Purgatory
    fetch: Purgatory
    delete_records: Purgatory
    topic: Purgatory
    share_fetch: Purgatory
