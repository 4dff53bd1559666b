"""The parts of a process that wait by the moved clock.

A part is woken after each move, since it sleeps until a deadline of the time before. Then it reports its open work,
until there is none: everything that was due has run, and so has what that caused.

Threads: the thread of a page calls; each part has its own lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.persister.persister import SharePersister
    from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
    from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.purgatory import Purgatories, Purgatory
    from barnabas.broker.storage.cleaner.log_cleaner import LogCleaner
    from barnabas.broker.storage.scheduler import Scheduler
    from barnabas.broker.wiring.coordinators import Coordinators


class Part(Protocol):
    """See the module."""

    def moved(self, *, is_last: bool) -> None:
        """Look at the clock again. After the last move of a walk, periodic work is due at once."""

    def busy(self) -> Sequence[str]:
        """Return the names of the work that is due or in progress because of the time."""

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """Return the names of what such work has begun and left to others.

        The answer counts once no part is busy (`is_calm`).
        """

    def next_due_ms(self) -> int | None:
        """Return the next deadline (monotonic, moved) that a walk must not jump over; None without one."""


class SchedulerPart:
    """The scheduler: retention, checkpoints, aborts of transactions. Deadlines: the tasks that run once."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler  # fixed before start

    def moved(self, *, is_last: bool) -> None:
        """See Part."""
        self._scheduler.clock_moved(runs_all=is_last)

    def busy(self) -> Sequence[str]:
        """See Part."""
        return self._scheduler.behind()

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        return ()

    def next_due_ms(self) -> int | None:
        """See Part."""
        return self._scheduler.next_once_ms()


class FetchPart:
    """The purgatory of Fetch or ShareFetch requests; the latter's timer has the acquisition locks, too.

    Its deadlines are passed over: nothing follows from the end of a wait, and a lock that has run out is released once,
    however long ago that was.
    """

    def __init__(self, purgatory: Purgatory, name: str = "fetch-purgatory") -> None:
        self._purgatory = purgatory  # fixed before start
        self._name = name  # fixed before start

    def moved(self, *, is_last: bool) -> None:
        """See Part."""
        self._purgatory.timer.clock_moved()

    def busy(self) -> Sequence[str]:
        """See Part."""
        return [self._name] if self._purgatory.timer.is_behind() else []

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        return ()

    def next_due_ms(self) -> int | None:
        """See Part."""
        return None


class Drain:
    """Waits for the writes of a coordinator's shards: those that were there when nothing was busy any more.

    Why not until there are none: clients that commit all the time would keep a walk from ever going on.
    """

    def __init__(self) -> None:
        self._end_offsets: dict[CommittedWrites, int] | None = None  # owner: the hand; None: not begun

    def is_dry(self, shards: Sequence[CommittedWrites], is_calm: bool) -> bool:
        """Return whether the writes that the first calm call found are committed, or their shards gone.

        A call that is not calm forgets them.
        """
        if not is_calm:
            self._end_offsets = None
            return True
        if self._end_offsets is None:
            self._end_offsets = {writes: writes.end_offset() for writes in shards}
        ends = self._end_offsets
        return all(writes.is_written_to(ends[writes]) for writes in shards if writes in ends)


class GroupsPart:
    """The group coordinator: sessions, rebalances, expiry of offsets."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups  # fixed before start
        self._drain = Drain()

    def moved(self, *, is_last: bool) -> None:
        """See Part."""
        self._groups.timer.clock_moved()
        if is_last:
            self._groups.expire()

    def busy(self) -> Sequence[str]:
        """See Part."""
        return ["groups"] if self._groups.timer.is_behind() or self._groups.has_jobs else []

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        return [] if self._drain.is_dry(self._groups.writes(), is_calm) else ["groups"]

    def next_due_ms(self) -> int | None:
        """See Part."""
        return self._groups.timer.next_due_ms()


class TransactionsPart:
    """The transaction coordinator; the scheduler runs its periodic tasks."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions  # fixed before start
        self._drain = Drain()
        self._changing: set[str] | None = None  # owner: the hand; ids that are not done, as `Drain` keeps offsets

    def moved(self, *, is_last: bool) -> None:
        """See Part."""

    def busy(self) -> Sequence[str]:
        """See Part."""
        return ["transactions"] if self._transactions.has_jobs else []

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        is_dry = self._drain.is_dry(self._transactions.writes(), is_calm)
        if not is_calm:
            self._changing = None
            return ()
        changing = self._transactions.changing()
        self._changing = changing if self._changing is None else self._changing & changing
        return [] if is_dry and not self._changing else ["transactions"]

    def next_due_ms(self) -> int | None:
        """See Part."""
        return None


class ShareStatePart:
    """The share coordinator, and what this broker sends to coordinators; the scheduler runs the periodic tasks."""

    def __init__(self, coordinator: ShareCoordinator, persister: SharePersister) -> None:
        self._coordinator = coordinator  # fixed before start
        self._persister = persister  # fixed before start
        self._drain = Drain()
        self._sent: frozenset[object] | None = None  # owner: the hand; operations that are not done, as `Drain` has it

    def moved(self, *, is_last: bool) -> None:
        """See Part."""

    def busy(self) -> Sequence[str]:
        """See Part."""
        return ["share-state"] if self._coordinator.has_jobs else []

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        is_dry = self._drain.is_dry(self._coordinator.writes(), is_calm)
        if not is_calm:
            self._sent = None
            return ()
        sent = self._persister.sent()
        self._sent = sent if self._sent is None else self._sent & sent
        return [] if is_dry and not self._sent else ["share-state"]

    def next_due_ms(self) -> int | None:
        """See Part."""
        return None


class CleanerPart:
    """The log cleaner."""

    def __init__(self, cleaner: LogCleaner) -> None:
        self._cleaner = cleaner  # fixed before start

    def moved(self, *, is_last: bool) -> None:
        """See Part."""
        self._cleaner.look_now()

    def busy(self) -> Sequence[str]:
        """See Part."""
        return [] if self._cleaner.is_idle else ["log-cleaner"]

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        return ()

    def next_due_ms(self) -> int | None:
        """See Part."""
        return None


class EventPart:
    """Work that a controller's event thread does after the last move; `submit(then)` calls `then` when it is done."""

    def __init__(self, name: str, submit: Callable[[Callable[[object], None]], None]) -> None:
        self._name = name  # fixed before start
        self._submit = submit  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._open = 0  # guarded by: _lock; how many submitted events are not done

    def moved(self, *, is_last: bool) -> None:
        """See Part."""
        if is_last:
            with self._lock:
                self._open += 1
            self._submit(self._done)

    def busy(self) -> Sequence[str]:
        """See Part."""
        return [self._name] if self._open else []

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        """See Part."""
        return ()

    def next_due_ms(self) -> int | None:
        """See Part."""
        return None

    def _done(self, _result: object) -> None:
        with self._lock:
            self._open -= 1


def parts_of(
    scheduler: Scheduler,
    purgatories: Purgatories,
    coordinators: Coordinators,
    cleaner: LogCleaner,
) -> list[Part]:
    """Return the parts of a broker."""
    return [
        SchedulerPart(scheduler),
        FetchPart(purgatories.fetch),
        FetchPart(purgatories.share_fetch, "share-fetch-purgatory"),
        GroupsPart(coordinators.groups),
        TransactionsPart(coordinators.transactions),
        ShareStatePart(coordinators.share_state, coordinators.persister),
        CleanerPart(cleaner),
    ]
