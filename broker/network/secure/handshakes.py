"""The connections of one processor whose TLS handshake is not complete.

Rules
1. Handshakes cost much CPU time. The processor continues them as its share for clients that are not authenticated
   allows (network/unauthenticated/share.py).
2. A handshake that is not complete after its time is closed. Those that have begun hold memory, and are limited in
   number. Others wait until one ends, and hold none; networks take turns (unauthenticated/fair_queue.py). While others
   wait, those that have waited for their clients longer than GRACE_NS are closed: an honest client needs milliseconds.
   So thousands of clients that come at once, after a restart, are served in their order.
3. Failed handshakes are logged one line each, at most LINES_MAX in PERIOD_S; the rest are counted in one line.

Threads: the processor's own; any thread may call `count`.
Source: Kafka's Selector (4.3), which bounds neither; the words of the log lines are Kafka's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.unauthenticated.fair_queue import FairQueue
from barnabas.common.clock import NS_PER_MS, NS_PER_S
from barnabas.common.logs import LogLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.network.connection import Connection

log = logging.getLogger("barnabas.network")

GRACE_NS: Final = NS_PER_S
LINES_MAX: Final = 10
PERIOD_S: Final = 10


class Handshakes:
    """See the module. `resume` lets the processor continue a handshake soon."""

    __slots__ = (
        "_begun",
        "_count_max",
        "_lines",
        "_open",
        "_postponed",
        "_resume",
        "_timeout_ns",
        "_turns",
    )

    def __init__(
        self, count_max: int, timeout_ms: int, resume: Callable[[Connection], None], now_ns: Callable[[], int]
    ) -> None:
        self._count_max = count_max  # fixed before start
        self._timeout_ns = timeout_ms * NS_PER_MS  # fixed before start
        self._resume = resume  # fixed before start
        self._lines = LogLimit(log, now_ns, LINES_MAX, PERIOD_S)  # fixed before start
        # owner: processor
        self._open: dict[Connection, int] = {}  # when each began, the oldest first
        self._begun: dict[Connection, int] = {}  # those of them with a TLS session, likewise
        self._postponed: set[Connection] = set()  # those that may not begin yet
        self._turns: FairQueue[Connection] = FairQueue()  # whose turn it is among them; some may have ended

    def count(self) -> int:
        """Return how many there are."""
        return len(self._open)

    def add(self, connection: Connection, now_ns: int) -> None:
        """Add a connection, from whose client nothing has come."""
        self._open[connection] = now_ns

    def may_begin(self, connection: Connection, now_ns: int) -> bool:
        """Return whether a client's first bytes may be handled now; otherwise they are once another has ended."""
        if len(self._begun) >= self._count_max:
            if connection not in self._postponed:
                self._postponed.add(connection)
                self._turns.add(connection.context.client_address, connection)
            return False
        self._begun[connection] = now_ns
        return True

    def overdue(self, now_ns: int) -> list[Connection]:
        """Return those that must make way for the ones that may not begin yet (rule 2)."""
        found: list[Connection] = []
        for connection, began_ns in self._begun.items():
            if len(found) == len(self._postponed) or now_ns - began_ns < GRACE_NS:
                break
            if not connection.is_waiting_for_step:
                found.append(connection)
        return found

    def end(self, connection: Connection) -> None:
        """Forget a connection: its handshake is complete, or it is closed."""
        self._open.pop(connection, None)
        self._postponed.discard(connection)
        self._begun.pop(connection, None)
        # Why not only after one that had begun: one that was resumed may end before it begins, and its turn with it.
        while self._turns and len(self._begun) < self._count_max:
            following = self._turns.take()
            if following in self._postponed:
                self._postponed.discard(following)
                self._resume(following)
                return

    def expired(self, now_ns: int) -> list[Connection]:
        """Return the connections whose time is up."""
        found = []
        for connection, began_ns in self._open.items():
            if now_ns - began_ns < self._timeout_ns:
                break
            found.append(connection)
        return found

    def log_failure(self, connection: Connection, reason: str) -> None:
        """Log a failed handshake (rule 3)."""
        if self._lines.admits(logging.INFO, "TLS handshakes failed"):
            context = connection.context
            log.info(
                "Failed authentication with %s (channelId=%s) (SSL handshake failed: %s)",
                context.client_address,
                context.connection_id,
                reason,
            )
