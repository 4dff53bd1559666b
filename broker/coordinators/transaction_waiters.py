"""Requests for a transactional id that is busy: they wait for a moment instead of being sent away.

A change of an id takes one or two replication rounds. Who is told CONCURRENT_TRANSACTIONS comes again after a back-off
that is several times as long (20 ms between brokers, 100 ms in the Java client). So the shard keeps the request, and
tries it again as soon as the change is made. Only when its time is up is it told CONCURRENT_TRANSACTIONS.

Invariants
1. Waiters of an id are tried in the order in which they came.
2. Who was tried in vain waits on behind the others, but no longer than at first: deadlines are in no order.

Threads: owner is the shard, under its lock.
Different from Apache Kafka, which answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A request. `attempt` carries it out or raises ApiError; `refuse` answers it with an error."""

    transactional_id: str
    attempt: Callable[[], None]
    refuse: Callable[[ErrorCode], object]
    deadline_ms: int  # monotonic


class Waiters:
    """The waiting requests of a shard."""

    def __init__(self) -> None:
        self._order: dict[Waiter, None] = {}  # as they came
        self._by_id: dict[str, list[Waiter]] = {}  # as they came

    def __len__(self) -> int:
        return len(self._order)

    def add(self, waiter: Waiter) -> None:
        """Let a request wait."""
        self._order[waiter] = None
        self._by_id.setdefault(waiter.transactional_id, []).append(waiter)

    def take(self, transactional_id: str) -> list[Waiter]:
        """Remove and return the requests for an id."""
        taken = self._by_id.pop(transactional_id, [])
        for waiter in taken:
            del self._order[waiter]
        return taken

    def take_all(self) -> list[Waiter]:
        """Remove and return every request."""
        taken = list(self._order)
        self._order.clear()
        self._by_id.clear()
        return taken

    def take_late(self, now_ms: int) -> list[Waiter]:
        """Remove and return the requests whose time is up."""
        late = [waiter for waiter in self._order if waiter.deadline_ms <= now_ms]
        for waiter in late:
            del self._order[waiter]
            of_id = self._by_id[waiter.transactional_id]
            of_id.remove(waiter)
            if not of_id:
                del self._by_id[waiter.transactional_id]
        return late

    def next_deadline_ms(self) -> int | None:
        """When the time of the first one is up; None if nobody waits."""
        return min((waiter.deadline_ms for waiter in self._order), default=None)
