"""Request handlers: the threads that run the APIs.

A handler takes a request from the request queue, has the dispatcher carry it out (requests/dispatcher.py), and takes
the next.

Rules
1. A handler never touches a socket.
2. Requests that came together from one connection are carried out one after the other by the handler that took the
   first, as long as each is answered at once. After one that is parked, throttled or the last of its connection, the
   processor decides about the rest.
3. A handler wakes sleeping processors at the end of a turn, whether it answered its own request or parked ones of
   others. With more requests to do it wakes them only after `WAKES_AFTER` requests, so that a processor finds several
   answers when it runs. It also wakes them before it sleeps, and before a request that may take long.

Threads: a handler is one thread; `HandlerPool` is called by main and by dynamic configuration.
Source: Kafka's KafkaRequestHandler, KafkaRequestHandlerPool (4.3).
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from typing import TYPE_CHECKING, Final

from barnabas.broker.requests.dispatcher import Dispatcher, DispatcherServices, wake_all
from barnabas.common.clock import NS_PER_S, Clock
from barnabas.common.threads import ServiceThread
from barnabas.metrics.table import catalogue
from barnabas.protocol.limits import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.authorization.authorizer import Authorizer
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.request_channel import RequestChannel, RequestQueue
    from barnabas.broker.requests.api import Table
    from barnabas.broker.requests.request import Request, Responses
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.handlers")

CONTROL_PLANE: Final = "control-plane"  # prefix of the threads of the pool that carries out pushes
IDLE_REPORT_S: Final = 2.0
WAKES_AFTER: Final = 32


class Handler:
    """One request handler: its loop, and what it does at this moment. Owner: its thread; the live page reads."""

    __slots__ = ("_dispatcher", "_mark_idle", "_now_ns", "_requests", "id", "request", "since_ns")

    def __init__(
        self,
        handler_id: int,
        dispatcher: Dispatcher,
        requests: RequestQueue,
        now_ns: Callable[[], int],
        mark_idle: Callable[[int], None],
    ) -> None:
        self.id = handler_id  # fixed before start
        self._dispatcher = dispatcher  # fixed before start
        self._requests = requests  # fixed before start
        self._now_ns = now_ns  # fixed before start
        self._mark_idle = mark_idle  # fixed before start; called with nanoseconds
        self.request: Request | None = None  # in progress, until the operations that it moved are completed
        self.since_ns = now_ns()  # when it last had nothing to do; a request knows when it was taken

    def run(self) -> None:
        """Handle requests until the sentinel comes. Any handler of the pool may take it."""
        handle = self._dispatcher.handle
        now_ns = self._now_ns
        requests = self._requests
        to_wake = self._dispatcher.enter()
        answered = 0  # since processors were last woken
        request: Request | None = None
        while True:
            request = request.following if request is not None and request.goes_on else None
            is_turn_over = request is None and not requests.has_waiting()
            if to_wake and (answered >= WAKES_AFTER or is_turn_over or requests.slow_motion is not None):
                wake_all(to_wake)
                answered = 0
            if request is None:
                request = self._next(to_wake)
            if request is None:
                wake_all(to_wake)  # Why: the sentinel waited, so the turn was not over, and no other handler wakes them
                self._dispatcher.leave()
                return
            request.dequeued_ns = now_ns()
            self.request = request
            answered += 1
            try:
                handle(request, to_wake)
            except Exception:
                # Why: a bug outside the API (in sending, in parking) must not end the handler.
                log.exception("handling a request of connection %s failed", request.context.connection_id)
            self.request = None

    def _next(self, to_wake: list[Responses]) -> Request | None:
        """Take the next request, sleeping until there is one; None is the sentinel."""
        try:
            return self._requests.get(False)
        except queue.Empty:
            wake_all(to_wake)
        self.since_ns = self._now_ns()
        while True:
            started_ns = self._now_ns()
            try:
                return self._requests.get(timeout=IDLE_REPORT_S)
            except queue.Empty:
                pass  # Why a timeout: idle time must show while it lasts.
            finally:
                self._mark_idle(self._now_ns() - started_ns)


class HandlerPool:
    """The request handlers of a process (num.io.threads); with the prefix CONTROL_PLANE those of pushes only."""

    def __init__(
        self,
        count: int,
        channel: RequestChannel,
        table: Table,
        services: DispatcherServices,
        request_log: RequestLog,
        registry: Registry,
        clock: Clock,
        *,
        thread_prefix: str = "data-plane",
        request_bytes_max: int = UNBOUNDED,
        quotas: ClientQuotas | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        is_control_plane = thread_prefix == CONTROL_PLANE
        requests = channel.control if is_control_plane else channel.requests
        assert requests is not None, "there is no control plane"
        self._requests: RequestQueue = requests
        self._dispatcher = Dispatcher(table, services, request_log, clock, request_bytes_max, quotas, authorizer)
        if is_control_plane:
            self._idle = registry.meter(catalogue.CONTROL_PLANE_REQUEST_HANDLER_AVG_IDLE_PERCENT)
            registry.gauge(catalogue.CONTROL_PLANE_REQUEST_QUEUE_SIZE, requests.qsize)
        else:
            self._idle = registry.meter(catalogue.REQUEST_HANDLER_AVG_IDLE_PERCENT)
            own_idle = catalogue.BROKER_REQUEST_HANDLER_AVG_IDLE_PERCENT
            if thread_prefix == "controller":
                own_idle = catalogue.CONTROLLER_REQUEST_HANDLER_AVG_IDLE_PERCENT
            registry.meter_of(own_idle, lambda: self._idle.count)
            registry.gauge(catalogue.REQUEST_HANDLER_COUNT, lambda: len(self._threads))
            registry.gauge(catalogue.SLEEPING_REQUEST_HANDLER_COUNT, requests.sleeping_handlers)
        self._clock = clock
        self._thread_prefix = thread_prefix
        self._os_name = "push-handler" if is_control_plane else "req-handler"
        self._lock = threading.Lock()  # serialises resizes
        self._threads: list[ServiceThread] = []  # guarded by: _lock; without `_ending`
        self._ending: list[ServiceThread] = []  # guarded by: _lock; each takes a sentinel and ends
        self._next_id = 0  # guarded by: _lock
        self._handlers: dict[int, Handler] = {}  # by id; each handler removes itself when it ends
        self._count = count  # guarded by: _lock

    def start(self) -> None:
        """Start the handlers."""
        self.resize(self._count)

    def resize(self, count: int) -> None:
        """Change the number of handlers; surplus ones end after the requests queued so far."""
        with self._lock:
            self._count = count
            change = count - len(self._threads)
            self._requests.add_handlers(change)
            for _ in range(change):
                handler = self._handlers[self._next_id] = Handler(
                    self._next_id, self._dispatcher, self._requests, self._clock.monotonic_ns, self._mark_idle
                )
                thread = ServiceThread(
                    f"{self._thread_prefix}-kafka-request-handler-{self._next_id}",
                    f"{self._os_name}-{self._next_id}",
                    functools.partial(self._run, handler),
                )
                self._next_id += 1
                self._threads.append(thread)
                thread.start()
            for _ in range(-change):
                self._ending.append(self._threads.pop())
                self._requests.put(None)

    def shutdown(self) -> None:
        """Take no more requests, handle the queued ones, and end. Join processors only after this."""
        self._requests.close()
        with self._lock:
            threads = self._threads + self._ending
            count = len(self._threads)
        self.resize(0)
        for thread in threads:
            thread.join()
        log.debug("%d request handlers ended", count)

    def handlers(self) -> list[Handler]:
        """Return a snapshot of the handlers; from any thread."""
        return list(self._handlers.values())

    def idle_share(self, now_s: float) -> float:
        """Return the share of time that handlers were idle in the last minute, 0 to 1; called by the scrape."""
        return min(1.0, self._idle.snapshot(now_s)[1].one_minute / NS_PER_S)

    def _run(self, handler: Handler) -> None:
        handler.run()
        del self._handlers[handler.id]

    def _mark_idle(self, idle_ns: int) -> None:
        self._idle.mark(idle_ns // max(1, self._count))
