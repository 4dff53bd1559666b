"""Tickets: the credentials of a node, from a keytab, renewed when they grow old.

Rules
1. A ticket is used until `sasl.kerberos.ticket.renew.window.factor` of its life has passed, and a random part of
   `sasl.kerberos.ticket.renew.jitter`. Then the next login gets a new one from the KDC. No thread renews tickets.
2. `sasl.kerberos.min.time.before.relogin` lies between two tries, while the last ticket is good. A warning says why a
   try failed; logins use the last ticket.
3. Without a good ticket a login fails with the KDC's reason. For RETRY_MS other logins fail with the same one, and do
   not ask.
4. One thread asks at a time. Others wait for it only without a good ticket.

Different from Kafka: there a thread renews tickets, and ends when it fails twice.

Threads: any. Source: KerberosLogin (Kafka 4.3).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.security.sasl.gssapi.errors import GssError
from barnabas.security.sasl.gssapi.library import Ticket

log = logging.getLogger("barnabas.sasl")

RETRY_MS: Final = 1000


class Renewal(NamedTuple):
    """When tickets are renewed (rules 1 and 2)."""

    window: float
    jitter: float
    min_ms: int


class _Held(NamedTuple):
    ticket: Ticket
    renew_ms: int  # of the wall clock, as the ticket's own times are
    end_ms: int


class KeytabTickets:
    """See the module. `get` asks the KDC for a ticket; raises GssError."""

    def __init__(
        self,
        get: Callable[[], Ticket],
        clock: Clock,
        renewal: Renewal,
        chance: Callable[[], float] = random.random,
    ) -> None:
        # Fixed before start.
        self._get = get
        self._clock = clock
        self._renewal = renewal
        self._chance = chance
        self._asking = threading.Lock()  # guards the right to ask the KDC, and _tried
        self._held: _Held | None = None  # replaced whole under _asking
        self._tried: tuple[int, GssError | None] | None = None  # when (monotonic), and the error

    def __call__(self) -> Ticket:
        """Return a ticket; raises GssError."""
        held, now_ms = self._held, self._clock.wall_ms()
        if held is not None and now_ms < held.renew_ms:
            return held.ticket
        is_good = held is not None and now_ms < held.end_ms
        if not self._asking.acquire(blocking=not is_good):
            assert held is not None
            return held.ticket
        try:
            return self._renewed()
        finally:
            self._asking.release()

    def _renewed(self) -> Ticket:
        held, now_ms, at_ms = self._held, self._clock.wall_ms(), self._clock.monotonic_ms()
        if held is not None and now_ms < held.renew_ms:  # by another thread, meanwhile
            return held.ticket
        good = held if held is not None and now_ms < held.end_ms else None
        if self._tried is not None:
            tried_ms, error = self._tried
            if good is not None and at_ms - tried_ms < self._renewal.min_ms:
                return good.ticket
            if good is None and error is not None and at_ms - tried_ms < RETRY_MS:
                raise error.again()
        try:
            ticket = self._get()
        except GssError as refused:
            self._tried = self._clock.monotonic_ms(), refused  # Why not `at_ms`: the KDC may have taken long to fail
            if good is None:
                raise
            log.warning(
                "the Kerberos ticket could not be renewed, and ends in %d s: %s", _left_s(good, now_ms), refused
            )
            return good.ticket
        self._tried = at_ms, None
        if good is not None and now_ms + ticket.lifetime_ms <= good.end_ms:
            return good.ticket  # Why: libkrb5 keeps a ticket for half of its life, whatever is asked for
        share = self._renewal.window + self._renewal.jitter * self._chance()
        self._held = _Held(ticket, now_ms + int(min(share, 1.0) * ticket.lifetime_ms), now_ms + ticket.lifetime_ms)
        return ticket


def _left_s(held: _Held, now_ms: int) -> int:
    return (held.end_ms - now_ms) // 1000
