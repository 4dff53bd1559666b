"""NodeConnection: one blocking connection to one broker or controller, one request at a time.

Used by the controller's senders, by brokers towards the controller and other brokers, and by the command line: threads
that need a response before they continue.

Rules
1. A connection belongs to the thread that uses it; only `abort` may be called by another.
2. After any error the socket is closed, and the next `send` connects again. A late response is therefore never taken
   for the response to another request.
3. A request that failed with `NodeConnectionError` may have been carried out or not; the caller decides on a retry.
4. The kernel enforces the timeout (SO_RCVTIMEO, SO_SNDTIMEO), and one read returns most responses. Why: with a timeout
   of Python's own, each socket call is three system calls and releases the interpreter's lock as often. A replica
   fetcher would spend more on that than on copying.
5. With TLS, encrypted bytes are read from the socket in large pieces and decrypted from memory into the response's own
   buffer, so that rule 4 still holds.
6. With SASL, a connection logs in before its first request, and again before its session ends (KIP-368).
7. Before its first response, a connection does not trust what it has connected to: the response's buffer grows with the
   bytes that come. A listener with TLS that is met without it answers with an alert, which is named in the error.
8. A connection that was quiet for QUIET_MS is opened again if the other node has closed it, as every node closes idle
   ones. Without this, the first request after a quiet time fails, which looks like a fault of the other node. That may
   take REOPEN_MS at most: a node that has gone for good closes its connections, too. Its users shall soon turn to
   another one, as they do after a failure.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.client.errors import NodeConnectionError as NodeConnectionError
from barnabas.client.errors import NodeLoginError
from barnabas.client.security import ClientSecurity
from barnabas.common import net
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.extendable import mypyc_attr
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.schema import Message
from barnabas.security.sasl.mechanism import ClientLogin, SaslError

if TYPE_CHECKING:
    from barnabas.security.tls.session import TlsSession

log = logging.getLogger("barnabas.client")

DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_RESPONSE_BYTES: Final = 1 << 30
TRUSTED_BYTES: Final = 1 << 20
SCRATCH_BYTES_MIN: Final = 1024
SCRATCH_BYTES_MAX: Final = 64 * 1024
ENCRYPTED_BYTES: Final = 128 * 1024
TIMEOUT_SLACK_NS: Final = 10_000_000
QUIET_MS: Final = 1000
REOPEN_MS: Final = 2000  # time for a second SYN, which follows after a second
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
#: The share of a session's life after which a connection logs in again. Kafka's clients take 0.85 to 0.95.
LOGIN_AGAIN_SHARE: Final = 0.85
_SIZE: Final = struct.Struct(">i")
_ALERT_HEAD: Final = b"\x15\x03"  # a record of TLS that holds an alert, of any version
_ALERT_SIZE: Final = b"\x00\x02"
_TIMEVAL: Final = struct.Struct("@ll")


class TrafficObserver(Protocol):
    """Counts the traffic of connections; called by the using thread."""

    def connected(self) -> None:
        """A connection was opened."""

    def closed(self) -> None:
        """A connection was closed."""

    def sent(self, size_bytes: int) -> None:
        """A request was sent."""

    def received(self, size_bytes: int) -> None:
        """A response was received."""


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeConnection:
    """A connection to `host:port`, opened on first use and again after a failure.

    `timeout_ms` bounds connecting, and each request from its first byte to the last byte of its response.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        client_id: str = "barnabas",
        clock: Clock | None = None,
        traffic: TrafficObserver | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        self.host = host  # fixed before start
        self.port = port  # fixed before start
        self._timeout_ms = timeout_ms  # fixed before start
        self._client_id = client_id  # fixed before start
        self._clock = clock or SystemClock()  # fixed before start
        self._traffic = traffic  # fixed before start
        self._security = security  # fixed before start; None for PLAINTEXT
        self._login_due_ns = 0  # owner: the using thread; when to log in again, 0: not at all
        self._tls: TlsSession | None = None  # owner: the using thread; of the present socket
        self._encrypted: memoryview | None = None  # owner: the using thread; for bytes of the TLS session
        self._socket: socket.socket | None = None  # owner: the using thread; abort() only shuts it down
        self._limit_ns = 0  # owner: the using thread; the socket's current timeouts
        self._has_answered = False  # owner: the using thread; a response came on the present socket
        self._expects_large = False  # owner: the using thread; the last response took two reads; never with TLS
        self._asked_ns = 0  # owner: the using thread; when the last request was sent
        self._scratch = memoryview(bytearray(SCRATCH_BYTES_MIN))  # owner: the using thread; grows with the responses
        self._correlation_id = 0  # owner: the using thread
        self._is_aborted = False  # set once, by any thread

    @property
    def is_connected(self) -> bool:
        """Whether a socket is open (the other node may have closed it meanwhile)."""
        return self._socket is not None

    def connect(self) -> None:
        """Connect unless connected; raises NodeConnectionError."""
        if self._socket is None:
            self._connect(self._timeout_ms)

    def _connect(self, limit_ms: int) -> None:
        self._refuse_if_aborted()
        try:
            sock = net.connect(self.host, self.port, limit_ms / 1000)
        except (OSError, UnicodeError) as error:  # Why UnicodeError: of a host that is no name, as others registered it
            raise NodeConnectionError(f"cannot connect to {self.host}:{self.port}: {_reason(error)}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)
        self._limit_ns = 0
        self._has_answered = self._expects_large = False
        self._socket = sock
        if self._traffic is not None:
            self._traffic.connected()
        self._refuse_if_aborted()  # Why again: an abort meanwhile found no socket to shut down.
        if self._security is not None:
            self._secure(self._security)
            if self._security.login is not None:
                self._log_in(self._security.login)

    def send(self, message: Message, version: int, *, timeout_ms: int | None = None) -> Any:
        """Send a request of this version and return its response message; raises NodeConnectionError."""
        if self._is_closed_by_the_other():
            self.close()
            self._connect(min(REOPEN_MS, self._timeout_ms))
        self.connect()
        if self._login_due_ns and self._clock.monotonic_ns() >= self._login_due_ns:
            assert self._security is not None
            assert self._security.login is not None
            self._log_in(self._security.login)
        return self._exchange(message, version, self._timeout_ms if timeout_ms is None else timeout_ms)

    def _is_closed_by_the_other(self) -> bool:
        """Whether the other node has closed a quiet connection (rule 8)."""
        sock = self._socket
        if sock is None or self._clock.monotonic_ns() - self._asked_ns < QUIET_MS * 1_000_000:
            return False  # Why: a busy connection is not idle, and the look is a system call (rule 4)
        return net.is_hung_up(sock)  # Why not a read: with TLS the last bytes are an alert

    def _exchange(self, message: Message, version: int, timeout: int) -> Any:
        self._asked_ns = self._clock.monotonic_ns()
        deadline_ns = self._asked_ns + timeout * 1_000_000
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self._client_id)
        try:
            request = encode_request(header, message)
            self._send_all(request, deadline_ns)
            if self._traffic is not None:
                self._traffic.sent(len(request))
            frame = self._receive_frame(deadline_ns)
            if self._traffic is not None:
                self._traffic.received(_SIZE.size + len(frame))
            return self._decode(message.API_KEY, version, frame)
        except (OSError, MalformedMessageError) as error:
            self.close()
            raise NodeConnectionError(
                f"request {type(message).__name__} v{version} to {self.host}:{self.port} failed: {_reason(error)}"
            ) from error
        except BaseException:
            self.close()
            raise

    def abort(self) -> None:
        """Make the using thread's current and future calls fail. Any thread may call it."""
        self._is_aborted = True
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; the next send connects again."""
        sock, self._socket = self._socket, None
        tls, self._tls = self._tls, None
        if sock is not None:
            if tls is not None:
                with contextlib.suppress(OSError):
                    sock.send(tls.close(), socket.MSG_DONTWAIT)
            sock.close()
            if self._traffic is not None:
                self._traffic.closed()

    def __enter__(self) -> NodeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_in(self, login: ClientLogin) -> None:
        """Log in on an open connection (rule 6); raises NodeLoginError, and logs that."""
        self._login_due_ns = 0
        try:
            lifetime_ms = self._exchange_tokens(login)
        except (NodeLoginError, SaslError) as error:
            self.close()
            log.error("the login to %s:%d by %s failed: %s", self.host, self.port, login.mechanism, error)
            raise NodeLoginError(f"the login to {self.host}:{self.port} failed: {error}") from error
        if lifetime_ms > 0:
            self._login_due_ns = self._clock.monotonic_ns() + int(lifetime_ms * 1_000_000 * LOGIN_AGAIN_SHARE)

    def _exchange_tokens(self, login: ClientLogin) -> int:
        """Carry out the exchange of a mechanism; return the milliseconds that the session lasts, 0: no limit."""
        timeout = self._timeout_ms
        handshake = self._exchange(SaslHandshakeRequest(mechanism=login.mechanism), HANDSHAKE_VERSION, timeout)
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms)
            raise NodeLoginError(f"the other node does not offer {login.mechanism}, but {offered or 'none'}")
        mechanism = login.begin(self.host)
        token: bytes | None = mechanism.first()
        lifetime_ms = 0
        while token is not None:
            response = self._exchange(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION, timeout)
            if response.error_code:
                raise NodeLoginError(response.error_message or f"error {response.error_code}")
            lifetime_ms = response.session_lifetime_ms
            token = mechanism.evaluate(response.auth_bytes)
        if not mechanism.is_complete:
            raise NodeLoginError("the exchange ended too early")
        return lifetime_ms

    def _refuse_if_aborted(self) -> None:
        if self._is_aborted:
            self.close()
            raise NodeConnectionError(f"the connection to {self.host}:{self.port} was aborted")

    def _decode(self, api_key: int, version: int, frame: memoryview) -> Any:
        correlation_id, offset = decode_response_header(frame, api_key, version)
        if correlation_id != self._correlation_id:
            raise MalformedMessageError(f"the response has correlation id {correlation_id}, not {self._correlation_id}")
        return response_class(api_key).decode(frame, version, offset)

    def _secure(self, security: ClientSecurity) -> None:
        """Do the TLS handshake on a new socket."""
        session = security.session(self.host)
        if session is None:
            return
        if self._encrypted is None:
            self._encrypted = memoryview(bytearray(ENCRYPTED_BYTES))
        deadline_ns = self._clock.monotonic_ns() + self._timeout_ms * 1_000_000
        try:
            while not session.handshake():
                self._send_plain(session.take_output(), deadline_ns)
                self._receive_encrypted(session, deadline_ns)
            self._send_plain(session.take_output(), deadline_ns)
        except OSError as error:
            if session.has_output():  # the alert, which tells the other node
                with contextlib.suppress(OSError):
                    self._send_plain(session.take_output(), deadline_ns)
            self.close()
            raise NodeConnectionError(
                f"the TLS handshake with {self.host}:{self.port} failed: {_reason(error)}"
            ) from error
        except BaseException:
            self.close()
            raise
        self._tls = session

    def _receive_encrypted(self, session: TlsSession, deadline_ns: int) -> None:
        assert self._encrypted is not None
        count = self._receive_plain(self._encrypted, deadline_ns, 0)
        session.receive(self._encrypted[:count])

    def _send_all(self, data: bytes, deadline_ns: int) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._tls.take_output()
        self._send_plain(data, deadline_ns)

    def _send_plain(self, data: bytes, deadline_ns: int) -> None:
        view = memoryview(data)
        while view:
            sock = self._timed(deadline_ns)
            try:
                sent = sock.send(view)  # Why apart: mypyc evaluates the bound of such a slice twice
            except BlockingIOError:
                raise TimeoutError from None
            view = view[sent:]

    def _receive_frame(self, deadline_ns: int) -> memoryview:
        """Read one response; the first read takes its size and whatever has arrived of it.

        If the last response was larger than that, it takes the size only: the second read fills the response's buffer.
        """
        scratch = self._scratch[: _SIZE.size] if self._expects_large else self._scratch
        received = 0
        while received < _SIZE.size:
            received += self._receive_into(scratch[received:], deadline_ns)
        (size,) = _SIZE.unpack_from(scratch)
        if not self._has_answered and self._tls is None and _is_alert(scratch[:received]):
            raise MalformedMessageError("the other node speaks TLS on this port, and this connection does not")
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise MalformedMessageError(f"the response claims a size of {size} bytes")
        received -= _SIZE.size
        if received > size:
            raise MalformedMessageError("unexpected bytes follow the response")
        if size > TRUSTED_BYTES and not self._has_answered:
            frame = self._receive_untrusted(scratch[_SIZE.size : _SIZE.size + received], size, deadline_ns)
            received = size
        else:
            frame = memoryview(bytearray(size))
            frame[:received] = scratch[_SIZE.size : _SIZE.size + received]
        while received < size:
            received += self._receive_into(frame[received:], deadline_ns, socket.MSG_WAITALL)
        self._has_answered = True
        self._expects_large = size >= SCRATCH_BYTES_MAX and self._tls is None
        if size >= len(self._scratch) < SCRATCH_BYTES_MAX:
            self._scratch = memoryview(bytearray(min(2 * size, SCRATCH_BYTES_MAX)))
        return frame

    def _receive_untrusted(self, start: memoryview, size: int, deadline_ns: int) -> memoryview:
        """Read a large first response (rule 7)."""
        frame = bytearray(start)
        while len(frame) < size:
            received = len(frame)
            frame.extend(bytes(min(max(received, TRUSTED_BYTES), size - received)))
            view = memoryview(frame)
            while received < len(view):
                received += self._receive_into(view[received:], deadline_ns, socket.MSG_WAITALL)
            view.release()
        return memoryview(frame)

    def _receive_into(self, buffer: memoryview, deadline_ns: int, flags: int = 0) -> int:
        session = self._tls
        if session is None:
            return self._receive_plain(buffer, deadline_ns, flags)
        while True:
            received = session.read_into(buffer)
            if received:
                return received
            if session.is_ended:
                raise ConnectionResetError("the other node closed the connection")
            self._receive_encrypted(session, deadline_ns)

    def _receive_plain(self, buffer: memoryview, deadline_ns: int, flags: int) -> int:
        sock = self._timed(deadline_ns)
        try:
            received = sock.recv_into(buffer, 0, flags)
        except BlockingIOError:
            raise TimeoutError from None
        if received == 0:
            raise ConnectionResetError("the other node closed the connection")
        return received

    def _timed(self, deadline_ns: int) -> socket.socket:
        """The socket, with its timeouts set to the remaining time (rule 4)."""
        sock = self._socket
        assert sock is not None
        left_ns = deadline_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        if abs(left_ns - self._limit_ns) > TIMEOUT_SLACK_NS or left_ns < TIMEOUT_SLACK_NS:
            self._limit_ns = left_ns
            value = _TIMEVAL.pack(left_ns // 1_000_000_000, left_ns % 1_000_000_000 // 1000 + 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        return sock


#: Makes the connections of a component: NodeConnection, or a factory of connections that faults can cut.
Connect = Callable[..., NodeConnection]


def _is_alert(received: memoryview) -> bool:
    """Return whether bytes are the start of a TLS alert: its type, a version, and its size, which is 2."""
    head, size = bytes(received[:2]), bytes(received[3:5])
    return head == _ALERT_HEAD and size == _ALERT_SIZE[: len(size)]


def _reason(error: BaseException) -> str:
    """A readable phrase: `Connection refused`, not `[Errno 111] Connection refused`."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
