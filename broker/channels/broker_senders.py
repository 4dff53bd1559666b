"""BrokerSenders: one sender thread for each broker that receives requests of one kind.

Items that are queued while a request is in flight go together in the next request. So a slow or dead broker delays only
its own items, and a busy one gets few, large requests.

Rules
1. The items of a broker are sent in order, a list at a time, by `carry(broker id, connection, items)` on that broker's
   thread. It sends the items and completes each one. The connection is None if the broker's address is unknown.
2. `carry` may wait (for a response, before another attempt) until `is_stopping` is set.
3. A thread starts with the first item for its broker and ends at shutdown. There is at most one thread and one socket
   for each of the other brokers.

Threads: any thread sends; `<name>-<id>-to-<broker>` calls `carry` and owns the connection.
Source: Kafka's InterBrokerSendThread (4.3), which uses one thread for all brokers.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.client.connection import Connect, NodeConnection
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import Node
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.broker-senders")

T = TypeVar("T")

Carry = Callable[[int, "NodeConnection | None", "list[T]"], None]


class BrokerSenders(Generic[T]):
    """See the module."""

    def __init__(
        self,
        name: str,
        short_name: str,
        broker_id: int,
        clock: Clock,
        *,
        node_of: Callable[[int], Node | None],
        carry: Carry[T],
        request_timeout_ms: int,
        connect: Connect = NodeConnection,
    ) -> None:
        self._name = name  # fixed before start
        self._short_name = short_name  # fixed before start
        self._broker_id = broker_id  # fixed before start
        self._clock = clock  # fixed before start
        self._node_of = node_of  # fixed before start
        self._carry = carry  # fixed before start
        self._timeout_ms = request_timeout_ms  # fixed before start
        self._make_connection = connect  # fixed before start
        self._lock = threading.Lock()  # no other lock is taken while it is held
        self._senders: dict[int, _Sender[T]] = {}  # guarded by: _lock; by destination
        self.is_stopping = threading.Event()
        self.traffic: TrafficObserver | None = None  # fixed before start; counts the bytes of the connections

    def send(self, destination: int, item: T) -> None:
        """Queue an item for a broker; during shutdown it is dropped."""
        with self._lock:
            if self.is_stopping.is_set():
                return
            sender = self._senders.get(destination)
            if sender is None:
                sender = self._senders[destination] = _Sender(self, destination)
                sender.thread.start()
        sender.put(item)

    def queue_size(self, destination: int | None = None) -> int:
        """Return the number of waiting items: for one broker, or for all."""
        senders = list(self._senders.items())
        return sum(len(sender.items) for id_, sender in senders if destination in (None, id_))

    def shutdown(self) -> None:
        """End the threads; queued items are dropped."""
        with self._lock:
            self.is_stopping.set()
            senders = list(self._senders.values())
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.thread.join()

    # A sender's thread

    def make_thread(self, destination: int, run: Callable[[], None]) -> ServiceThread:
        """Return a new thread for a destination; -1 is an unknown broker."""
        where = "unknown" if destination < 0 else str(destination)
        return ServiceThread(
            f"{self._name}-{self._broker_id}-to-{where}", f"{self._short_name}-{where}", run, daemon=True
        )

    def connect(self, destination: int, old: NodeConnection | None) -> NodeConnection | None:
        """Return the connection to a broker: the old one if the address is unchanged; None if it is unknown."""
        node = None if destination in (self._broker_id, -1) else self._node_of(destination)
        if old is not None and node is not None and (old.host, old.port) == (node.host, node.port):
            return old
        if old is not None:
            old.close()
        if node is None:
            return None
        return self._make_connection(
            node.host,
            node.port,
            timeout_ms=self._timeout_ms,
            client_id=str(self._broker_id),
            clock=self._clock,
            traffic=self.traffic,
        )

    def carry(self, destination: int, connection: NodeConnection | None, items: list[T]) -> None:
        """Call `carry` of rule 1; an unexpected exception is logged, and the thread goes on."""
        try:
            self._carry(destination, connection, items)
        except Exception:
            log.exception("%s: %d items for broker %d were lost", self._name, len(items), destination)


class _Sender(Generic[T]):
    """The queue and the thread of one destination."""

    def __init__(self, owner: BrokerSenders[T], destination: int) -> None:
        self._owner = owner  # fixed before start
        self._destination = destination  # fixed before start
        self._has_items = threading.Condition()  # guards items
        self.items: deque[T] = deque()  # guarded by: _has_items
        self._connection: NodeConnection | None = None  # owner: the thread; stop may abort it
        self.thread = owner.make_thread(destination, self._run)

    def put(self, item: T) -> None:
        """Queue an item."""
        with self._has_items:
            self.items.append(item)
            self._has_items.notify()

    def stop(self) -> None:
        """Make the thread end, after `is_stopping` was set."""
        connection = self._connection
        if connection is not None:
            connection.abort()
        with self._has_items:
            self._has_items.notify()

    def _run(self) -> None:
        while items := self._take():
            self._connection = self._owner.connect(self._destination, self._connection)
            self._owner.carry(self._destination, self._connection, items)
        if self._connection is not None:
            self._connection.close()

    def _take(self) -> list[T]:
        """Wait for items and return all of them; an empty list means that it is time to end."""
        stopping = self._owner.is_stopping
        with self._has_items:
            while not self.items and not stopping.is_set():
                self._has_items.wait()
            if stopping.is_set():
                return []
            items = list(self.items)
            self.items.clear()
        return items
