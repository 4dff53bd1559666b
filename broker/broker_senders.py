"""BrokerSenders: a thread for each broker that requests of one kind are sent to.

What is to be sent while a request is under way goes together with the next one, so a slow or dead broker delays only
what is meant for it, and a busy one gets few, large requests.

Rules
1. Items of a broker are carried in order, a list at a time, by `carry(broker id, connection, items)` on that broker's
   thread. It sends, and says of each item what became of it; the connection is None when nobody knows its address.
2. `carry` may wait (for an answer, before another attempt) as long as `is_stopping` is not set.
3. A thread starts with the first item for its broker, and ends with the broker that it works for: a thread and a
   socket for each of the others.

Threads: any thread sends; `<name>-<id>-to-<broker>` carries and owns the connection.
Source: Kafka's InterBrokerSendThread (4.3), which waits for all brokers on one thread instead.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.client.connection import Connect, NodeConnection
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.metadata_cache import Node
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
        self._lock = threading.Lock()  # a leaf
        self._senders: dict[int, _Sender[T]] = {}  # guarded by: _lock; by destination
        self.is_stopping = threading.Event()
        self.traffic: TrafficObserver | None = None  # fixed before start; counts what goes over the connections

    def send(self, destination: int, item: T) -> None:
        """Queue an item for a broker; dropped when shutting down."""
        with self._lock:
            if self.is_stopping.is_set():
                return
            sender = self._senders.get(destination)
            if sender is None:
                sender = self._senders[destination] = _Sender(self, destination)
                sender.thread.start()
        sender.put(item)

    def queue_size(self, destination: int | None = None) -> int:
        """Items that wait: for one broker, or for all."""
        senders = list(self._senders.items())
        return sum(len(sender.items) for id_, sender in senders if destination in (None, id_))

    def shutdown(self) -> None:
        """End the threads; what is queued is dropped."""
        with self._lock:
            self.is_stopping.set()
            senders = list(self._senders.values())
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.thread.join()

    # A sender's thread

    def make_thread(self, destination: int, run: Callable[[], None]) -> ServiceThread:
        """The thread for a destination."""
        where = "unknown" if destination < 0 else str(destination)
        return ServiceThread(
            f"{self._name}-{self._broker_id}-to-{where}", f"{self._short_name}-{where}", run, daemon=True
        )

    def connect(self, destination: int, old: NodeConnection | None) -> NodeConnection | None:
        """The connection to a broker: the old one if that is still its address."""
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
        """Carry items; a mistake of ours must not end the thread."""
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
        with self._has_items:
            self.items.append(item)
            self._has_items.notify()

    def stop(self) -> None:
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

    def _take(self) -> list[Any]:
        """Everything that waits; nothing when it is time to end."""
        stopping = self._owner.is_stopping
        with self._has_items:
            while not self.items and not stopping.is_set():
                self._has_items.wait()
            if stopping.is_set():
                return []
            items = list(self.items)
            self.items.clear()
        return items
