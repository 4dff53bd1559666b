"""The logins of one processor's connections: which frames belong to them, and when they are over.

Rules
1. A connection with an authenticator gives it every frame until its login is complete, and no handler sees one. Later
   it gives it the frames of a client that authenticates again. After the login of a session without an end there are
   none (`Connection.may_log_in`).
2. A login that failed keeps its connection muted for `connection.failed.authentication.delay.ms`; then the response, if
   there is one, is sent, and the connection closed. When more than `FAILED_MAX` wait for that, the oldest is closed.
   The present delay counts, so the oldest is the first to go, also when the setting has changed.
3. A connection that has not logged in within `LOGIN_TIMEOUT_NS` is closed. When more than `BEGUN_MAX` have not, the
   oldest is closed: an honest client needs milliseconds, so the oldest is hardly its.
   Over TLS both count from the end of the handshake, which has bounds of its own (secure/handshakes.py).
4. A session that has ended is closed when its client uses it (KIP-368).
5. Until it has logged in, a client pays for memory: the buffer of a frame grows with the bytes that have come, from
   `TRUSTED_BYTES` on. All incomplete frames of a processor hold at most `HELD_BYTES_MAX`; beyond that, the connection
   that holds most is closed. They are not counted in the memory for requests, which others need.
6. What a mechanism did not foresee fails the login, and nothing else.
7. A client that is refused by a challenge counts as failed at once, since it may never answer.

Threads: the processor that owns the connections.
Source: KafkaChannel, Selector.DelayedAuthenticationFailureClose, SocketServer.processCompletedReceives (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.connection import TRUSTED_BYTES as TRUSTED_FRAME_BYTES
from barnabas.broker.network.connections import CLOSES_MAX
from barnabas.common.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from barnabas.broker.network.connection import Connection
    from barnabas.broker.network.connections import Connections
    from barnabas.broker.network.network_metrics import ProcessorMetrics
    from barnabas.broker.network.sasl.server_authenticator import ListenerSasl, SaslServerAuthenticator

log = logging.getLogger("barnabas.network")

LOGIN_TIMEOUT_NS: Final = 30 * NS_PER_S
BEGUN_MAX: Final = 1024
FAILED_MAX: Final = 1024
TRUSTED_BYTES: Final = 4096
# Why not Final: a test changes it.
HELD_BYTES_MAX = 16 * 1024 * 1024


class Logins:
    """See the module. `frame_size_max` is the limit for connections that have logged in."""

    def __init__(
        self,
        listener: ListenerSasl,
        connections: Connections,
        metrics: ProcessorMetrics,
        frame_size_max: int,
    ) -> None:
        # Fixed before start.
        self._listener = listener
        self._connections = connections
        self._metrics = metrics
        self._frame_size_max = frame_size_max
        # owner: processor
        self.failed: deque[tuple[int, Connection]] = deque()  # when they failed, in order
        self._begun: dict[Connection, int] = {}  # until when they must have logged in, in order
        self._held: dict[Connection, int] = {}  # the bytes of their incomplete frames, if any
        self._held_bytes = 0  # in all
        connections.forget_login = self.forget

    def opened(self, connection: Connection, now_ns: int) -> None:
        """Watch a connection whose first frame may come now (rule 3)."""
        self._bound(connection)
        self._begun[connection] = now_ns + LOGIN_TIMEOUT_NS
        while len(self._begun) > BEGUN_MAX:
            self._give_up(next(iter(self._begun)), "too many logins, and this one is the oldest")

    def count(self) -> int:
        """Return how many have begun and are not complete, or have failed and wait for their end."""
        return len(self._begun) + len(self.failed)

    def take(self, connection: Connection, frame: memoryview, now_ns: int) -> bool:
        """Take a frame if it belongs to a login; return false if it is a request.

        Afterwards `outgoing` is what to send, if anything; if not, the connection may be closed.
        """
        authenticator = connection.authenticator
        assert authenticator is not None
        if authenticator.is_complete:
            if authenticator.may_begin_again(frame, now_ns):
                authenticator = connection.authenticator = authenticator.again(now_ns)
                self._bound(connection)
            elif authenticator.is_expired(now_ns):
                self._metrics.expired_count += 1
                log.debug("the session of connection %s has ended", connection.context.connection_id)
                self._connections.close(connection, "")
                return True
            else:
                return False
        if connection.gate is not None:
            connection.gate.release(connection)
        connection.is_muted = True
        outgoing = self._receive(authenticator, frame)
        if authenticator.client_software is not None:
            self._connections.identify(connection, authenticator.client_software)
        if authenticator.is_failed:
            self._fail(connection, now_ns)
        elif outgoing is not None:
            connection.outgoing = [outgoing]
        if authenticator.is_refused:
            self._count(connection)
        if authenticator.is_complete:
            self._complete(connection)
        return True

    def hold(self, connection: Connection) -> None:
        """Count the bytes of a connection's incomplete frame; close those that hold most if all hold too much."""
        size = connection.frames.held_bytes()
        self._held_bytes += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        while self._held_bytes > HELD_BYTES_MAX:
            self._give_up(max(self._held, key=lambda each: self._held[each]), "too much of incomplete frames")

    def forget(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._begun.pop(connection, None)
        self._held_bytes -= self._held.pop(connection, 0)
        connection.frames.drop()

    def is_satisfied(self, connection: Connection) -> bool:
        """Whether a login is complete; the client may expect no answer to its last message."""
        return connection.authenticator is not None and connection.authenticator.is_complete

    def _receive(self, authenticator: SaslServerAuthenticator, frame: memoryview) -> bytes | None:
        """Let an authenticator take a frame; return what to send (rule 6)."""
        try:
            return authenticator.receive(frame)
        except Exception:
            if self._metrics.logins.may_log(logging.ERROR):
                log.exception("a login failed unexpectedly")
            authenticator.fail("unexpected error")
            return None

    def refuse(self, connection: Connection, reason: str, now_ns: int) -> bool:
        """End the login of a connection that sent something which is no frame; false if none is in progress."""
        authenticator = connection.authenticator
        if authenticator is None or authenticator.is_complete or authenticator.is_failed:
            return False
        connection.is_muted = True
        authenticator.fail(reason)
        self._fail(connection, now_ns)
        return True

    def wait_ns(self, now_ns: int) -> int | None:
        """Return the nanoseconds until a failed login is over; None if there is none."""
        return max(0, self.failed[0][0] + self._delay_ns() - now_ns) if self.failed else None

    def take_ended(self, now_ns: int) -> Iterator[Connection]:
        """Yield the connections of failed logins that are to be closed now; `outgoing` is what to send before."""
        failed_until_ns = now_ns - self._delay_ns()
        while self.failed and self.failed[0][0] <= failed_until_ns:
            _, connection = self.failed.popleft()
            if not self._connections.has(connection):
                continue
            assert connection.authenticator is not None
            response = connection.authenticator.failure_response
            if response is not None:
                connection.outgoing = [response]
            yield connection

    def close_overdue(self, now_ns: int) -> None:
        """Close the connections that have taken too long (rule 3), some at a time."""
        for connection, due_ns in list(islice(self._begun.items(), CLOSES_MAX)):
            if due_ns > now_ns:
                return
            self._give_up(connection, "no login in time")

    def _bound(self, connection: Connection) -> None:
        """Let the client's next frames be those of a login (rule 5)."""
        connection.frames.size_max = self._listener.settings.receive_bytes_max
        connection.frames.trusted_bytes = TRUSTED_BYTES

    def _give_up(self, connection: Connection, reason: str) -> None:
        """Close a connection that has not logged in, unless its login has failed or it is closed already."""
        self.forget(connection)
        authenticator = connection.authenticator
        if authenticator is None or authenticator.is_failed or not self._connections.has(connection):
            return
        authenticator.fail(reason)
        self._count(connection)
        self._connections.close(connection, "")

    def _fail(self, connection: Connection, now_ns: int) -> None:
        self.forget(connection)
        self._count(connection)
        self.failed.append((now_ns, connection))
        if len(self.failed) > FAILED_MAX:
            self._connections.close(self.failed.popleft()[1], "")

    def _delay_ns(self) -> int:
        return self._listener.settings.failure_delay_ms * NS_PER_MS

    def _count(self, connection: Connection) -> None:
        """Count and log a failure once (rule 7)."""
        authenticator = connection.authenticator
        assert authenticator is not None
        if not authenticator.is_counted:
            authenticator.is_counted = True
            self._metrics.logins.failed(authenticator, connection.context)

    def _complete(self, connection: Connection) -> None:
        authenticator = connection.authenticator
        assert authenticator is not None
        assert authenticator.session is not None
        identity = authenticator.session.identity
        connection.context = replace(
            connection.context, principal=identity.principal, is_token_authenticated=identity.is_token
        )
        connection.may_log_in = authenticator.session.expires_ns is not None
        connection.frames.size_max = self._frame_size_max
        connection.frames.trusted_bytes = TRUSTED_FRAME_BYTES
        self._begun.pop(connection, None)
        self._held_bytes -= self._held.pop(connection, 0)
        if not connection.is_authenticated:
            self._connections.authenticated(connection)
        self._metrics.logins.succeeded(authenticator)
