"""Where requests wait for something to happen, or for their time to run out.

How a new kind of waiting is added: subclass `DelayedOperation` with `try_complete` (look at the state, call
`force_complete()` when it is satisfied) and `response` (build the answer, satisfied or expired); return
`Park(operation, purgatory, keys)` from the API; add the key to `request.moved` (or call `complete_delayed`) wherever
the awaited state changes.

Rules
1. An operation completes exactly once, whoever gets there first: a request that moved its key, its expiration, its
   owner.
2. `try_complete` runs holding the operation's own lock, so it may take the lock of a partition; therefore keys are
   checked (`check_and_complete`) holding no lock of a partition or a log. The interleaving that forbids it:
     1. thread A holds the partition's lock and checks the key: it wants operation X's lock;
     2. thread B checks another key of X: it holds X's lock, and `try_complete` wants the partition's lock.
   Neither can go on. Hence `request.moved`: handlers wake the purgatories after the API has returned.
3. Watching must not miss a change: the operation is tried again once it is watched under every key, while its lock is
   held. The interleaving that one try alone would lose:
     1. A tries: not satisfied; 2. B changes the state and checks the key: nothing is watched yet; 3. A watches: nobody
     will come again. With the second try, either B finds the watcher or A sees B's change.
4. Completed operations linger in the lists of their other keys until those are checked or purged; `watched()` counts
   them too, `delayed()` only those whose time still runs.

Threads: any thread may watch, check and complete; the reaper (`ExpirationReaper-<broker>-<name>`) only completes.
Source: Kafka's DelayedOperation, DelayedOperationPurgatory (4.3); KAFKA-8334 for the blocking try.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.answers import Close, NoReply, Reply
from barnabas.broker.timing_wheel import Timer, TimerTask
from barnabas.common.extendable import mypyc_attr
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.request_channel import Request
    from barnabas.common.clock import Clock
    from barnabas.common.live_shape import Reason
    from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.purgatory")

SHARD_COUNT = 16
REAPER_WAIT_MS_MAX = 60_000
LOOKS_A_SHARD = 16_384
PURGE_INTERVAL = 1000
_FOR_EVER_MS = -1

Outcome: TypeAlias = "Message | Reply | NoReply | Close"
Callback: TypeAlias = "Callable[[DelayedOperation], None]"


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Something a request waits for; its completion runs exactly once.

    `delay_ms` is the longest wait: None is for ever; a negative one, which a client may send, is over at once, as in
    Kafka. `lock` serialises `try_complete`; pass one to share it with the state it looks at,
    else the operation has its own.
    """

    __slots__ = ("_callback", "_guard", "_is_completed", "_timer", "lock", "request")

    def __init__(self, delay_ms: int | None, lock: Any = None) -> None:
        super().__init__(_FOR_EVER_MS if delay_ms is None else max(0, delay_ms))
        self.lock = lock if lock is not None else threading.RLock()  # taken before any partition's lock
        self._guard = threading.Lock()  # a leaf: nothing is called while it is held
        self._is_completed = False  # guarded by: _guard; goes to True once
        self._callback: Callback | None = None  # guarded by: _guard; set once
        self._timer: Timer | None = None  # set by the purgatory before the operation is timed
        self.request: Request | None = None  # set by `bind`: who is answered, if a request waits

    # What a subclass says

    def try_complete(self) -> bool:
        """Look at the state and call `force_complete()` when it is satisfied; return what that returned.

        Called holding `lock`, never after completion.
        """
        raise NotImplementedError

    def response(self) -> Outcome:
        """Build the answer, after completion or expiration; called once, on the thread that completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Do what completion entails besides the answer; called once, before the answer is built."""

    def on_expiration(self) -> None:
        """Count the expiration; called after completion when the time had run out."""

    def waits_for(self) -> list[Reason]:
        """Tell what is missing now, for the live page: called by any thread, holding nothing, at any time."""
        return []

    # What others do with it

    @property
    def is_completed(self) -> bool:
        return self._is_completed

    def force_complete(self) -> bool:
        """Complete the operation whatever its state; true for the one caller who did."""
        with self._guard:
            if self._is_completed:
                return False
            self._is_completed = True
            callback = self._callback
        self._finish(callback)
        return True

    @property
    def is_in_purgatory(self) -> bool:
        """Whether a purgatory was given it, to watch or to time; else it waits for its owner only."""
        return self._timer is not None

    def bind(self, callback: Callback, request: Request | None = None) -> None:
        """Say who is told of the completion: at once when it is complete already, else on the completing thread.

        `request` is the one that waits.
        """
        with self._guard:
            assert self._callback is None, "an operation answers to one caller"
            self._callback = callback
            self.request = request
            if not self._is_completed:
                return
        callback(self)

    def cancel(self) -> None:
        """Stop the clock of the operation; it can still be completed."""
        timer = self._timer
        if timer is not None:
            timer.cancel(self)

    def run(self) -> None:
        """Expire: on the reaper's thread."""
        if self.force_complete():
            self.on_expiration()

    def safe_try_complete(self) -> bool:
        """Try under the operation's lock; true when this call completed it."""
        if self._is_completed:
            return False
        with self.lock:
            return not self._is_completed and self.try_complete()

    def _finish(self, callback: Callback | None) -> None:
        self.cancel()
        self.on_complete()
        if callback is not None:
            callback(self)


@mypyc_attr(allow_interpreted_subclasses=True)
class Deferred(DelayedOperation):
    """An answer that its owner will give, from any thread, once.

    With `timeout_ms` it must be parked in a purgatory (no keys needed), which gives `on_timeout()` as the answer when
    the owner is late; without, it waits for ever.
    """

    __slots__ = ("_on_timeout", "_outcome")

    def __init__(self, timeout_ms: int | None = None, on_timeout: Callable[[], Outcome] | None = None) -> None:
        assert (timeout_ms is None) == (on_timeout is None), "a timeout needs its answer"
        super().__init__(timeout_ms)
        self._on_timeout = on_timeout  # fixed before start
        self._outcome: Outcome | None = None  # guarded by: _guard; set by the one who completes

    def complete(self, outcome: Outcome) -> bool:
        """Give the answer; false when it was given before, or the time had run out."""
        with self._guard:
            if self._is_completed:
                return False
            self._is_completed = True
            self._outcome = outcome
            callback = self._callback
        self._finish(callback)
        return True

    def try_complete(self) -> bool:
        return False

    def response(self) -> Outcome:
        outcome = self._outcome
        if outcome is not None:
            return outcome
        assert self._on_timeout is not None, "completed by neither its owner nor its timeout"
        return self._on_timeout()


class Shard:
    """The watch lists of some keys."""

    __slots__ = ("lists", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # a leaf: operations are tried only after it was released
        self.lists: dict[Hashable, list[DelayedOperation]] = {}  # guarded by: lock


class Purgatory:
    """Operations of one kind, each watched under its keys and timed.

    `start` runs the reaper; without it (tests, with a FakeClock) `advance` expires what is due.
    """

    def __init__(self, name: str, clock: Clock, *, broker_id: int = 0, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name  # fixed before start; the metrics' delayedOperation label
        self._timer = Timer(clock)
        self._purge_interval = purge_interval  # fixed before start
        self._shards = tuple(Shard() for _ in range(SHARD_COUNT))
        self._added_lock = threading.Lock()  # a leaf
        self._added_count = 0  # guarded by: _added_lock; operations watched since, less those purged
        self._is_running = False  # set by start, cleared by shutdown
        self._reaper = ServiceThread(f"ExpirationReaper-{broker_id}-{name}", f"reaper-{name}", self._reap, daemon=True)

    def start(self) -> None:
        """Start the reaper."""
        self._is_running = True
        self._reaper.start()

    def shutdown(self) -> None:
        """Stop the reaper; operations still waiting are left to their connections' end."""
        self._is_running = False
        self._timer.close()
        if self._reaper.is_alive():
            self._reaper.join()

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Try the operation, else watch it under every key and start its time; true when it is complete by now.

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
        shard = self._shards[hash(key) % SHARD_COUNT]
        # Why unlocked: this runs after every append, mostly for nothing. A watcher added after this look tries again
        # itself (rule 3), and whoever calls changed the state before.
        if key not in shard.lists:
            return 0
        with shard.lock:
            watched = list(shard.lists.get(key, ()))
        completed = 0
        is_stale = False
        for operation in watched:
            if operation.is_completed:
                is_stale = True
            elif operation.safe_try_complete():
                completed += 1
        if completed or is_stale:
            self._drop_completed(shard, key)
        return completed

    def watched(self) -> int:
        """Return how many places the watch lists hold (PurgatorySize): an operation counts once a key."""
        count = 0
        for shard in self._shards:
            with shard.lock:
                count += sum(map(len, shard.lists.values()))
        return count

    def delayed(self) -> int:
        """Return how many operations' time still runs (NumDelayedOperations)."""
        return len(self._timer)

    def operations_for(self, key: Hashable) -> list[DelayedOperation]:
        """Return what is watched under `key` and not complete, oldest first."""
        shard = self._shards[hash(key) % SHARD_COUNT]
        with shard.lock:
            return [operation for operation in shard.lists.get(key, ()) if not operation.is_completed]

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Stop watching `key`: its operations are no longer timed nor tried for it; return those not complete."""
        shard = self._shards[hash(key) % SHARD_COUNT]
        with shard.lock:
            operations = shard.lists.pop(key, [])
        for operation in operations:
            operation.cancel()
        return [operation for operation in operations if not operation.is_completed]

    def waiting(
        self, limit: int, is_wanted: Callable[[Hashable], bool] = lambda _key: True
    ) -> list[tuple[DelayedOperation, list[Hashable]]]:
        """Return up to `limit` of the waiting operations, the oldest ones looked at, each with (some of) its keys.

        `is_wanted` chooses keys. Where there are many, not all are looked at: no shard is held for longer than it takes
        to copy LOOKS_A_SHARD places.
        """
        found: dict[DelayedOperation, list[Hashable]] = {}
        for shard in self._shards:
            looked_at: list[tuple[Hashable, list[DelayedOperation]]] = []
            left = LOOKS_A_SHARD
            with shard.lock:
                for key, operations in shard.lists.items():
                    if left <= 0:
                        break
                    if is_wanted(key):
                        looked_at.append((key, operations[:left]))
                        left -= len(operations)
            for key, operations in looked_at:
                waiting = [operation for operation in operations if not operation.is_completed]  # others linger (4)
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
        # Why once more: it may have been completed between the look and the timing, by one who found nothing to cancel.
        if operation.is_completed:
            operation.cancel()

    def _try_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        if operation.safe_try_complete():
            return True
        if not keys:
            return False
        with operation.lock:
            for key in keys:
                if operation.is_completed:
                    break
                self._watch(key, operation)
            with self._added_lock:
                self._added_count += 1
            return not operation.is_completed and operation.try_complete()

    def _watch(self, key: Hashable, operation: DelayedOperation) -> None:
        shard = self._shards[hash(key) % SHARD_COUNT]
        with shard.lock:
            shard.lists.setdefault(key, []).append(operation)

    def _drop_completed(self, shard: Shard, key: Hashable) -> int:
        with shard.lock:
            operations = shard.lists.get(key)
            if operations is None:
                return 0
            remaining = [operation for operation in operations if not operation.is_completed]
            if remaining:
                shard.lists[key] = remaining
            else:
                del shard.lists[key]
            return len(operations) - len(remaining)

    def _maybe_purge(self) -> None:
        """Drop completed operations from all lists once more than the purge interval of them may linger."""
        with self._added_lock:
            delayed = self.delayed()
            if self._added_count - delayed <= self._purge_interval:
                return
            self._added_count = delayed
        purged = 0
        for shard in self._shards:
            with shard.lock:
                keys = list(shard.lists)
            purged += sum(self._drop_completed(shard, key) for key in keys)
        log.debug("purged %d completed operations from purgatory %s", purged, self.name)

    def _reap(self) -> None:
        while self._is_running:
            self._timer.wait_and_advance(REAPER_WAIT_MS_MAX)
            self._maybe_purge()
