"""Sends the requests of the replica: one thread and one connection for each node.

Rules
1. A node has one request in flight. A newer one makes the replica forget the older one, so the older one's connection
   is aborted: a vote does not wait behind a fetch that a dead leader will never answer.
2. A request is reported once, with its response, or with None if there is none; not at all if a newer one comes first.
3. Nothing is repeated here. The replica knows when a request is of use again.
4. There are at most SENDERS_MAX senders, since AddRaftVoter may name any node. Another one replaces the sender that was
   idle for longest, whose request in flight is not reported.

Threads: the raft thread sends; each node's thread (`kafka-<id>-raft-outbound-request-thread-<node>`) reports.

Source: KafkaNetworkChannel, RaftSendThread (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from barnabas import __version__
from barnabas.common.threads import ServiceThread
from barnabas.controller.raft.effects import Send
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.controller.raft")

CLIENT_NAME: Final = "barnabas-controller"
SENDERS_MAX: Final = 64


class Connection(Protocol):
    """The part of `NodeConnection` that a sender uses."""

    @property
    def host(self) -> str:
        """The host that it connects to."""

    @property
    def port(self) -> int:
        """The port that it connects to."""

    def send(self, message: Any, version: int) -> Any:
        """Send a request and return the response; raises OSError."""

    def abort(self) -> None:
        """Make a `send` of another thread fail."""

    def close(self) -> None:
        """Close the connection."""


Connect: TypeAlias = Callable[[str, int], Connection]
"""Returns a connection to the controller listener at this address; raises OSError if the settings do not allow one."""

Report: TypeAlias = Callable[[int, int, Message | None], None]
"""Takes a node id, a correlation id and the response (rule 2)."""


class Senders:
    """The senders of all nodes."""

    def __init__(self, node_id: int, connect: Connect) -> None:
        self._node_id = node_id  # fixed before start
        self._connect = connect  # fixed before start
        self._senders: dict[int, _NodeSender] = {}  # owner: raft thread; the one used last is the last

    def send(self, effect: Send, report: Report) -> None:
        """Send a request; `report` is called by the node's thread."""
        sender = self._senders.pop(effect.node_id, None)
        if sender is None:
            if len(self._senders) >= SENDERS_MAX:  # rule 4
                self._senders.pop(next(iter(self._senders))).stop()
            sender = _NodeSender(self._node_id, effect.node_id, self._connect)
        self._senders[effect.node_id] = sender
        sender.send(effect, report)

    def stop(self) -> None:
        """End all threads; what is in flight fails."""
        for sender in self._senders.values():
            sender.stop()
        for sender in self._senders.values():
            sender.join()


class _NodeSender:
    """The sender of one node."""

    def __init__(self, own_id: int, node_id: int, connect: Connect) -> None:
        self._node_id = node_id  # fixed before start
        self._connect = connect  # fixed before start
        self._changed = threading.Condition()
        self._next: tuple[Send, Report] | None = None  # guarded by: _changed
        self._is_busy = False  # guarded by: _changed
        self._connection: Connection | None = None  # guarded by: _changed; its thread uses it without the lock
        self._is_stopped = False  # guarded by: _changed
        self._is_failing = False  # owner: its thread; the last request failed
        self._worker = ServiceThread(
            f"kafka-{own_id}-raft-outbound-request-thread-{node_id}", f"raft-to-{node_id}", self._run
        )
        self._worker.start()

    def send(self, effect: Send, report: Report) -> None:
        """Send this next (rule 1)."""
        with self._changed:
            self._next = (effect, report)
            if self._is_busy:
                self._abort()
            self._changed.notify()

    def stop(self) -> None:
        """Ask the thread to end."""
        with self._changed:
            self._is_stopped = True
            self._abort()
            self._changed.notify()

    def _abort(self) -> None:
        """Give up the connection; the thread closes it if it is using it. The caller holds `_changed`."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._is_busy:
            connection.abort()
        else:
            connection.close()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._worker.join()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            effect, report = taken
            response = self._exchange(effect)
            with self._changed:
                self._is_busy = False  # Why first: the report makes the replica send the next request
            report(effect.node_id, effect.correlation_id, response)

    def _take(self) -> tuple[Send, Report] | None:
        with self._changed:
            while self._next is None and not self._is_stopped:
                self._changed.wait()
            taken, self._next = self._next, None
            self._is_busy = True
            return None if self._is_stopped else taken

    def _exchange(self, effect: Send) -> Message | None:
        request = effect.request
        if isinstance(request, ApiVersionsRequest):
            request = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=__version__)
        connection = None
        try:
            connection = self._connected(effect)
            response: Message = connection.send(request, request.MAX_VERSION)
        except (OSError, ValueError) as error:  # a ValueError is a request or a response that makes no sense
            self._failed(effect, connection, error)
            return None
        self._is_failing = False
        self._close_if_given_up(connection)
        return response

    def _connected(self, effect: Send) -> Connection:
        """Return a connection to the effect's address; raises ConnectionAbortedError if a newer request waits."""
        with self._changed:
            if self._next is not None or self._is_stopped:
                raise ConnectionAbortedError("a newer request replaces it")
            found = self._connection
            if found is None or (found.host, found.port) != (effect.host, effect.port):
                self._connection = self._connect(effect.host, effect.port)
                if found is not None:
                    found.close()
            assert self._connection is not None
            return self._connection

    def _failed(self, effect: Send, connection: Connection | None, error: Exception) -> None:
        with self._changed:
            is_replaced = self._next is not None or self._is_stopped
            if self._connection is connection:
                self._connection = None
        if connection is not None:
            self._close_if_given_up(connection)
        if not is_replaced:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            log.log(level, "Controller %d at %s:%d: %s", self._node_id, effect.host, effect.port, error)
            self._is_failing = True

    def _close_if_given_up(self, connection: Connection) -> None:
        if self._connection is not connection:
            connection.close()
