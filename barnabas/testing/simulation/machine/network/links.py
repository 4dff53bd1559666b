"""The network between processes: which addresses reach each other, and how fast.

A link goes one way, from one address to another. A cut link delivers nothing; bytes sent over it arrive after it is
healed, as TCP sends them again. Connections over cut links stay open.

Threads: any task, and timers.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.scheduler import Scheduler

LOCAL_DELAY_NS: Final = 20_000
DELAY_NS: Final = 100_000
SPREAD_NS: Final = 2_000_000
BUFFER_BYTES: Final = 64 * 1024
#: How long after a link is healed TCP may wait before it sends again.
RETRANSMIT_NS_MAX: Final = 3_000_000_000


class Link:
    """One direction between two addresses."""

    __slots__ = ("cut_at_ns", "delay_ns", "held", "is_cut", "spread_ns")

    def __init__(self, delay_ns: int, spread_ns: int) -> None:
        self.delay_ns = delay_ns
        self.spread_ns = spread_ns
        self.is_cut = False
        self.cut_at_ns = 0
        self.held: list[Callable[[], None]] = []  # deliveries that wait for the link


class Network:
    """See the module."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.random = random.Random(f"{scheduler.seed}/network")
        self.names: dict[str, str] = {}  # host name -> address
        self.listeners: dict[tuple[str, int], Any] = {}  # address -> Listener of streams.py, which imports this module
        self.buffer_bytes = self.random.choice((8 * 1024, BUFFER_BYTES, 4 * BUFFER_BYTES))  # of a direction
        self.split_chance = self.random.choice((0.0, 0.1, 0.5))  # that sent bytes arrive in pieces
        self._links: dict[tuple[str, str], Link] = {}
        self._shut: set[tuple[str, str]] = set()  # who reaches which listeners no more
        self._slow_ns: dict[str, int] = {}  # address -> what everything from and to it takes longer
        self._ports: dict[str, int] = {}  # the last one that an address was given

    def link(self, source: str, target: str) -> Link:
        """Return the link from one address to another."""
        found = self._links.get((source, target))
        if found is None:
            delays = (LOCAL_DELAY_NS, LOCAL_DELAY_NS) if source == target else (DELAY_NS, SPREAD_NS)
            found = self._links[(source, target)] = Link(*delays)
        return found

    def cut(self, source: str, target: str) -> None:
        """Deliver nothing in this direction until `heal`."""
        link = self.link(source, target)
        if not link.is_cut:
            link.is_cut = True
            link.cut_at_ns = self.scheduler.now_ns

    def heal(self, source: str, target: str) -> None:
        """End a cut."""
        link = self.link(source, target)
        link.is_cut = False
        held, link.held = link.held, []
        wait_ns_max = min(self.scheduler.now_ns - link.cut_at_ns, RETRANSMIT_NS_MAX)
        for deliver in held:
            self.scheduler.call_at(self.scheduler.now_ns + int(self.random.random() * wait_ns_max), deliver)

    def shut(self, source: str, target: str) -> None:
        """Let connections that one address begins to another one wait until `open`, as behind a firewall's rule."""
        self._shut.add((source, target))

    def open(self, source: str, target: str) -> None:
        """End `shut`."""
        self._shut.discard((source, target))

    def may_connect(self, source: str, target: str) -> bool:
        """Return whether a connection can begin now."""
        return not (self.link(source, target).is_cut or self.link(target, source).is_cut) and (
            (source, target) not in self._shut
        )

    def heal_all(self) -> None:
        """End all cuts and delays."""
        self._slow_ns.clear()
        self._shut.clear()
        for source, target in list(self._links):
            self.heal(source, target)

    def slow_down(self, address: str, delay_ns: int) -> None:
        """Let everything from and to an address take so much longer; 0 ends that."""
        if delay_ns:
            self._slow_ns[address] = delay_ns
        else:
            self._slow_ns.pop(address, None)

    def draw_delay_ns(self, source: str, target: str) -> int:
        """Return how long something takes from one address to another."""
        link = self.link(source, target)
        usual_ns = link.delay_ns + int(self.random.random() ** 3 * link.spread_ns)
        return usual_ns + self._slow_ns.get(source, 0) + self._slow_ns.get(target, 0) if self._slow_ns else usual_ns

    def draw_port(self, address: str) -> int:
        """Return a free port of an address."""
        self._ports[address] = self._ports.get(address, 32767) + 1
        return self._ports[address]

    def address_of(self, host: str, own: str) -> str:
        """Return the address of a host, as a process at the address `own` finds it. Raises socket.gaierror."""
        if host in ("", "0.0.0.0", "localhost") or host.startswith("127."):
            return own
        if host in self.names:
            return self.names[host]
        try:
            socket.inet_aton(host)
        except OSError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return host
