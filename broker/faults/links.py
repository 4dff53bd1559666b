"""Cut links: requests that this node sends to another node, or receives from it, are lost.

The node at the other end names a link, which is cut in the direction `to` it, `from` it, or both. A cut concerns
requests, not packets: a response follows its request. Requests of this node stop in its own connections (`connect`
makes them), requests to it in the handlers. So a cut needs no root and no proxy, and the node's clients are unaffected.

Modes
    blackhole   requests are lost without an error: senders wait for their timeout (or the end of the cut)
    refuse      connecting fails at once, as without a listener; incoming requests end their connection

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

#: Returns the names of the node at an address: its id, and "controller" if it is one.
NamesAt = Callable[[str, int], Collection[int | str]]


class Links:
    """The links of one node."""

    def __init__(self) -> None:
        self.names_at: NamesAt = lambda _host, _port: ()  # fixed before start; set by FaultKit.serve_…
        self.controller_id: Callable[[], int] = lambda: -1  # fixed before start; likewise
        self._lock = threading.Lock()  # a leaf
        self._cuts: tuple[Armed, ...] = ()  # replaced whole under _lock

    def cut(self, armed: Armed) -> None:
        """Cut a link, until `heal`."""
        with self._lock:
            self._cuts += (armed,)

    def heal(self, armed: Armed) -> None:
        """End a cut."""
        with self._lock:
            self._cuts = tuple(other for other in self._cuts if other is not armed)

    def connect(self, host: str, port: int, **about: Any) -> NodeConnection:
        """Return a connection that fails when its link is cut; as NodeConnection otherwise."""
        return CuttableConnection(self, host, port, **about)

    def cut_to(self, host: str, port: int) -> Armed | None:
        """Return the active cut of the link to this address; None if there is none."""
        if not self._cuts:
            return None
        names = self.names_at(host, port)
        return next((armed for armed in self._in_force(TO) if armed.fault.cut in names), None)

    def cut_from(self, sender: int | None) -> Armed | None:
        """Return the active cut of the link from this node; None if there is none."""
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
    """A connection to a node whose link may be cut."""

    def __init__(self, links: Links, host: str, port: int, **about: Any) -> None:
        super().__init__(host, port, **about)
        self._links = links  # fixed before start
        self._gone = threading.Event()  # set by abort

    def connect(self) -> None:
        """Connect. Raises NodeConnectionError, also if the link is cut."""
        self._meet_cut("connect", self._timeout_ms)
        super().connect()

    def send(self, message: Any, version: int, *, timeout_ms: int | None = None) -> Any:
        """Send a request and return its response. Raises NodeConnectionError, also if the link is cut meanwhile."""
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
        """Raise NodeConnectionError if the link is cut: at once, or after the timeout of a silent peer."""
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
