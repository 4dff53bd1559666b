"""How bytes get from and to a client's socket, and who the client is: two parts of a connection that can be exchanged.

`PlainTransport` is the only transport and `Anonymous` the only authenticator so far; TLS and SASL will be others. A
processor calls them and nothing else of the socket.

Threads: the processor that owns the connection.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Final, Protocol

from barnabas.broker.request_channel import ANONYMOUS

_JOIN_BYTES_MAX: Final = 8192
#: Why: up to so many bytes, copying them costs less than the system calls of sending header and file in turn do, each
#: of which lets the interpreter's lock go; and what goes out at once wakes the receiver once.
_COPY_BYTES_MAX: Final = 48 * 1024
_BUFFERS_MAX: Final = 256  # well below IOV_MAX
TURN_BYTES: Final = 2 << 20  # about so much is moved for one connection before others have their turn


class Transport(Protocol):
    """Reads and writes without blocking."""

    may_go_on: bool
    """After `send`: it stopped for others' sake, not because the kernel took no more; no edge will come."""

    def receive_into(self, buffer: memoryview) -> int:
        """Read some bytes; 0 at the end of the stream. Raises BlockingIOError when there are none now."""

    def send(self, parts: list[Any]) -> list[Any] | None:
        """Write as much as the kernel takes; return what is left, None when everything is out."""

    def close(self) -> None:
        """Close the socket."""


class Authenticator(Protocol):
    """Says who is at the other end, before the first request is let through."""

    def is_complete(self) -> bool:
        """Tell whether the client is known by now."""

    def principal(self) -> str:
        """Return the client's principal, `User:...`."""


class Anonymous:
    """Asks nothing: everybody is User:ANONYMOUS."""

    __slots__ = ()

    def is_complete(self) -> bool:
        return True

    def principal(self) -> str:
        return ANONYMOUS


class FileRemainder:
    """What is left of a region of a file, some of which was sent."""

    __slots__ = ("_region", "position", "size")

    def __init__(self, region: Any, sent: int) -> None:
        self._region = region  # keeps the file open
        self.position = region.position + sent
        self.size = region.size - sent

    def fileno(self) -> int:
        fd: int = self._region.fileno()
        return fd

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size, self.position)


class PlainTransport:
    """A TCP socket without encryption: files go out by sendfile(2), but for small pieces of them."""

    __slots__ = ("_send", "_sock", "may_go_on", "receive_into")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.may_go_on = False
        # Why no methods: called for every request.
        self.receive_into = sock.recv_into
        self._send = sock.send

    def send(self, parts: list[Any]) -> list[Any] | None:
        """Write as much as the kernel takes; return what is left, None when everything is out."""
        if len(parts) > 1 and _are_small_bytes(parts):  # the answers of a run
            parts = [b"".join(parts)]
        try:
            if len(parts) == 1 and type(parts[0]) is bytes:  # nearly every response but those of Fetch
                data = parts[0]
                sent = self._send(data)
                return None if sent == len(data) else [memoryview(data)[sent:]]
            return self._send_many(parts)
        except BlockingIOError:
            return parts

    def close(self) -> None:
        self._sock.close()

    def _send_many(self, parts: list[Any]) -> list[Any] | None:
        remaining = [part for part in parts if _size_of(part)]
        if sum(map(_size_of, remaining)) <= _COPY_BYTES_MAX:
            remaining = [b"".join(map(_bytes_of, remaining))]
        self.may_go_on = False
        left = TURN_BYTES
        while remaining:
            if left <= 0:
                self.may_go_on = True
                return remaining
            try:
                remaining, sent, is_full = self._send_head(remaining)
            except BlockingIOError:
                return remaining
            if is_full:
                return remaining
            left -= sent
        return None

    def _send_head(self, parts: list[Any]) -> tuple[list[Any], int, bool]:
        """Send the first region, or all buffers before it; return the rest, how much was sent, and whether the kernel
        takes no more.
        """
        if _is_region(parts[0]):
            return self._send_region(parts)
        buffers: list[Any] = []
        size = 0
        for part in parts[:_BUFFERS_MAX]:
            if _is_region(part):
                break
            buffers.append(part)
            size += len(part)
        rest = parts[len(buffers) :]
        flags = socket.MSG_MORE if rest else 0  # Why: header and file slice shall share a packet.
        if size <= _JOIN_BYTES_MAX:
            buffers = [b"".join(buffers)]
            sent = self._sock.send(buffers[0], flags)
        else:
            sent = self._sock.sendmsg(buffers, (), flags)
        if sent == size:
            return rest, sent, False
        return _drop(buffers, sent) + rest, sent, True

    def _send_region(self, parts: list[Any]) -> tuple[list[Any], int, bool]:
        region = parts[0]
        asked = min(region.size, TURN_BYTES)
        sent = os.sendfile(self._sock.fileno(), region.fileno(), region.position, asked)
        if sent == region.size:
            return parts[1:], sent, False
        if sent == 0:
            raise OSError(f"the file ends {region.size} bytes before the slice to be sent")
        # Why not full: a socket with room left may still have taken less than asked of a file.
        return [FileRemainder(region, sent), *parts[1:]], sent, False


def _is_region(part: Any) -> bool:
    return not isinstance(part, (bytes, bytearray, memoryview))


def _are_small_bytes(parts: list[Any]) -> bool:
    size = 0
    for part in parts:
        if type(part) is not bytes:
            return False
        size += len(part)
    return size <= _JOIN_BYTES_MAX


def _size_of(part: Any) -> int:
    size: int = part.size if _is_region(part) else len(part)
    return size


def _bytes_of(part: Any) -> Any:
    if not _is_region(part):
        return part
    data = part.read()
    if len(data) != part.size:
        raise OSError(f"the file ends {part.size - len(data)} bytes before the slice to be sent")
    return data


def _drop(buffers: list[Any], count: int) -> list[Any]:
    """Return the buffers without their first `count` bytes."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []
