"""Cut links: what this node sends to another, or hears from it, does not get through.

A link is named by the node at its other end, and cut in the direction `to` it, `from` it, or both. Requests count, not
packets: an answer goes with its request. What this node sends is stopped in its own connections (`connect` makes them),
what it hears in the handlers. So it needs no root and no proxy, and clients of the node go on as ever.

Modes
    blackhole   nothing arrives, nothing says so: senders wait until their time is out (or the cut is over)
    refuse      connecting fails at once, as if nobody listened; requests that come in end their connection

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.faults.definition import CONTROLLER

if TYPE_CHECKING:
    from barnabas.broker.faults.armed import Armed

TO, FROM = "to", "from"
REFUSE: Final = "refuse"
_LOOK_S: Final = 0.05

#: The names of the node at an address: its id, and "controller" for one.
NamesAt = Callable[[str, int], Collection[int | str]]


class Links:
    """The links of one node."""

    def __init__(self) -> None:
        self.names_at: NamesAt = lambda _host, _port: ()  # fixed before start; told by the server, which knows
        self.controller_id: Callable[[], int] = lambda: -1  # fixed before start; likewise
        self._lock = threading.Lock()  # a leaf
        self._cuts: tuple[Armed, ...] = ()  # replaced whole under _lock

    def cut(self, armed: Armed) -> None:
        """Cut a link until `heal`."""
        with self._lock:
            self._cuts += (armed,)

    def heal(self, armed: Armed) -> None:
        """The end of a cut."""
        with self._lock:
            self._cuts = tuple(other for other in self._cuts if other is not armed)

    def connect(self, host: str, port: int, **about: Any) -> NodeConnection:
        """A connection that feels the cuts; as NodeConnection otherwise."""
        return CuttableConnection(self, host, port, **about)

    def cut_to(self, host: str, port: int) -> Armed | None:
        """The cut that a request to this address meets, if any."""
        if not self._cuts:
            return None
        names = self.names_at(host, port)
        return next((armed for armed in self._in_force(TO) if armed.fault.cut in names), None)

    def cut_from(self, sender: int | None) -> Armed | None:
        """The cut that a request of this node meets, if any."""
        if sender is None or not self._cuts:
            return None
        names = (sender, CONTROLLER) if sender == self.controller_id() else (sender,)
        return next((armed for armed in self._in_force(FROM) if armed.fault.cut in names), None)

    def _in_force(self, direction: str) -> list[Armed]:
        return [
            armed
            for armed in self._cuts
            if armed.is_time() and (armed.fault.direction or "both") in (direction, "both")
        ]


class CuttableConnection(NodeConnection):
    """A connection to a node to which the link may be cut."""

    def __init__(self, links: Links, host: str, port: int, **about: Any) -> None:
        super().__init__(host, port, **about)
        self._links = links  # fixed before start
        self._gone = threading.Event()  # set by abort

    def connect(self) -> None:
        """Connect, unless the link is cut; raises NodeConnectionError."""
        self._meet_cut("connect", self._timeout_ms)
        super().connect()

    def send(self, message: Any, version: int, *, timeout_ms: int | None = None) -> Any:
        """Send, unless the link is cut before the answer is there; raises NodeConnectionError."""
        timeout = self._timeout_ms if timeout_ms is None else timeout_ms
        self._meet_cut("send", timeout)
        response = super().send(message, version, timeout_ms=timeout_ms)
        self._meet_cut("send", timeout)
        return response

    def abort(self) -> None:
        """Make the using thread's present and future calls fail. Any thread may call it."""
        self._gone.set()
        super().abort()

    def _meet_cut(self, what: str, timeout_ms: int) -> None:
        """Fail if the link is cut: at once, or when a peer that answers nothing would have made it fail."""
        armed = self._links.cut_to(self.host, self.port)
        if armed is None:
            return
        self.close()
        armed.fires({"request": what, "to": f"{self.host}:{self.port}"})
        if armed.fault.mode != REFUSE:
            until_ms = self._clock.monotonic_ms() + timeout_ms
            while armed.is_time() and not armed.removed.is_set() and self._clock.monotonic_ms() < until_ms:
                if self._gone.wait(_LOOK_S):
                    break
        raise NodeConnectionError(f"the link to {self.host}:{self.port} is cut by fault {armed.id}")
