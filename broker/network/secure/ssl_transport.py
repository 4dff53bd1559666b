"""SslTransport: a TCP socket with TLS, edge-triggered as the plain one.

Rules
1. Encrypted bytes are read in pieces of RAW_BYTES into a buffer of the processor, and decrypted into the caller's. As
   with a plain socket, the socket is empty after a short read. But the session may hold more than the caller's buffer
   took: `has_more` reports that, since no edge will.
2. Responses are encrypted in pieces of PIECE_BYTES; files are read in such pieces. One call moves about TURN_BYTES.
   Each byte is copied once beside its encryption: out of OpenSSL's memory. Why not the kernel's TLS with sendfile: no
   interpreter so far can report whether the kernel encrypts, and sending a file in clear would be the worst mistake.
3. `send` keeps what is encrypted and not sent. It returns an empty list, not None, while only that is left.
4. Nothing is allocated for TLS before the first byte. The handshake takes at most HANDSHAKE_BYTES_MAX from the client.

Threads: the processor that owns the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.transport import TURN_BYTES, FileRemainder
from barnabas.security.tls.session import TlsSession, failure_text

if TYPE_CHECKING:
    from barnabas.protocol.schema import FileRegion, Part

RAW_BYTES: Final = 128 * 1024
PIECE_BYTES: Final = 128 * 1024
RECORD_EXTRA_BYTES: Final = 1024  # of headers and check sums, in the records that fill a buffer
HANDSHAKE_READ_BYTES: Final = 16 * 1024
HANDSHAKE_BYTES_MAX: Final = 256 * 1024
OUTPUT_BYTES_MAX: Final = 64 * 1024  # what a client may make the session say without reading it
_HANDSHAKE_RECORD: Final = 0x16


class HandshakeError(Exception):
    """The TLS handshake failed; the message says why."""


class SslTransport:
    """See the module."""

    __slots__ = ("_context", "_handshake_bytes", "_may_have_raw", "_raw", "_session", "_sock", "_unsent", "may_go_on")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, raw: memoryview) -> None:
        # owner: processor
        self.may_go_on = False
        self._sock = sock
        self._context = context
        self._raw = raw  # the processor's, for encrypted bytes
        self._session: TlsSession | None = None  # from the first byte on
        self._unsent: memoryview | None = None  # encrypted, and not sent yet
        self._may_have_raw = False  # the last read of the socket was not short
        self._handshake_bytes = 0

    @property
    def session(self) -> TlsSession:
        """The session, once there is one."""
        assert self._session is not None
        return self._session

    def use(self, raw: memoryview) -> None:
        """Read into this buffer from now on: the connection has another processor."""
        self._raw = raw

    def has_input(self) -> bool:
        """Return whether something has come from the client: bytes, or the end of the stream."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True

    def has_begun(self) -> bool:
        """Return whether something has come from the client, so that there is a session."""
        return self._session is not None

    def handshake(self) -> bool:
        """Continue the handshake with what has arrived; return whether it is complete.

        Raises HandshakeError if it failed, EOFError if the client went away, OSError if the connection broke.
        """
        if not self._flush():
            return False
        if self._session is not None and self._session.is_established:  # its last words were not sent yet
            return True
        raw = self._raw[:HANDSHAKE_READ_BYTES]
        while True:  # until the socket is empty or at its end, which may have come with the last bytes
            try:
                count = self._sock.recv_into(raw)
            except BlockingIOError:
                return False
            if not count:
                raise EOFError
            self._handshake_bytes += count
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise HandshakeError(f"it needs more than {HANDSHAKE_BYTES_MAX} bytes")
            if self._session is None:
                if raw[0] != _HANDSHAKE_RECORD:
                    raise HandshakeError("the client does not speak TLS")
                self._session = TlsSession(self._context, is_server=True)
            self._session.receive(raw[:count])
            if self._step(self._session):
                return True

    def has_more(self) -> bool:
        """Return whether a read may find more without another edge (rule 1)."""
        return self._may_have_raw or self.session.has_input() or self.session.is_ended

    def receive_into(self, buffer: memoryview) -> int:
        """Decrypt some bytes; return how many, 0 at the end of the stream. Raises BlockingIOError if there are none."""
        session, raw = self.session, self._raw
        filled = session.read_into(buffer)
        left = TURN_BYTES
        while filled < len(buffer) and not session.is_ended and left > 0:
            try:
                # Why not more than fits: what a muted connection holds back is bounded (processors.py, rule 6).
                asked = min(len(raw), len(buffer) - filled + RECORD_EXTRA_BYTES)
                count = self._sock.recv_into(raw, asked)
            except BlockingIOError:
                self._may_have_raw = False
                break
            if not count:
                session.is_ended = True
                break
            session.receive(raw[:count])
            filled += session.read_into(buffer[filled:])
            left -= count
            self._may_have_raw = count == asked
            if not self._may_have_raw:
                break
        if session.has_output():
            self._answer()
        if not filled and not session.is_ended:
            raise BlockingIOError
        return filled

    def send(self, parts: list[Part]) -> list[Part] | None:
        """Write as much as the kernel takes; return what is left (rule 3), None when all is sent."""
        self.may_go_on = False
        session = self.session
        left = TURN_BYTES
        remaining = parts
        while self._flush():
            if not remaining:
                return None
            if left <= 0:
                self.may_go_on = True
                return remaining
            remaining, size = _encrypt(session, remaining)
            left -= size
        return remaining

    def close(self) -> None:
        """End the session if nothing else waits to be sent, and close the socket."""
        if self._session is not None and self._unsent is None:
            with contextlib.suppress(OSError):
                self._sock.send(self._session.close())
        self._sock.close()

    def _step(self, session: TlsSession) -> bool:
        try:
            is_complete = session.handshake()
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._flush()  # the alert, which tells the client
            raise HandshakeError(failure_text(error, "the client")) from None
        return self._flush() and is_complete

    def _answer(self) -> None:
        """Send what the session itself has to say: answers to key updates."""
        self._flush()
        if self._unsent is not None and len(self._unsent) > OUTPUT_BYTES_MAX:
            raise ConnectionResetError("the client does not read what its key updates make us send")

    def _flush(self) -> bool:
        """Send what is encrypted; return false if the socket is full."""
        session = self._session
        if session is None:
            return True
        while True:
            unsent = self._unsent
            if unsent is None:
                if not session.has_output():
                    return True
                unsent = memoryview(session.take_output())
            try:
                sent = self._sock.send(unsent)
            except BlockingIOError:
                self._unsent = unsent
                return False
            self._unsent = None if sent == len(unsent) else unsent[sent:]


def _encrypt(session: TlsSession, parts: list[Part]) -> tuple[list[Part], int]:
    """Encrypt about PIECE_BYTES; return what is left and how many bytes were taken."""
    size = 0
    small: list[bytes | bytearray | memoryview] = []  # joined, since each write is a record of its own
    index = 0
    rest: list[Part] = []
    while index < len(parts) and size < PIECE_BYTES:
        part = parts[index]
        index += 1
        space = PIECE_BYTES - size
        if not isinstance(part, (bytes, bytearray, memoryview)):
            data, left = _read(part, space)
            if left is not None:
                rest.append(left)
            small.append(data)
        elif len(part) > space:
            view = memoryview(part)
            small.append(view[:space])
            rest.append(view[space:])
        else:
            small.append(part)
        size += len(small[-1])
    if size:
        session.write(small[0] if len(small) == 1 else b"".join(small))
    return rest + parts[index:], size


def _read(region: FileRegion, size_max: int) -> tuple[bytes, Part | None]:
    """Return the start of a region, and the rest of it."""
    size = min(region.size, size_max)
    data = os.pread(region.fileno(), size, region.position) if size else b""
    if len(data) < size:
        raise OSError(f"the file ends {region.size - len(data)} bytes before the slice to be sent")
    return data, FileRemainder(region, size) if size < region.size else None
