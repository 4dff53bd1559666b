"""How bytes reach a client's socket: a replaceable part of a connection.

A processor calls this and nothing else of the socket.

Threads: the processor that owns the connection.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.network.batches.many_parts import failure, send_parts, size_of
from barnabas.broker.network.batches.many_sockets import SEND_BYTES_MAX

if TYPE_CHECKING:
    from barnabas.protocol.schema import FileRegion, Part

#: Why: up to this size, copying costs less than separate system calls for header and file, each of which releases the
#: interpreter's lock. One send also wakes the receiver only once.
_COPY_BYTES_MAX: Final = 48 * 1024
RECEIVE_BUFFER_MIN: Final = 150 * 1024  # as the kernel counts: twice what was asked for. 128 KiB is not enough
TURN_BYTES: Final = 2 << 20  # about as much as one connection moves before others have their turn


class Transport(Protocol):
    """Reads and writes without blocking."""

    may_go_on: bool
    """After `send`: it stopped after TURN_BYTES, not because the socket was full, so no edge will come."""

    def receive_into(self, buffer: memoryview) -> int:
        """Read some bytes; return how many, 0 at the end of the stream. Raises BlockingIOError if there are none."""

    def expect(self, count: int) -> None:
        """Let the selector report input only when about `count` bytes are there to be read, at once if they are.

        0 stands for one byte. The end of the stream is reported in any case. The caller knows that as many will come.
        """

    def send(self, parts: list[Part]) -> list[Part] | None:
        """Write as much as the kernel takes; return what is left, None when all is sent."""

    def close(self) -> None:
        """Close the socket."""


class FileRemainder:
    """The unsent rest of a file region."""

    __slots__ = ("_region", "position", "size")

    def __init__(self, region: FileRegion, sent: int) -> None:
        # Keeps the file open. Why not a remainder: a client that reads slowly would make a long chain of them.
        self._region: FileRegion = region._region if isinstance(region, FileRemainder) else region
        self.position = region.position + sent
        self.size = region.size - sent

    def fileno(self) -> int:
        """Return the descriptor of the open file."""
        return self._region.fileno()

    def read(self) -> bytes:
        """Return the bytes."""
        return os.pread(self.fileno(), self.size, self.position)


class SocketTransport:
    """What transports over a TCP socket have in common: its low-water mark."""

    __slots__ = ("_has_large_buffer", "_low_water", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        # owner: processor
        self._sock = sock
        self._has_large_buffer = False  # whether that is known of the socket
        self._low_water = 1  # the socket's

    def _input_may_wait(self) -> bool:
        """Return whether the receive buffer is so large that input may wait in it; it never shrinks.

        Why: a client that fills a small buffer to its end waits for the window probes of its kernel, 200 ms each.
        """
        if not self._has_large_buffer:
            size = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            self._has_large_buffer = size >= RECEIVE_BUFFER_MIN
        return self._has_large_buffer

    def _set_low_water(self, count: int) -> None:
        """Let the selector report input only when `count` bytes are there (SO_RCVLOWAT)."""
        if count != self._low_water:
            self._low_water = count
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


class PlainTransport(SocketTransport):
    """A TCP socket without encryption. Files are sent by sendfile(2), small pieces of them copied."""

    __slots__ = ("_send", "may_go_on", "receive_into")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.may_go_on = False
        # Why not methods: called for every request.
        self.receive_into = sock.recv_into
        self._send = sock.send

    def send(self, parts: list[Part]) -> list[Part] | None:
        """Write as much as the kernel takes; return what is left, None when all is sent."""
        if len(parts) > 1 and (joined := small_bytes(parts)) is not None:  # the responses of a run
            parts = [joined]
        try:
            if len(parts) == 1 and type(parts[0]) is bytes:  # nearly every response but those of Fetch
                data = parts[0]
                sent = self._send(data)
                return None if sent == len(data) else [memoryview(data)[sent:]]
            return self._send_many(parts)
        except BlockingIOError:
            return parts

    def expect(self, count: int) -> None:
        """See Transport."""
        self._set_low_water(count if count > 1 and self._input_may_wait() else 1)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _send_many(self, parts: list[Part]) -> list[Part] | None:
        # Why without empty ones: the kernel would wait for more after the last bytes (MSG_MORE).
        parts = [part for part in parts if size_of(part)]
        if sum(map(size_of, parts)) <= _COPY_BYTES_MAX:
            parts = [b"".join(map(_bytes_of, parts))]
        done, sent, is_full, error = send_parts(self._sock, parts, TURN_BYTES)
        if error:
            raise failure(error)
        return self.rest(parts, done, sent, is_full)

    def rest(self, parts: list[Part], done: int, sent: int, is_full: bool) -> list[Part] | None:
        """Return what is left after some parts and some bytes of the next one, as `send` does."""
        rest = parts[done:]
        if sent:
            rest[0] = rest_of(rest[0], sent)
        self.may_go_on = bool(rest) and not is_full
        return rest or None


def small_bytes(parts: list[Part]) -> bytes | None:
    """Return parts that are bytes, and few together, as one piece; None if they are anything else."""
    pieces: list[bytes] = []
    size = 0
    for part in parts:
        if type(part) is not bytes:
            return None
        pieces.append(part)
        size += len(part)
    if size > SEND_BYTES_MAX:
        return None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def rest_of(part: Part, sent: int) -> Part:
    """Return a part without its first bytes."""
    if isinstance(part, (bytes, bytearray, memoryview)):
        return memoryview(part)[sent:]
    return FileRemainder(part, sent)


def _bytes_of(part: Part) -> bytes | memoryview:
    if isinstance(part, (bytes, bytearray, memoryview)):
        return part
    data = part.read()
    if len(data) != part.size:
        raise OSError(f"the file ends {part.size - len(data)} bytes before the slice to be sent")
    return data
