"""The connections of one processor whose TLS handshake is not complete.

Rules
1. Handshakes cost much CPU time. A turn of the processor continues at most HANDSHAKES_A_TURN of them, so that the
   requests of others never wait for all of them.
2. A handshake that is not complete after its time is closed. Those that have begun hold memory, and are limited in
   number. Others wait until one ends, and hold none. While others wait, those that have waited for their clients longer
   than GRACE_NS are closed: an honest client needs milliseconds. So thousands of clients that come at once, after a
   restart, are served in their order.
3. Failed handshakes are logged one line each, at most FAILURES_LOGGED in FAILURES_NS; the rest are counted in one line.

Threads: the processor's own; any thread may call `count`.
Source: Kafka's Selector (4.3), which bounds neither; the words of the log lines are Kafka's.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from barnabas.broker.network.connection import Connection

log = logging.getLogger("barnabas.network")

HANDSHAKES_A_TURN: Final = 1  # a turn costs a hundredth of one
GRACE_NS: Final = NS_PER_S
FAILURES_LOGGED: Final = 10
FAILURES_NS: Final = 10 * NS_PER_S


class Handshakes:
    """See the module."""

    __slots__ = (
        "_begun",
        "_count_max",
        "_failures",
        "_logged_until_ns",
        "_open",
        "_postponed",
        "_ready",
        "_timeout_ns",
    )

    def __init__(self, count_max: int, timeout_ms: int) -> None:
        self._count_max = count_max  # fixed before start
        self._timeout_ns = timeout_ms * NS_PER_MS  # fixed before start
        # owner: processor
        self._open: dict[Connection, int] = {}  # when each began, the oldest first
        self._begun: dict[Connection, int] = {}  # those of them with a TLS session, likewise
        self._postponed: dict[Connection, None] = {}  # those that may not begin yet, the first to come first
        self._ready: deque[Connection] = deque()  # something happened to them
        self._failures = 0  # since the log's present interval began
        self._logged_until_ns = 0  # the end of that interval

    def count(self) -> int:
        """Return how many there are."""
        return len(self._open)

    def add(self, connection: Connection, now_ns: int) -> None:
        """Add a connection, from whose client nothing has come."""
        self._open[connection] = now_ns

    def may_begin(self, connection: Connection, now_ns: int) -> bool:
        """Return whether a client's first bytes may be handled now; otherwise they are once another has ended."""
        if len(self._begun) >= self._count_max:
            self._postponed[connection] = None
            return False
        self._begun[connection] = now_ns
        return True

    def overdue(self, now_ns: int) -> list[Connection]:
        """Return those that must make way for the ones that may not begin yet (rule 2)."""
        found: list[Connection] = []
        for connection, began_ns in self._begun.items():
            if len(found) == len(self._postponed) or now_ns - began_ns < GRACE_NS:
                break
            if not connection.is_ready_for_handshake:
                found.append(connection)
        return found

    def note(self, connection: Connection) -> None:
        """Continue a handshake soon: bytes came, or the socket is writable again."""
        if not connection.is_ready_for_handshake:
            connection.is_ready_for_handshake = True
            self._ready.append(connection)

    def has_ready(self) -> bool:
        """Return whether a handshake can be continued now."""
        return bool(self._ready)

    def take_ready(self) -> list[Connection]:
        """Return those that this turn continues (rule 1); some may be closed already."""
        taken = [self._ready.popleft() for _ in range(min(HANDSHAKES_A_TURN, len(self._ready)))]
        for connection in taken:
            connection.is_ready_for_handshake = False
        return taken

    def end(self, connection: Connection) -> None:
        """Forget a connection: its handshake is complete, or it is closed."""
        self._open.pop(connection, None)
        self._postponed.pop(connection, None)
        if self._begun.pop(connection, None) is not None and self._postponed:
            following = next(iter(self._postponed))
            del self._postponed[following]
            self.note(following)

    def expired(self, now_ns: int) -> list[Connection]:
        """Return the connections whose time is up."""
        found = []
        for connection, began_ns in self._open.items():
            if now_ns - began_ns < self._timeout_ns:
                break
            found.append(connection)
        return found

    def log_failure(self, connection: Connection, reason: str, now_ns: int) -> None:
        """Log a failed handshake (rule 3)."""
        if now_ns >= self._logged_until_ns:
            if self._failures > FAILURES_LOGGED:
                log.info("%d more TLS handshakes have failed", self._failures - FAILURES_LOGGED)
            self._failures = 0
            self._logged_until_ns = now_ns + FAILURES_NS
        self._failures += 1
        if self._failures <= FAILURES_LOGGED:
            context = connection.context
            log.info(
                "Failed authentication with %s (channelId=%s) (SSL handshake failed: %s)",
                context.client_address,
                context.connection_id,
                reason,
            )
