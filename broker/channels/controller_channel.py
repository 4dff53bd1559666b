"""ControllerChannel: a thread with a queue of requests to the controller, and the connection for them.

Rules
1. Requests are sent one at a time, in order. If a request cannot be sent, or reaches no active controller, it is sent
   again to the next known address until its time is up. So it may arrive twice. An Envelope has a number
   (push_tags.py, tag 10011), by which controllers know that it was carried out: it is not carried out again, and the
   answer is that of the first time. Another request may be carried out twice: a block of producer ids is lost.
2. `on_done(response)` is called exactly once, on the channel's thread. The response is None if the time is up, or at
   shutdown. The callback must not block.

Threads: any thread sends; `broker-<id>-to-controller-<name>-channel-manager` owns the connection.
Source: Kafka's NodeToControllerChannelManager (4.3).
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.broker.channels.active_controller import ActiveController
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.ids import random_uuid
from barnabas.common.threads import ServiceThread
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.push_tags import Attempt, set_attempt

if TYPE_CHECKING:
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock
    from barnabas.protocol.schema import Request

log = logging.getLogger("barnabas.controller-channel")

RETRY_BACKOFF_MS = 50
QUEUE_SIZE_MAX = 10_000

OnDone = Callable[[Any], None]  # Why Any: each caller knows the response class of its request


@dataclass(slots=True)
class _Item:
    message: Request
    version: int
    on_done: OnDone
    deadline_ns: int


class ControllerChannel:
    """One channel to the controller; a broker has several, so that slow requests do not delay the others."""

    def __init__(
        self,
        name: str,
        broker_id: int,
        addresses: Sequence[tuple[str, int]],
        clock: Clock,
        *,
        request_timeout_ms: int,
        cluster_id: str,
        traffic: TrafficObserver | None = None,
        connect: Connect = NodeConnection,
    ) -> None:
        self._clock = clock  # fixed before start
        self._timeout_ms = request_timeout_ms  # fixed before start; the default of a request
        self._controller = ActiveController(
            broker_id,
            addresses,
            clock,
            timeout_ms=request_timeout_ms,
            cluster_id=cluster_id,
            traffic=traffic,
            connect=connect,
        )  # owner: the channel's thread; shutdown aborts it
        self._sender = random_uuid()  # fixed before start; of numbered requests
        self._number = 0  # owner: the channel's thread; of the last numbered request
        self._items: queue.Queue[_Item | None] = queue.Queue(QUEUE_SIZE_MAX)
        self._stopping = threading.Event()
        self._thread = ServiceThread(
            f"broker-{broker_id}-to-controller-{name}-channel-manager", f"to-ctl-{name}", self._run
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread; queued requests are completed with None."""
        self._stopping.set()
        self._controller.abort()
        self._items.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def follow(self, address: tuple[str, int]) -> None:
        """Send to the controller at this address from now on; any thread may call it."""
        self._controller.follow(address)

    def queue_size(self) -> int:
        """Return the number of requests that wait to be sent."""
        return self._items.qsize()

    def send(
        self, message: Request, on_done: OnDone, *, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        """Queue a request, by default in its newest version; a full queue completes it with None at once."""
        timeout = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline_ns = self._clock.monotonic_ns() + timeout * 1_000_000
        item = _Item(message, message.MAX_VERSION if version is None else version, on_done, deadline_ns)
        try:
            if self._stopping.is_set():
                raise queue.Full
            self._items.put_nowait(item)
        except queue.Full:
            on_done(None)

    def call(self, message: Request, *, timeout_ms: int | None = None) -> Any:
        """Send and wait for the response; None if the time is up. Not for the channel's own thread."""
        done = threading.Event()
        responses: list[Any] = []

        def on_done(response: Any) -> None:
            responses.append(response)
            done.set()

        self.send(message, on_done, timeout_ms=timeout_ms)
        done.wait()
        return responses[0]

    # The channel's thread

    def _run(self) -> None:
        while True:
            item = self._items.get()
            if item is None:
                break
            self._serve(item)
        while not self._items.empty():
            left = self._items.get_nowait()
            if left is not None:
                left.on_done(None)
        self._controller.close()

    def _serve(self, item: _Item) -> None:
        response = None
        # Why here: the numbers must grow in the order in which the requests are sent.
        self._number += 1
        attempts = itertools.count(1)
        while response is None and not self._stopping.is_set():
            left_ms = (item.deadline_ns - self._clock.monotonic_ns()) // 1_000_000
            if left_ms <= 0:
                break
            if isinstance(item.message, EnvelopeRequest):
                set_attempt(item.message, Attempt(self._sender, self._number, next(attempts)))
            response = self._try(item, left_ms)
            if response is None:
                self._stopping.wait(RETRY_BACKOFF_MS / 1000)
        try:
            item.on_done(response)
        except Exception:
            log.exception("the callback for the response to %s failed", type(item.message).__name__)

    def _try(self, item: _Item, left_ms: int) -> Any:
        """Try once; returns None if the request has to be sent again, to another address."""
        try:
            return self._controller.send(item.message, item.version, timeout_ms=left_ms)
        except NodeConnectionError as error:
            log.debug("%s", error)
            return None
