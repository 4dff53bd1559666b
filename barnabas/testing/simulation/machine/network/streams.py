"""TCP: connections, their two directions, and listening sockets, below the socket interface.

Bytes of one direction arrive in order, after a delay, sometimes in pieces. A direction holds a bounded number of bytes,
on their way and unread together; a sender that finds it full waits, or gets EAGAIN.

An end that is closed with unread bytes, or that receives bytes after it was closed, resets the connection, as Linux
does. A killed process closes its ends like this; the bytes that it had sent before still arrive.

Threads: any task, and timers.
"""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.testing.simulation.machine.network.polling import Pollable

if TYPE_CHECKING:
    import random

    from barnabas.testing.simulation.machine.network.links import Network
    from barnabas.testing.simulation.machine.process import Process

#: Why not by the module: these are read many thousand times a second.
EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR = (
    *(select.EPOLLIN, select.EPOLLOUT),
    *(select.EPOLLRDHUP, select.EPOLLHUP, select.EPOLLERR),
)
_EVERYTHING: Final = EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLOUT
DATA, FIN, RST = "data", "fin", "rst"
SYN_AGAIN_NS: Final = 1_000_000_000
PIECES_MAX: Final = 3


class End(Pollable):
    """One end of a connection."""

    def __init__(self, network: Network, process: Process, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.local = local
        self.remote = remote
        self.is_connected = False
        self.received = bytearray()
        self.is_at_end = False  # the other end sends no more
        self.is_reset = False
        self.is_reading_shut = False
        self.is_writing_shut = False
        self.is_closed = False
        self.error = 0  # the next operation raises it
        self.outgoing: Direction | None = None  # None until it is connected
        self._is_out_of_space = False  # a writer waits for the edge

    def readiness(self) -> int:
        """See Pollable."""
        bits = EPOLLIN if self.received else 0
        if self.is_at_end or self.is_reading_shut or self.is_reset:
            bits |= EPOLLIN | EPOLLRDHUP
            if self.is_reset or (self.is_at_end and self.is_writing_shut):
                bits |= EPOLLHUP
        if self.error:
            bits |= EPOLLIN | EPOLLERR
            if not self.is_connected:
                bits |= EPOLLHUP
        if self._is_writable():
            bits |= EPOLLOUT
        else:
            self._is_out_of_space = True
        return bits

    def _is_writable(self) -> bool:
        if self.is_reset or self.error or self.is_writing_shut:
            return True
        outgoing = self.outgoing
        return outgoing is not None and outgoing.space() * 3 >= self.network.buffer_bytes

    def take_error(self) -> int:
        """Return the pending error, and forget it."""
        error, self.error = self.error, 0
        return error

    def raise_error(self) -> None:
        """Raise the pending error, if there is one."""
        if self.error:
            number = self.take_error()
            raise OSError(number, os.strerror(number))

    def write(self, data: memoryview) -> int:
        """Send as much as there is space for; return how much. Raises OSError."""
        self.raise_error()
        if self.is_writing_shut or self.is_reset:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if self.outgoing is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        count = min(self.outgoing.space(), len(data))
        if count < len(data):
            self._is_out_of_space = True
        if count:
            self.outgoing.send(bytes(data[:count]))
        return count

    def read(self, size: int, *, peek: bool = False) -> bytes | None:
        """Return up to `size` received bytes, b"" at the end, None if there are none yet. Raises OSError."""
        if self.received:
            data = bytes(self.received[:size])
            if not peek:
                del self.received[: len(data)]
                self._peer_gets_space()
            return data
        self.raise_error()
        if self.is_at_end or self.is_reading_shut or self.is_reset:
            return b""
        return None

    def shut(self, *, reading: bool, writing: bool) -> None:
        """See shutdown(2)."""
        if writing and not self.is_writing_shut:
            self.is_writing_shut = True
            if self.outgoing is not None and not self.is_reset:
                self.outgoing.push(FIN)
        self.is_reading_shut = self.is_reading_shut or reading
        self.notify(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP)

    def release(self) -> None:
        """Close this end."""
        self.unwatch()
        self.is_closed = True
        if self.outgoing is None or self.is_reset:
            return
        if self.received:
            self.outgoing.push(RST)
        elif not self.is_writing_shut:
            self.outgoing.push(FIN)
        self.received.clear()
        self._peer_gets_space()

    def break_off(self, rng: random.Random) -> None:
        """Reset both directions, as a network does that forgets a connection; a part of what flies arrives before."""
        if self.outgoing is None or self.is_reset:
            return
        back = self.outgoing.target.outgoing
        for direction in (self.outgoing, back):
            if direction is not None:
                direction.cut_short(rng)
                direction.push(RST)

    # For the direction that arrives here, and for the other end.

    def arrived(self, kind: str, data: bytes) -> None:
        """Take what arrived."""
        if kind == RST:
            self.is_reset = True
            self.error = errno.ECONNRESET
        elif self.is_closed:
            if kind == DATA and self.outgoing is not None:
                self.outgoing.push(RST)
            return
        elif kind == FIN:
            self.is_at_end = True
        else:
            self.received += data
        self.notify(EPOLLIN if kind == DATA else _EVERYTHING)

    def has_space_again(self) -> None:
        """Report space to a writer that had found none."""
        if self._is_out_of_space and self._is_writable():
            self._is_out_of_space = False
            self.notify(EPOLLOUT)

    def connected(self, other: End) -> None:
        """Connect to the other end, which is there already."""
        self.is_connected = True
        self.outgoing = Direction(self.network, self, other)
        if self.is_closed:
            self.outgoing.push(RST)
        self.notify(EPOLLOUT)

    def refused(self, error: int) -> None:
        """End an attempt to connect."""
        self.error = error
        self.notify(EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLIN)

    def _peer_gets_space(self) -> None:
        if self.outgoing is not None:
            self.outgoing.target.has_space_again()


class Direction:
    """The bytes from one end to the other."""

    def __init__(self, network: Network, source: End, target: End) -> None:
        self.target = target
        self._network = network
        self._source = source
        self._flying: deque[tuple[int, str, bytes]] = deque()  # (due, kind, bytes), in order
        self._flying_bytes = 0
        self._last_due_ns = 0
        self._name = f"{source.local[0]}:{source.local[1]}>{target.local[0]}:{target.local[1]}"

    def space(self) -> int:
        """Return how many bytes fit in."""
        left = self._network.buffer_bytes - self._flying_bytes - len(self.target.received)
        return left if left > 0 else 0

    def send(self, data: bytes) -> None:
        """Send bytes, perhaps in pieces."""
        rng = self._network.random
        if len(data) > 1 and self._network.split_chance and rng.random() < self._network.split_chance:
            cuts = sorted({rng.randrange(1, len(data)) for _ in range(rng.randrange(1, PIECES_MAX))})
            for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                self.push(DATA, data[begin:end])
        else:
            self.push(DATA, data)

    def push(self, kind: str, data: bytes = b"") -> None:
        """Put something on its way."""
        now_ns = self._network.scheduler.now_ns
        delay_ns = self._network.draw_delay_ns(self._source.local[0], self.target.local[0])
        due_ns = self._last_due_ns = max(self._last_due_ns, now_ns + delay_ns)
        self._flying.append((due_ns, kind, data))
        self._flying_bytes += len(data)
        if len(self._flying) == 1:
            self._network.scheduler.call_at(due_ns, self._deliver)

    def cut_short(self, rng: random.Random) -> None:
        """Lose the end of what is on its way."""
        for _ in range(rng.randint(0, len(self._flying))):
            self._flying_bytes -= len(self._flying.pop()[2])
        if self._flying:
            due_ns, kind, data = self._flying.pop()
            kept = data[: rng.randint(0, len(data))]
            self._flying_bytes -= len(data) - len(kept)
            self._flying.append((due_ns, kind, kept))

    def _deliver(self) -> None:
        if not self._flying:
            return  # cut short since the timer was set
        scheduler = self._network.scheduler
        link = self._network.link(self._source.local[0], self.target.local[0])
        if link.is_cut:
            link.held.append(self._deliver)
            return
        _, kind, data = self._flying.popleft()
        self._flying_bytes -= len(data)
        scheduler.digest.note(scheduler.now_ns, f"{self._name} {kind}", data)
        self.target.arrived(kind, data)
        if self._flying:
            scheduler.call_at(max(self._flying[0][0], scheduler.now_ns), self._deliver)


class Listener(Pollable):
    """A listening socket's queue."""

    def __init__(self, network: Network, process: Process, address: tuple[str, int], backlog: int) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.address = address
        self._backlog = max(1, backlog)
        self._queue: deque[End] = deque()
        self.is_shut = False

    def readiness(self) -> int:
        """See Pollable."""
        return EPOLLIN if self._queue or self.is_shut else 0

    def is_full(self) -> bool:
        """Return whether no connection fits into the queue."""
        return len(self._queue) >= self._backlog

    def add(self, end: End) -> None:
        """Queue a connection."""
        self._queue.append(end)
        self.notify(EPOLLIN)

    def accept(self) -> End | None:
        """Take the first connection; None if there is none. Raises OSError after a shutdown."""
        if self.is_shut:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return self._queue.popleft() if self._queue else None

    def shut(self) -> None:
        """See shutdown(2)."""
        self.is_shut = True
        self.notify(EPOLLIN | EPOLLHUP)

    def release(self) -> None:
        """Close it; connections that nobody accepted are reset."""
        self.unwatch()
        self._network.listeners.pop(self.address, None)
        for end in self._queue:
            assert end.outgoing is not None
            end.is_closed = True
            end.outgoing.push(RST)
        self._queue.clear()


def begin_connect(end: End) -> None:
    """Begin to connect an end to its remote address: it is connected, refused, or tries for ever."""
    network, scheduler = end.network, end.network.scheduler
    source, target = end.local[0], end.remote[0]

    def arrive() -> None:
        if end.is_closed:
            return
        listener = network.listeners.get(end.remote)
        if not network.may_connect(source, target) or (listener is not None and listener.is_full()):
            scheduler.call_at(scheduler.now_ns + SYN_AGAIN_NS, arrive)
            return
        back_ns = scheduler.now_ns + network.draw_delay_ns(target, source)
        if listener is None:
            scheduler.call_at(back_ns, lambda: end.refused(errno.ECONNREFUSED))
            return
        other = End(network, listener.process, end.remote, end.local)
        other.connected(end)
        listener.add(other)
        scheduler.call_at(back_ns, lambda: end.connected(other))

    scheduler.call_at(scheduler.now_ns + network.draw_delay_ns(source, target), arrive)
