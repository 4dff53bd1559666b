"""Steps: what a processor does for clients that are not authenticated, one piece at a time.

A step takes an accepted socket over, or continues the TLS handshake or the login of a connection, or ends it.

Rules
1. Steps are done while their share of time lasts (share.py), at most about `TURN_NS` a turn.
2. Networks take turns, and the addresses of a network (fair_queue.py).
3. New sockets and connections that can go on alternate. While more than `MANY` of these wait, they get `STEPS_OF_MANY`
   steps for each new socket: those that have begun come first.

Threads: the processor's own; any thread may call `waiting_sockets`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.selector import BROKEN, HUNG_UP, READABLE, WRITABLE
from barnabas.broker.network.unauthenticated.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.network.connection import Connection
    from barnabas.broker.network.connections import Accepted
    from barnabas.broker.network.unauthenticated.share import Share

TURN_NS: Final = 300_000  # the CPU time after which a turn begins no more steps
MANY: Final = 64
STEPS_OF_MANY: Final = 4


class Steps:
    """See the module. `open_` and `go_on` do a step; `is_urgent` tells that others wait for the processor."""

    __slots__ = ("_accepted", "_go_on", "_is_urgent", "_open", "_ready", "_share", "_since_opened", "waiting")

    def __init__(
        self,
        share: Share,
        open_: Callable[[Accepted], None],
        go_on: Callable[[Connection], None],
        is_urgent: Callable[[], bool],
    ) -> None:
        # Fixed before start.
        self._share = share
        self._open = open_
        self._go_on = go_on
        self._is_urgent = is_urgent
        # owner: processor
        self._accepted: deque[Accepted] = deque()
        self._ready: FairQueue[Connection] = FairQueue()
        self._since_opened = 0
        self.waiting = 0  # sockets and connections; Why counted: the processor looks in every turn

    def waiting_sockets(self) -> int:
        """Return how many accepted sockets wait for their step."""
        return len(self._accepted)

    def accept(self, accepted: Accepted) -> None:
        """Let a step take an accepted socket over."""
        self._accepted.append(accepted)
        self.waiting += 1

    def take_accepted(self) -> deque[Accepted]:
        """Return the sockets that no step took over; there will be no more steps."""
        taken, self._accepted = self._accepted, deque()
        self.waiting -= len(taken)
        return taken

    def resume(self, connection: Connection) -> None:
        """Let a step follow for a connection."""
        if not connection.is_waiting_for_step:
            connection.is_waiting_for_step = True
            self._ready.add(connection.context.client_address, connection)
            self.waiting += 1

    def note(self, connection: Connection, event: int) -> None:
        """Note an event of a connection, since no edge repeats it; a step follows if the connection can go on."""
        if event & HUNG_UP:
            connection.is_hung_up = True
        if event & BROKEN:
            connection.is_broken = True
        if event & READABLE:
            connection.may_have_input = True
        if connection.handshake is not None:
            can_go_on = bool(event & ~WRITABLE) or connection.handshake.has_begun()
        else:
            can_go_on = connection.is_broken or connection.outgoing is not None or not connection.is_muted
        if can_go_on:
            self.resume(connection)

    def wait_ns(self) -> int | None:
        """Return the nanoseconds until steps may be done; None if none waits."""
        return self._share.wait_ns() if self.waiting else None

    def do(self) -> None:
        """Do those of this turn (rule 1)."""
        share = self._share
        spent_ns = 0
        while spent_ns < TURN_NS and self.wait_ns() == 0:
            began_ns = share.cpu_ns()
            self._do_one()
            step_ns = share.cpu_ns() - began_ns
            share.charge(step_ns)
            spent_ns += step_ns
            if self._is_urgent():
                return

    def _do_one(self) -> None:
        self.waiting -= 1
        ready = len(self._ready)
        if self._accepted and (not ready or self._since_opened >= (STEPS_OF_MANY if ready > MANY else 1)):
            self._since_opened = 0
            self._open(self._accepted.popleft())
            return
        self._since_opened += 1
        connection = self._ready.take()
        connection.is_waiting_for_step = False
        self._go_on(connection)
