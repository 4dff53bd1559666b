"""TlsSession: one end of a TLS connection, without a socket: encrypted bytes go in and out as bytes.

Why not SSLSocket: measured on 256 MiB, reading 128 KiB at once from the socket and decrypting from memory needs a third
less CPU time than SSLSocket, which makes two system calls for each record of 16 KiB. Writing costs the same. A session
over memory also works with the kernel's timeouts of a blocking socket, which SSLSocket ignores.

Threads: one at a time.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

from barnabas.security.tls.errors import TlsError
from barnabas.security.tls.names import distinguished_name


class TlsSession:
    """See the module."""

    __slots__ = (
        "_incoming",
        "_is_server",
        "_may_have_more",
        "_outgoing",
        "_read",
        "_ssl",
        "is_ended",
        "is_established",
    )

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_hostname: str | None = None) -> None:
        self._is_server = is_server  # fixed before start
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Why Any: as its types have it, `read` returns bytes, and compiled code checks that.
        self._ssl: Any = context.wrap_bio(self._incoming, self._outgoing, is_server, server_hostname)
        # Why of the object below it: SSLObject's own is a Python function that calls only this one, for each record.
        self._read: Any = getattr(self._ssl, "_sslobj", self._ssl).read
        self._may_have_more = False  # a read may find something without another byte received
        self.is_established = False  # the handshake is complete
        self.is_ended = False  # the other end has closed the session

    def receive(self, encrypted: memoryview | bytes) -> None:
        """Take bytes that came from the other end."""
        self._incoming.write(encrypted)
        self._may_have_more = True

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is complete. Raises TlsError if it failed.

        In each case there may be bytes to be sent.
        """
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._failure(error) from error
        self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer until it is full or nothing is left; return how many bytes. Raises TlsError."""
        size = len(buffer)
        filled = 0
        while filled < size and self._may_have_more:
            try:
                count: int = self._read(size - filled, buffer[filled:] if filled else buffer)
            except ssl.SSLWantReadError:  # the start of a record
                self._may_have_more = False
                break
            except ssl.SSLError as error:
                raise self._failure(error) from error
            if not count:
                self.is_ended = True
                break
            filled += count
            # Why `pending` only of a full buffer: it is a Python function, and a short read has emptied the record.
            self._may_have_more = bool(self._incoming.pending or (filled == size and self._ssl.pending()))
        return filled

    def has_input(self) -> bool:
        """Return whether `read_into` may find more without another byte received."""
        return self._may_have_more

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt bytes, which may not be empty. Raises TlsError."""
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            raise self._failure(error) from error

    def has_output(self) -> bool:
        """Return whether there are bytes to be sent."""
        return bool(self._outgoing.pending)

    def take_output(self) -> bytes:
        """Return the bytes to be sent."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return the bytes that end the session for the other end."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # it waits for the other end's answer, which nobody needs
                self._ssl.unwrap()
        return self._outgoing.read()

    def peer_name(self) -> str | None:
        """Return the distinguished name of the other end's certificate, as Java writes it; None without one."""
        encoded = self._ssl.getpeercert(binary_form=True)
        if encoded is None:
            return None
        from cryptography import x509  # Why here: most processes use no TLS

        return distinguished_name(x509.load_der_x509_certificate(encoded).subject.public_bytes())

    def cipher(self) -> tuple[str, str]:
        """Return the cipher suite and the version of the protocol."""
        found = self._ssl.cipher()
        return (found[0], self._ssl.version() or "") if found else ("", "")

    def _failure(self, error: ssl.SSLError) -> TlsError:
        """Return the error that says in words why a handshake or a record failed."""
        if isinstance(error, ssl.SSLCertVerificationError):
            peer = "the client" if self._is_server else "the other node"
            return TlsError(f"{peer}'s certificate is refused: {error.verify_message}")
        return TlsError((error.reason or str(error)).replace("_", " ").lower())
