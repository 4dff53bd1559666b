"""The connections of one processor: how they are opened, moved to another processor and closed.

Rules
1. The acceptor has counted an accepted socket in the quotas; `close` uncounts it.
2. A connection is registered with the selector once, until it is closed or moved.

Threads: the processor's own, except `count` and `snapshot`, which any thread may call.
Source: the book-keeping of Kafka's SocketServer.Processor and Selector (4.3).
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.idle_connections import IdleConnections
from barnabas.broker.network.sasl.server_authenticator import ListenerSasl, SaslServerAuthenticator
from barnabas.broker.network.secure.handshakes import Handshakes
from barnabas.broker.network.transport import PlainTransport
from barnabas.broker.requests.request import ANONYMOUS, RequestContext
from barnabas.common import net
from barnabas.common.clock import NS_PER_MS, NS_PER_S
from barnabas.common.logs import LogLimit
from barnabas.security.tls.errors import TlsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.network.busy_poll import BusyPollTurn
    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.network.memory_pool import MemoryGate
    from barnabas.broker.network.network_metrics import ProcessorMetrics
    from barnabas.broker.network.secure.ssl_transport import SslTransport
    from barnabas.broker.network.selector import EdgeSelector
    from barnabas.broker.network.unauthenticated.share import Share
    from barnabas.common.ownership import ThreadOwner
    from barnabas.security.tls.endpoints import TlsEndpoint

log = logging.getLogger("barnabas.network")

UNLIMITED_IDLE: Final = -1
INBOX_SIZE: Final = 20
HANDSHAKES_MAX: Final = 1000
TLS_BUFFER_BYTES: Final = 128 * 1024  # what is read, or encrypted, at once
HANDSHAKE_TIMEOUT_MS: Final = 30_000
CLOSES_MAX: Final = 64
SOFTWARE_CHARACTERS: Final = 200
LRU_MS: Final = 600_000  # how long the order of use is kept where idle connections are not closed


class ListenerSettings:
    """What all processors of a listener have in common. Fixed before start."""

    __slots__ = (
        "busy_poll",
        "frame_size_max",
        "handshake_timeout_ms",
        "handshakes_max",
        "idle_ms_max",
        "inbox_size",
        "is_for_clients",
        "listener_name",
        "sasl",
        "security_protocol",
        "share",
        "tls",
    )

    def __init__(
        self,
        listener_name: str,
        security_protocol: str,
        *,
        frame_size_max: int,
        idle_ms_max: int = UNLIMITED_IDLE,
        busy_poll: BusyPollTurn,
        inbox_size: int = INBOX_SIZE,
        is_for_clients: bool = False,
        tls: TlsEndpoint | None = None,
        handshakes_max: int = HANDSHAKES_MAX,
        handshake_timeout_ms: int = HANDSHAKE_TIMEOUT_MS,
        sasl: ListenerSasl | None = None,
        share: Share | None = None,
    ) -> None:
        assert (share is not None) == (tls is not None or sasl is not None)
        self.share = (
            share  # of time for clients that are not authenticated; None: the listener has neither TLS nor SASL
        )
        self.sasl = sasl  # None: the listener has no SASL
        self.tls = tls  # None: the listener has no TLS
        self.handshakes_max = handshakes_max
        self.handshake_timeout_ms = handshake_timeout_ms
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.frame_size_max = frame_size_max
        self.idle_ms_max = idle_ms_max
        self.is_for_clients = is_for_clients
        self.busy_poll = busy_poll
        self.inbox_size = inbox_size  # how many accepted sockets may wait for a processor


class Accepted(NamedTuple):
    """A socket on its way from the acceptor to a processor, counted by the quotas."""

    sock: socket.socket
    address: str
    port: int


class Connections:
    """The connections of one processor."""

    __slots__ = (
        "_gate",
        "_idle",
        "_lines",
        "_metrics",
        "_now_ns",
        "_owner",
        "_processor_id",
        "_quotas",
        "_raw",
        "_selector",
        "_sequence",
        "_settings",
        "by_fd",
        "forget_login",
        "handshakes",
        "idle_step_s",
    )

    def __init__(
        self,
        processor_id: int,
        settings: ListenerSettings,
        selector: EdgeSelector,
        quotas: ConnectionQuotas,
        metrics: ProcessorMetrics,
        gate: MemoryGate[Connection] | None,
        owner: ThreadOwner,
        now_ns: Callable[[], int],
        resume: Callable[[Connection], None],
    ) -> None:
        # Fixed before start.
        self.forget_login: Callable[[Connection], None] = _forget_nothing  # see Logins
        self._processor_id = processor_id
        self._settings = settings
        self._selector = selector
        self._quotas = quotas
        self._metrics = metrics
        self._gate = gate
        self._owner = owner
        self._now_ns = now_ns
        self._lines = LogLimit(log, now_ns)
        # owner: processor
        self._raw = memoryview(bytearray(0 if settings.tls is None else TLS_BUFFER_BYTES))
        self.handshakes = Handshakes(settings.handshakes_max, settings.handshake_timeout_ms, resume, now_ns)
        self.by_fd: dict[int, Connection] = {}  # by descriptor; changed here only
        self._idle = IdleConnections((settings.idle_ms_max if settings.idle_ms_max >= 0 else LRU_MS) * NS_PER_MS)
        self.idle_step_s = self._idle.width_ns / NS_PER_S  # how exact the limit of idle connections is
        self._sequence = 0  # numbers connections

    def count(self) -> int:
        """Return how many connections there are; from any thread."""
        return len(self.by_fd)

    def snapshot(self) -> list[Connection]:
        """Return a snapshot of the connections; from any thread, which may read but not change them."""
        return list(self.by_fd.values())

    def has(self, connection: Connection) -> bool:
        """Return whether a connection is still here: neither closed nor moved to another processor."""
        return self.by_fd.get(connection.fd) is connection

    def open(self, accepted: Accepted) -> Connection:
        """Take over an accepted socket."""
        assert self._owner.is_current()
        settings = self._settings
        sock = accepted.sock
        local = sock.getsockname()
        self._sequence += 1
        connection_id = (
            f"{net.format_address(net.plain_host(local[0]), local[1])}-"
            f"{net.format_address(accepted.address, accepted.port)}-{self._processor_id}-{self._sequence}"
        )
        context = RequestContext(
            settings.listener_name,
            settings.security_protocol,
            accepted.address,
            accepted.port,
            connection_id,
            is_for_clients=settings.is_for_clients,
        )
        authenticator = None if settings.sasl is None else SaslServerAuthenticator(settings.sasl, context)
        if settings.tls is None:
            connection = Connection(
                sock.fileno(), PlainTransport(sock), authenticator, context, settings.frame_size_max
            )
        else:
            from barnabas.broker.network.secure.ssl_transport import SslTransport  # Why here: it loads OpenSSL

            secure = SslTransport(sock, settings.tls.server_context, self._raw)
            connection = Connection(sock.fileno(), secure, authenticator, context, settings.frame_size_max)
            connection.secure = connection.handshake = secure
            connection.is_authenticated = False
        connection.last_active_ns = self._now_ns()
        self._add(connection)
        self._metrics.opened()
        if connection.handshake is not None:
            self.handshakes.add(connection, connection.last_active_ns)
        return connection

    def continue_handshake(self, connection: Connection) -> bool:
        """Continue a TLS handshake; return whether it is complete. Otherwise it goes on later, or the client is gone.

        Then its requests may be read, and its principal is known.
        """
        handshake, tls = connection.handshake, self._settings.tls
        assert handshake is not None
        assert tls is not None
        try:
            if not handshake.has_begun() and not self._may_begin(connection, handshake):
                return False
            if not handshake.handshake():
                return False
            principal = ANONYMOUS if tls.is_sasl else tls.principal(handshake.session)
        except (TlsError, ValueError) as error:
            self.fail_handshake(connection, str(error))
            return False
        except EOFError:
            self.close(connection, "")
            return False
        except OSError as failure:
            self.close(connection, str(failure))
            return False
        except Exception as bug:  # Why: what one certificate holds must not disturb other connections
            if self._lines.admits(logging.ERROR, f"TLS handshakes failed unexpectedly ({type(bug).__name__})"):
                log.exception(
                    "the TLS handshake of connection %s failed unexpectedly", connection.context.connection_id
                )
            self.fail_handshake(connection, type(bug).__name__)
            return False
        connection.handshake = None
        if not tls.is_sasl:
            self.authenticated(connection)
        connection.context = connection.context.with_principal(principal)
        connection.last_active_ns = self._now_ns()
        connection.may_have_input = True  # its first request may have come with the end of the handshake
        self.handshakes.end(connection)
        if not tls.is_sasl:
            self._metrics.authenticated()
        return True

    def authenticated(self, connection: Connection) -> None:
        """Note that a client is authenticated: its frames may use the memory for requests from now on."""
        connection.is_authenticated = True
        connection.gate = self._gate

    def _may_begin(self, connection: Connection, handshake: SslTransport) -> bool:
        """Return whether the client has sent something, and not too many others are in the middle of theirs."""
        return handshake.has_input() and self.handshakes.may_begin(connection, self._now_ns())

    def fail_handshake(self, connection: Connection, reason: str) -> None:
        """Close a connection whose TLS handshake failed."""
        self.handshakes.log_failure(connection, reason)
        self._metrics.failed_authentication()
        self.close(connection, "")

    def close_half_open(self, now_ns: int) -> None:
        """Close the connections whose TLS handshakes take too long, some at a time."""
        for connection in self.handshakes.expired(now_ns)[:CLOSES_MAX]:
            self.fail_handshake(connection, f"not complete within {self._settings.handshake_timeout_ms} ms")
        for connection in self.handshakes.overdue(now_ns)[:CLOSES_MAX]:
            self.fail_handshake(connection, "it makes way for others, since too many are not complete")

    def adopt(self, connection: Connection) -> None:
        """Take over a connection that another processor had."""
        assert self._owner.is_current()
        if connection.secure is not None:
            connection.secure.use(self._raw)
        self._add(connection)
        self._metrics.joined(connection.client_software)

    def release(self, connection: Connection) -> None:
        """Stop serving a connection that moves to another processor; it stays open and counted."""
        assert self._owner.is_current()
        self._remove(connection)
        self._metrics.left(connection.client_software)

    def close(self, connection: Connection, reason: str, level: int = logging.INFO) -> None:
        """Close a connection and drop its unsent output; a `reason` of "" logs nothing."""
        assert self._owner.is_current()
        if connection.is_closed:
            return
        connection.is_closed = True
        if reason and self._lines.admits(level, "connections closed"):
            log.log(level, "closing connection %s: %s", connection.context.connection_id, reason)
        if self._gate is not None:
            self._gate.forget(connection)
            if connection.request is None:  # else a handler has its frame, until it answers
                self._gate.release(connection)
        if connection.answered is not None and not connection.answered.goes_on:
            connection.request = None  # they refer to each other, and no handler has it
        if not connection.is_authenticated:
            self.handshakes.end(connection)
            self.forget_login(connection)
        self._remove(connection)
        try:
            connection.transport.close()
        except OSError as error:
            log.debug("closing connection %s: %s", connection.context.connection_id, error)
        connection.outgoing = connection.answered = None
        connection.postponed = None  # it refers to the connection, too, and nobody will queue it
        self._quotas.release(self._settings.listener_name, connection.context.client_address)
        self._metrics.closed(connection.client_software)
        for follow in list(connection.on_closed.values()):
            follow()

    def close_idle(self, now_ns: int) -> None:
        """Close the connections that have been idle for too long (connections.max.idle.ms)."""
        idle_ms_max = self._settings.idle_ms_max
        if idle_ms_max < 0:
            return
        for connection in self._idle.take_expired(now_ns):
            if connection.expect_any():  # it may have sent something; it has as long again to send the rest
                connection.last_active_ns = now_ns
                self._idle.add(connection)
            else:
                self.close(connection, f"idle for more than {idle_ms_max} ms")

    def may_have_excess(self) -> bool:
        """Return whether `close_excess` may soon have to close some; no event tells when."""
        return self._quotas.is_reached(self._settings.listener_name)

    def close_excess(self) -> None:
        """Close the least recently used connection if the broker has more than max.connections."""
        if not self._quotas.is_exceeded(self._settings.listener_name):
            return
        oldest = self._idle.least_recently_active()
        if oldest is not None:
            self.close(oldest, "too many connections, and this one was used least recently")

    def close_all(self) -> None:
        """Close all connections."""
        for connection in self.snapshot():
            self.close(connection, "")

    def identify(self, connection: Connection, software: tuple[str, str]) -> None:
        """Note the name and version of a client's software, cut: anybody may choose them, and the pages show them."""
        name, version = software
        software = name[:SOFTWARE_CHARACTERS], version[:SOFTWARE_CHARACTERS]
        if software != connection.client_software:
            self._metrics.identified(connection.client_software, software)
            connection.client_software = software

    def _add(self, connection: Connection) -> None:
        self.by_fd[connection.fd] = connection
        # Why not before: a stranger's frames must not take the memory of others; Logins bounds them.
        connection.gate = self._gate if connection.is_authenticated else None
        self._idle.add(connection)
        self._selector.register(connection.fd, 0)

    def _remove(self, connection: Connection) -> None:
        del self.by_fd[connection.fd]
        self._idle.discard(connection)
        self._selector.unregister(connection.fd)


def _forget_nothing(_connection: Connection) -> None:
    """Do what a processor without logins does when a connection closes."""
