"""ActiveController: the connection to the active controller, which is at one of several addresses.

One address is in use at a time. After a failure the connection is closed, and the next request goes to the next
address. A controller that answers NOT_CONTROLLER counts as a failure too: it is up, but another one is active. After a
failure of each address, such a controller is asked where the active one is (DescribeCluster): that one need not be
among the addresses, since the voters of a quorum may change. A controller of another cluster is not believed, and each
request names the own cluster (push_tags.py): an address may belong to another one by now.

A push may name the active controller (controller_nodes.py). Then the next request goes to that one, and a request that
waits for another one fails now: that one may be paused or cut off, and would be waited for until its time is up.

Threads: one thread sends and closes; any thread aborts and calls `follow`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.push_tags import set_cluster_id

if TYPE_CHECKING:
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock
    from barnabas.protocol.schema import Request

Address: TypeAlias = tuple[str, int]

#: The endpoint type of DescribeCluster, and the first version that has it (KIP-919).
CONTROLLERS: Final = 2
CLUSTER_VERSION: Final = 1
ASK_TIMEOUT_MS: Final = 2_000


class ActiveController:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        addresses: Sequence[Address],
        clock: Clock,
        *,
        timeout_ms: int,
        cluster_id: str,
        traffic: TrafficObserver | None = None,
        connect: Connect = NodeConnection,
    ) -> None:
        self._cluster_id = cluster_id  # fixed before start
        self._broker_id = broker_id  # fixed before start
        self._clock = clock  # fixed before start
        self._timeout_ms = timeout_ms  # fixed before start; the default of a request
        self._traffic = traffic  # fixed before start
        self._connect = connect  # fixed before start
        self._addresses = list(addresses)  # owner: the sending thread; the one to try next is first
        self._failed: Address | None = None  # owner: the sending thread; the last one that was of no use
        self._failures = 0  # owner: the sending thread; since the last response of use
        # Why a lock: news that comes while a connection is made must either decide where it goes, or abort it.
        self._lock = threading.Lock()
        self._followed: Address | None = None  # guarded by: _lock; to be tried before the others
        self._address: Address | None = None  # guarded by: _lock; that of the connection
        self._connection: NodeConnection | None = None  # guarded by: _lock; the sending thread alone uses it

    def send(self, message: Request, version: int, *, timeout_ms: int | None = None) -> Any:
        """Send a request and return the response; raises NodeConnectionError, and the next call tries elsewhere."""
        connection, address = self._connected()
        set_cluster_id(message, self._cluster_id)
        named: Address | None = None
        try:
            response = connection.send(message, version, timeout_ms=timeout_ms)
            # Why getattr: not every response has an error of its own.
            if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                if self._failures + 1 >= len(self._addresses):
                    named = self._ask_for_active(connection)
                raise NodeConnectionError(f"{address[0]}:{address[1]} is not the active controller")
        except NodeConnectionError:
            self.close()
            with self._lock:
                if self._followed == address:
                    self._followed = None
                # Why not the one that has just failed: it may have registered an address that cannot be reached here.
                if self._followed is None and named not in (None, address, self._failed):
                    self._followed = named
            self._failed = address
            self._failures += 1
            if self._addresses[0] == address:
                self._addresses.append(self._addresses.pop(0))
            raise
        self._failures = 0
        return response

    def _ask_for_active(self, connection: NodeConnection) -> Address | None:
        """Return where the active controller is, as a standby one says; raises NodeConnectionError."""
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        found = connection.send(request, CLUSTER_VERSION, timeout_ms=min(self._timeout_ms, ASK_TIMEOUT_MS))
        if found.cluster_id != self._cluster_id:
            return None
        nodes = {node.broker_id: (node.host, node.port) for node in found.brokers}
        return nodes.get(found.controller_id)

    def _connected(self) -> tuple[NodeConnection, Address]:
        """Return the connection to use, and its address; it connects at its first request."""
        with self._lock:
            followed, former = self._followed, self._connection
            if former is not None and self._address is not None and followed in (None, self._address):
                return former, self._address
            if former is not None:
                former.close()
            address = self._address = followed or self._addresses[0]
            connection = self._connection = self._connect(
                *address, timeout_ms=self._timeout_ms, client_id=str(self._broker_id), clock=self._clock,
                traffic=self._traffic,
            )  # fmt: skip
        return connection, address

    def follow(self, address: Address) -> None:
        """Send to this address from now on; a `send` that waits for another one fails. Any thread may call it."""
        with self._lock:
            self._followed = address
            if self._connection is not None and self._address != address:
                self._connection.abort()

    def abort(self) -> None:
        """Make a waiting `send` fail; any thread may call it."""
        with self._lock:
            if self._connection is not None:
                self._connection.abort()

    def close(self) -> None:
        """Close the connection; the next `send` opens another."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
