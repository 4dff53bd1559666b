"""ActiveController: the connection to the active controller, which is at one of several addresses.

One address is in use at a time. After a failure the connection is closed, and the next request goes to the next
address. A controller that answers NOT_CONTROLLER counts as a failure too: it is up, but another one is active.

Threads: one thread sends and closes; any thread aborts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock
    from barnabas.protocol.schema import Request


class ActiveController:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        addresses: Sequence[tuple[str, int]],
        clock: Clock,
        *,
        timeout_ms: int,
        traffic: TrafficObserver | None = None,
        connect: Connect = NodeConnection,
    ) -> None:
        self._broker_id = broker_id  # fixed before start
        self._clock = clock  # fixed before start
        self._timeout_ms = timeout_ms  # fixed before start; the default of a request
        self._traffic = traffic  # fixed before start
        self._connect = connect  # fixed before start
        self._addresses = list(addresses)  # owner: the sending thread; the one to try next is first
        self._connection: NodeConnection | None = None  # owner: the sending thread; `abort` may abort it

    def send(self, message: Request, version: int, *, timeout_ms: int | None = None) -> Any:
        """Send a request and return the response; raises NodeConnectionError, and the next call tries elsewhere."""
        connection = self._connection
        host, port = self._addresses[0]
        if connection is None:
            connection = self._connection = self._connect(
                host, port, timeout_ms=self._timeout_ms, client_id=str(self._broker_id), clock=self._clock,
                traffic=self._traffic,
            )  # fmt: skip
        try:
            response = connection.send(message, version, timeout_ms=timeout_ms)
            # Why getattr: not every response has an error of its own.
            if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                raise NodeConnectionError(f"{host}:{port} is not the active controller")
        except NodeConnectionError:
            self.close()
            self._addresses.append(self._addresses.pop(0))
            raise
        return response

    def abort(self) -> None:
        """Make a waiting `send` fail; any thread may call it."""
        connection = self._connection
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        """Close the connection; the next `send` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
