"""WaitingSockets: accepted sockets that wait until a processor has time for clients that are not authenticated.

Rules
1. Networks take turns, and the addresses of a network (fair_queue.py). So a client gets in however many connections
   others open, also from many addresses of one network.
2. At most WAITING_MAX wait. Beyond that, a network with as many as the mean or more loses its newest, of an address
   that has many within it.
3. None waits longer than WAIT_NS; its client has lost patience.

Why not in the kernel's backlog: it is one line for all, and drops whoever comes while it is full.

Threads: the acceptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.network.unauthenticated.fair_queue import FairQueue
from barnabas.common.clock import NS_PER_S

if TYPE_CHECKING:
    from barnabas.broker.network.connections import Accepted

WAITING_MAX: Final = 1000
WAIT_NS: Final = 10 * NS_PER_S


class WaitingSockets:
    """See the module."""

    def __init__(self) -> None:
        # owner: acceptor
        self._queue: FairQueue[tuple[int, Accepted]] = FairQueue()  # until when each may wait
        self._look_ns = 0  # when to look for late ones

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, accepted: Accepted, now_ns: int) -> Accepted | None:
        """Add a socket; return one that must be closed instead, if there are too many (rule 2)."""
        queue = self._queue
        lost: Accepted | None = None
        if len(queue) >= WAITING_MAX:
            found = queue.take_for(accepted.address)
            if found is None:
                return accepted
            lost = found[1]
        queue.add(accepted.address, (now_ns + WAIT_NS, accepted))
        return lost

    def take(self) -> Accepted:
        """Remove and return the next one (rule 1); there must be one."""
        return self._queue.take()[1]

    def take_late(self, now_ns: int) -> list[Accepted]:
        """Remove and return those that have waited too long (rule 3); looks once a second."""
        if now_ns < self._look_ns or not self._queue:
            return []
        self._look_ns = now_ns + NS_PER_S
        return [accepted for _, accepted in self._queue.take_all(lambda item: item[0] <= now_ns)]

    def take_all(self) -> list[Accepted]:
        """Remove and return all."""
        return [accepted for _, accepted in self._queue.take_all(lambda _: True)]
