"""SslTransport: a TCP socket with TLS, edge-triggered as the plain one.

Rules
1. Encrypted bytes are read in large pieces into a buffer of the processor, and decrypted into the caller's. As
   with a plain socket, the socket is empty after a short read. But the session may hold more than the caller's buffer
   took: `has_more` reports that, since no edge will.
2. Responses are encrypted in pieces as large as this buffer. Large ones are put together in it, and files are read
   directly into it. One call moves about TURN_BYTES. Why not the kernel's TLS with sendfile: no interpreter so
   far can report whether the kernel encrypts, and sending a file in clear would be the worst mistake.
3. `send` keeps what is encrypted and not sent. It returns an empty list, not None, while only that is left.
4. Nothing is allocated for TLS before the first byte. The handshake takes at most HANDSHAKE_BYTES_MAX from the client.

Threads: the processor that owns the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.secure.record_ends import HEADER_BYTES, RecordEnds
from barnabas.broker.network.transport import TURN_BYTES, SocketTransport, rest_of
from barnabas.security.tls.errors import TlsError
from barnabas.security.tls.session import TlsSession

if TYPE_CHECKING:
    import ssl

    from barnabas.protocol.schema import FileRegion, Part

RECORD_EXTRA_BYTES: Final = 1024  # of headers and check sums, in the records that fill a buffer
RECORD_EXTRA_BYTES_MIN: Final = 14  # in a record: header, type, and the shortest check sum that there is
RECORD_BYTES_MAX: Final = 16 * 1024  # of what is encrypted in a record (RFC 8446, 5.1)
HANDSHAKE_READ_BYTES: Final = 16 * 1024
HANDSHAKE_BYTES_MAX: Final = 256 * 1024
OUTPUT_BYTES_MAX: Final = 64 * 1024  # what a client may make the session say without reading it
_HANDSHAKE_RECORD: Final = 0x16


class SslTransport(SocketTransport):
    """See the module."""

    __slots__ = (
        "_buffer",
        "_context",
        "_ends",
        "_handshake_bytes",
        "_may_have_plain",
        "_may_have_raw",
        "_session",
        "_unsent",
        "may_go_on",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, buffer: memoryview) -> None:
        super().__init__(sock)
        # owner: processor
        self.may_go_on = False
        self._context = context
        self._buffer = buffer  # the processor's; holds nothing between two calls
        self._session: TlsSession | None = None  # from the first byte on
        self._ends = RecordEnds()  # of what the session has received
        self._unsent: bytes | memoryview | None = None  # encrypted, and not sent yet
        self._may_have_raw = False  # the last read of the socket was not short
        self._may_have_plain = True  # the session is new, or the last buffer of a caller was filled
        self._handshake_bytes = 0

    @property
    def session(self) -> TlsSession:
        """The session, once there is one."""
        assert self._session is not None
        return self._session

    def use(self, buffer: memoryview) -> None:
        """Use this buffer from now on: the connection has another processor."""
        self._buffer = buffer

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

        Raises TlsError if it failed, EOFError if the client went away, OSError if the connection broke.
        """
        if not self._flush():
            return False
        if self._session is not None and self._session.is_established:  # its last words were not sent yet
            return True
        raw = self._buffer[:HANDSHAKE_READ_BYTES]
        while True:  # until the socket is empty or at its end, which may have come with the last bytes
            try:
                count = self._sock.recv_into(raw)
            except BlockingIOError:
                return False
            if not count:
                raise EOFError
            self._handshake_bytes += count
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise TlsError(f"it needs more than {HANDSHAKE_BYTES_MAX} bytes")
            if self._session is None:
                if raw[0] != _HANDSHAKE_RECORD:
                    raise TlsError("the client does not speak TLS")
                self._session = TlsSession(self._context, is_server=True)
            self._ends.follow(raw, count)
            self._session.receive(raw[:count])
            if self._step(self._session):
                return True

    def has_more(self) -> bool:
        """Return whether a read may find more without another edge (rule 1)."""
        return self._may_have_raw or self._may_have_plain or self.session.is_ended

    def receive_into(self, buffer: memoryview) -> int:
        """Decrypt some bytes; return how many, 0 at the end of the stream. Raises BlockingIOError if there are none."""
        session, raw = self.session, self._buffer
        size, raw_size = len(buffer), len(raw)
        filled = session.read_into(buffer) if self._may_have_plain else 0
        left = TURN_BYTES
        ends = self._ends
        while filled < size and not session.is_ended and left > 0:
            try:
                # Why not more than fits, or completes a record: what a muted connection holds back is bounded
                # (processors.py, rule 6). Why no less: of a part of a record, nothing can be decrypted.
                asked = min(raw_size, max(size - filled, ends.missing_bytes) + RECORD_EXTRA_BYTES)
                count = self._sock.recv_into(raw, asked)
            except BlockingIOError:
                self._may_have_raw = False
                break
            if not count:
                session.is_ended = True
                break
            # Why record by record: the session's buffers stay as small as one, and so in the CPU's caches.
            start = 0
            for end in ends.follow(raw, count):
                session.receive(raw[start:end])
                filled += session.read_into(buffer[filled:] if filled else buffer)
                start = end
            if start < count:
                session.receive(raw[start:count])
            left -= count
            self._may_have_raw = count == asked
            if not self._may_have_raw:
                break
        self._may_have_plain = filled == size
        if session.has_output():
            self._answer()
        if not filled and not session.is_ended:
            raise BlockingIOError
        return filled

    def expect(self, count: int) -> None:
        """Let the selector report input only when the records with the next `count` bytes are there.

        Of these the session may hold a part of a record already. Waiting for more than will come would be the end of
        the connection. So all that the session holds is taken for bytes of the caller's, and the records to come for as
        large as they may be.
        """
        low_water = 1
        if count and self._input_may_wait():
            ends = self._ends
            following = max(count - ends.size_bytes, 0)
            records = (following + RECORD_BYTES_MAX - 1) // RECORD_BYTES_MAX
            low_water = ends.missing_bytes + following + records * RECORD_EXTRA_BYTES_MIN
            if records and ends.missing_bytes and not ends.size_bytes:  # a part of a header, which counts once
                low_water -= HEADER_BYTES
        self._set_low_water(low_water)

    def send(self, parts: list[Part]) -> list[Part] | None:
        """Write as much as the kernel takes; return what is left (rule 3), None when all is sent."""
        self.may_go_on = False
        if not self._flush():
            return parts
        session = self.session
        left = TURN_BYTES
        remaining = parts
        while remaining:
            if left <= 0:
                self.may_go_on = True
                return remaining
            remaining, size = _encrypt(session, remaining, self._buffer)
            if not self._flush():
                return remaining
            left -= size
        return None

    def close(self) -> None:
        """End the session if nothing else waits to be sent, and close the socket."""
        if self._session is not None and self._unsent is None:
            with contextlib.suppress(OSError):
                self._sock.send(self._session.close())
        self._sock.close()

    def _step(self, session: TlsSession) -> bool:
        try:
            is_complete = session.handshake()
        except TlsError:
            with contextlib.suppress(OSError):
                self._flush()  # the alert, which tells the client
            raise
        return self._flush() and is_complete

    def _answer(self) -> None:
        """Send what the session itself has to say: answers to key updates."""
        self._flush()
        if self._unsent is not None and len(self._unsent) > OUTPUT_BYTES_MAX:
            raise ConnectionResetError("the client does not read what its key updates make us send")

    def _flush(self) -> bool:
        """Send what is encrypted; return false if the socket is full: an edge will report when it is writable."""
        session = self._session
        if session is None:
            return True
        while True:
            unsent = self._unsent
            if unsent is None:
                if not session.has_output():
                    return True
                unsent = session.take_output()
            try:
                sent = self._sock.send(unsent)
            except BlockingIOError:
                self._unsent = unsent
                return False
            if sent < len(unsent):
                self._unsent = memoryview(unsent)[sent:]
                return False
            self._unsent = None


def _encrypt(session: TlsSession, parts: list[Part], buffer: memoryview) -> tuple[list[Part], int]:
    """Encrypt a piece of a response; return what is left of it and how many bytes were taken."""
    part, size_max = parts[0], len(buffer)
    if len(parts) == 1 and isinstance(part, (bytes, bytearray, memoryview)) and 0 < len(part) <= size_max:
        session.write(part)  # nearly every response but those of Fetch
        return [], len(part)
    size = 0
    for index, part in enumerate(parts):
        if isinstance(part, (bytes, bytearray, memoryview)):
            whole = len(part)
            taken = min(whole, size_max - size)
            buffer[size : size + taken] = part if taken == whole else memoryview(part)[:taken]
        else:
            whole = part.size
            taken = min(whole, size_max - size)
            _read(part, buffer[size : size + taken])
        size += taken
        if taken < whole:
            session.write(buffer)
            return [rest_of(part, taken), *parts[index + 1 :]], size
    if size:
        session.write(buffer[:size])
    return [], size


def _read(region: FileRegion, buffer: memoryview) -> None:
    """Fill a buffer from the start of a region."""
    size = len(buffer)
    count = os.preadv(region.fileno(), (buffer,), region.position) if size else 0
    if count < size:
        raise OSError(f"the file ends {region.size - count} bytes before the slice to be sent")
