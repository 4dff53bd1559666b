"""Requests for a busy transactional id: they wait for the pending change, for a short time.

A change takes one or two replication rounds. A client that gets CONCURRENT_TRANSACTIONS retries after a back-off that
is several times as long (20 ms between brokers, 100 ms in the Java client). So the shard keeps the request and retries
it as soon as the change is made. Only when its time is up is the request answered CONCURRENT_TRANSACTIONS.

Invariants
1. The waiters of an id are retried in the order of their arrival.
2. A waiter whose retry fails goes behind the others, with its first deadline. So deadlines are in no order.

Threads: owner is the shard, under its lock.
Different from Apache Kafka, which answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A request: `attempt` carries it out or raises ApiError, `refuse` answers it with an error."""

    transactional_id: str
    attempt: Callable[[], None]
    refuse: Completion[ErrorCode]
    deadline_ms: int  # monotonic


class Waiters:
    """The waiting requests of a shard."""

    def __init__(self) -> None:
        self._order: dict[Waiter, None] = {}  # in order of arrival
        self._by_id: dict[str, list[Waiter]] = {}  # by transactional id, in order of arrival

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
        """Return the earliest deadline (monotonic); None if there is no waiter."""
        return min((waiter.deadline_ms for waiter in self._order), default=None)
