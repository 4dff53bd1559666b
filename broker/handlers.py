"""Request handlers: the threads that run the APIs.

The way of a request (`Dispatcher.handle`): decode, dispatch by the table, act on the answer; then, holding no lock,
wake the purgatories whose keys the API moved.

Rules
1. Exactly one place dispatches (`_dispatch`), one parks (`_park`), one replies (`_reply`): whoever wants to watch,
   delay or break requests does it there.
2. A handler never touches a socket: it encodes the answer and queues it for the request's processor.
3. `ApiError` is an expected failure of the whole request and becomes the API's error response. Any other exception is
   a mistake of ours: it is logged with the correlation id and counted, and the client is told UNKNOWN_SERVER_ERROR.
4. What cannot be understood closes the connection, as Kafka does: an unknown API key or version, a malformed header or
   body, a request too large for its kind. Except ApiVersions of a version too new, which is answered in version 0, so
   that clients can step down (KIP-511).
5. A parked request is answered by whoever completes its operation: another handler, the reaper, an event thread.
6. Requests that came together from one connection are carried out one after the other by the handler that took the
   first, as long as each is answered here and now. After one that is parked, throttled or the last of its connection,
   the processor decides what becomes of the rest.
7. A handler wakes sleeping processors at the end of a turn, whether it answered its own request or parked ones of
   others, and with more requests at hand only after some of them, so that a processor finds several answers when it
   comes. It wakes them before it sleeps, and before a request that may take long.
8. On a listener for clients a request that only brokers and controllers send (`Api.nodes_only`) is answered with
   CLUSTER_AUTHORIZATION_FAILED.

Threads: a handler is one thread; `HandlerPool` is called by main and by dynamic configuration.
Source: Kafka's KafkaRequestHandler, KafkaApis.handle (4.3).
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.broker.answers import Answer, Close, NoReply, Park, Reply
from barnabas.broker.apis.api import Api, Table
from barnabas.broker.request_channel import CLOSING, Action, Request, RequestChannel, RequestQueue, ResponseQueue
from barnabas.common.clock import NS_PER_S, Clock
from barnabas.common.threads import ServiceThread
from barnabas.metrics import catalogue
from barnabas.protocol import headers
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.limits import SMALL_BYTES, UNBOUNDED, request_bytes_max
from barnabas.protocol.messages import request_class

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.broker.purgatory import DelayedOperation
    from barnabas.broker.request_log import RequestLog
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.handlers")

API_VERSIONS_KEY: Final = 18
#: Produce, Fetch, ListOffsets, Metadata, Heartbeat, ApiVersions: never wait for anything before they answer or park.
QUICK_KEYS: Final = frozenset({0, 1, 2, 3, 12, 18})
CONTROL_PLANE: Final = "control-plane"  # prefix of the threads of the pool that carries out pushes
IDLE_REPORT_S: Final = 2.0
WAKES_AFTER: Final = 32
#: Why a bound: who sends much and reads nothing makes us keep the answers of one run.
GOES_ON_BYTES_MAX: Final = 16 * 1024

_SEND, _SEND_AND_CLOSE = Action.SEND, Action.SEND_AND_CLOSE  # Why: looked up for every response


def wake_all(to_wake: list[ResponseQueue]) -> None:
    """Wake the processors of these response queues, and forget them."""
    for responses in to_wake:
        responses.wake()
    to_wake.clear()


class HandlerServices(Protocol):
    """What handlers themselves need of the services that they give to APIs."""

    def complete_delayed(self, key: Any) -> None:
        """Try the operations watched under a key; called holding no lock."""


class RefusedError(Exception):
    """A request that cannot be understood: its connection is closed (rule 4)."""


class Dispatcher:
    """Turns requests into answers and answers into responses; shared by all handlers of a pool.

    Threads: any handler, and whoever completes a parked operation. Everything is fixed before start.
    """

    def __init__(
        self,
        table: Table,
        services: HandlerServices,
        request_log: RequestLog,
        clock: Clock,
        request_bytes_max: int = UNBOUNDED,
    ) -> None:
        self._table = table
        self._request_bytes_max = request_bytes_max
        self._services = services
        self._request_log = request_log
        self._now_ns = clock.monotonic_ns
        self._decoders: dict[int, Callable[..., Any]] = {}  # by API key and version; grows, entries never change
        self._to_wake: dict[int, list[ResponseQueue]] = {}  # by thread; each handler has an entry of its own

    def enter(self) -> list[ResponseQueue]:
        """Make the calling thread a handler; returns where it finds the queues that it has to wake (rule 6)."""
        to_wake = self._to_wake[get_ident()] = []
        return to_wake

    def leave(self) -> None:
        """End what `enter` began."""
        del self._to_wake[get_ident()]

    def handle(self, request: Request, to_wake: list[ResponseQueue]) -> None:
        """Take a request all the way to its answer, or to where it waits for it; the calling thread is a handler."""
        try:
            api = self._decode(request)
        except (RefusedError, MalformedMessageError, UnsupportedVersionError) as error:
            self._refuse(request, str(error))
            return
        if self._request_log.wants(api.key):
            self._request_log.received(request)
        if to_wake and api.key not in QUICK_KEYS:
            wake_all(to_wake)
        answer = self._dispatch(api, request)
        request.api_local_done_ns = self._now_ns()
        if isinstance(answer, Park):
            self._park(request, answer)
        else:
            self._reply(request, answer, to_wake, goes_on=request.following is not None)
        if request.moved:
            self._complete_moved(request.moved)

    def _decode(self, request: Request) -> Api:
        """Read header and body; raises RefusedError or MalformedMessageError (rule 4)."""
        buffer = request.buffer
        assert buffer is not None
        header, offset = headers.decode_request_header(buffer)
        request.header = header
        request.header_bytes = offset
        api = self._table.get(header.api_key)
        if api is None:
            raise RefusedError(f"API key {header.api_key} is not served here")
        version = header.api_version
        low, high = api.versions  # Why not api.supports: a call for every request
        if not low <= version <= high:
            if api.key != API_VERSIONS_KEY:
                raise RefusedError(f"{api.name} v{version} is not served here")
            # The body is of an unknown version too; the API looks at the header and answers UNSUPPORTED_VERSION.
            request.message = None
        else:
            if len(buffer) > SMALL_BYTES:
                self._check_size(api, request, len(buffer))
            decode = self._decoders.get(api.key << 16 | version) or self._load_decoder(api.key, version)
            request.message = decode(buffer, offset)[0]
        request.api = api
        return api

    def _check_size(self, api: Api, request: Request, size: int) -> None:
        """Refuse a request that is too large for its kind, or a large one of a stranger, before it is decoded."""
        assert request.buffer is not None
        size_max = request_bytes_max(api.key, self._request_bytes_max, request.context.is_for_clients)
        if size > size_max:
            raise RefusedError(
                f"a {api.name} request of {size} bytes is larger than {size_max}; see barnabas.request.max.bytes"
            )
        if api.admits is not None and not api.admits(self._services, request.buffer):
            raise RefusedError(f"a {api.name} request of {size} bytes is not for this process")

    def _load_decoder(self, api_key: int, version: int) -> Callable[..., Any]:
        decoder = self._decoders[api_key << 16 | version] = request_class(api_key).decoder(version)
        return decoder

    def _dispatch(self, api: Api, request: Request) -> Answer:
        """Let the API answer (rule 1), unless its row keeps this request for nodes (rule 8)."""
        try:
            nodes_only = api.nodes_only
            if nodes_only is not None and request.context.is_for_clients and nodes_only(request):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return api.handle(self._services, request)
        except ApiError as error:
            return self._error_answer(request, error)
        except Exception as mistake:
            return self._mistake_answer(request, mistake)

    def _error_answer(self, request: Request, error: ApiError) -> Reply | Close:
        api, header = request.api, request.header
        assert api is not None
        make = api.error_response or error_response
        try:
            return Reply(make(request.message, header.api_version, error.code, error.message))
        except Exception:
            log.exception("%s v%d has no error response", api.name, header.api_version)
            return Close(f"no way to answer {error.code.name}")

    def _mistake_answer(self, request: Request, error: Exception) -> Reply | Close:
        """Answer for a mistake of ours (rule 3)."""
        header = request.header
        log.error(
            "%s v%d, correlation id %d from client=%s, connection %s, failed with an unexpected error",
            request.api.name if request.api is not None else header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            request.context.connection_id,
            exc_info=error,
        )
        return self._error_answer(request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _park(self, request: Request, park: Park) -> None:
        """Leave the request to its operation (rule 5); it may be complete before this returns."""
        connection = request.connection
        if connection is not None and connection.gate is not None:
            # Why now: what it waits for may be in requests that wait for memory. And when others can answer it, the
            # connection is about to read its next one.
            connection.gate.release(connection)
        request.operation = park.operation
        park.operation.bind(functools.partial(self._answer_parked, request), request)
        if park.purgatory is not None:
            park.purgatory.try_complete_else_watch(park.operation, park.keys)

    def _answer_parked(self, request: Request, operation: DelayedOperation) -> None:
        """Answer a request whose operation is complete; on whatever thread completed it."""
        answer: Answer
        try:
            outcome = operation.response()
            answer = outcome if isinstance(outcome, (Reply, NoReply, Close)) else Reply(outcome)
        except ApiError as error:
            answer = self._error_answer(request, error)
        except Exception as mistake:
            answer = self._mistake_answer(request, mistake)
        self._reply(request, answer, self._to_wake.get(get_ident()))

    def _reply(
        self,
        request: Request,
        answer: Reply | NoReply | Close,
        to_wake: list[ResponseQueue] | None,
        goes_on: bool = False,
    ) -> None:
        """Queue the answer for the request's processor (rules 1 and 7); `to_wake` is the list of a calling handler,
        which goes on with the next request of the connection if it can (rule 6).
        """
        if isinstance(answer, Reply):
            try:
                self._encode(request, answer)
            except Exception as error:
                self._encode_mistake(request, error)
            request.api_throttle_ms = answer.throttle_time_ms
        elif isinstance(answer, NoReply):
            request.action = Action.NO_OP
            request.api_throttle_ms = answer.throttle_time_ms
        else:
            request.action = Action.CLOSE
            log.log(
                answer.level,
                "closing connection %s instead of answering %s: %s",
                request.context.connection_id,
                request.api.name if request.api is not None else "a request",
                answer.reason or "no answer may be sent",
            )
        # Why dropped: parked requests are many, and what they point at is large.
        request.message = None
        request.buffer = None
        request.operation = None
        request.api_remote_done_ns = self._now_ns()
        if goes_on:  # Why before it is queued: the processor asks.
            request.goes_on = (
                request.api_throttle_ms <= 0
                and request.action not in CLOSING
                and request.response_size_bytes <= GOES_ON_BYTES_MAX
            )
        responses: ResponseQueue = request.processor.responses
        if not responses.add(request):
            return
        if to_wake is None:  # completed by the reaper, a fetcher, an event thread
            responses.wake()
        else:
            to_wake.append(responses)

    def _encode(self, request: Request, reply: Reply) -> None:
        parts = headers.response_parts(request.header, reply.message, reply.encoded)
        request.parts = parts
        request.response_size_bytes = headers.frame_size(parts)
        request.action = _SEND_AND_CLOSE if reply.close_after else _SEND
        self._request_log.replied(request, reply.message)

    def _encode_mistake(self, request: Request, error: Exception) -> None:
        """Put an error in the place of an answer that could not be encoded."""
        substitute = self._mistake_answer(request, error)
        request.action = Action.CLOSE
        request.parts = None
        if isinstance(substitute, Reply):
            try:
                self._encode(request, substitute)
            except Exception:
                log.exception("the error response cannot be encoded either; closing the connection")

    def _refuse(self, request: Request, reason: str) -> None:
        log.warning("closing connection %s: %s", request.context.connection_id, reason)
        request.action = Action.CLOSE
        request.buffer = None
        request.api_local_done_ns = request.api_remote_done_ns = self._now_ns()
        request.processor.responses.put(request)

    def _complete_moved(self, keys: list[Hashable]) -> None:
        """Wake those who waited for what the API changed; no lock is held here."""
        for key in keys:
            try:
                self._services.complete_delayed(key)
            except Exception:
                log.exception("waking what waits for %s failed", key)


class Handler:
    """What one handler does at this moment. Owner: the handler's thread; the live page reads."""

    __slots__ = ("id", "request", "since_ns")

    def __init__(self, handler_id: int, now_ns: int) -> None:
        self.id = handler_id  # fixed before start
        self.request: Request | None = None  # in hand, until what it moved was woken
        self.since_ns = now_ns  # when it last had nothing to do; a request knows when it was taken


class HandlerPool:
    """The request handlers of a process (num.io.threads); with the prefix CONTROL_PLANE those of pushes only."""

    def __init__(
        self,
        count: int,
        channel: RequestChannel,
        table: Table,
        services: HandlerServices,
        request_log: RequestLog,
        registry: Registry,
        clock: Clock,
        *,
        thread_prefix: str = "data-plane",
        request_bytes_max: int = UNBOUNDED,
    ) -> None:
        is_control_plane = thread_prefix == CONTROL_PLANE
        requests = channel.control if is_control_plane else channel.requests
        assert requests is not None, "there is no control plane"
        self._requests: RequestQueue = requests
        self._dispatcher = Dispatcher(table, services, request_log, clock, request_bytes_max)
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
        self._threads: list[ServiceThread] = []  # guarded by: _lock; those not told to end
        self._ending: list[ServiceThread] = []  # guarded by: _lock
        self._next_id = 0  # guarded by: _lock
        self._handlers: dict[int, Handler] = {}  # by id; each handler removes itself when it ends
        self._count = count  # guarded by: _lock

    def start(self) -> None:
        """Start the handlers."""
        self.resize(self._count)

    def resize(self, count: int) -> None:
        """Have `count` handlers from now on; those too many end after the requests queued so far."""
        with self._lock:
            self._count = count
            change = count - len(self._threads)
            self._requests.add_handlers(change)
            for _ in range(change):
                handler = self._handlers[self._next_id] = Handler(self._next_id, self._clock.monotonic_ns())
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
        """Take no more requests, handle those queued, and end; processors must not be waited for before."""
        self._requests.close()
        with self._lock:
            threads = self._threads + self._ending
            count = len(self._threads)
        self.resize(0)
        for thread in threads:
            thread.join()
        log.debug("%d request handlers ended", count)

    def handlers(self) -> list[Handler]:
        """Every handler that there is now; from any thread."""
        return list(self._handlers.values())

    def idle_share(self, now_s: float) -> float:
        """The share of time that handlers had nothing to do in the last minute; the caller is the one who scrapes."""
        return min(1.0, self._idle.snapshot(now_s)[1].one_minute / NS_PER_S)

    def _run(self, handler: Handler) -> None:
        """Handle requests until the sentinel comes. Any handler may take it: they are all alike."""
        handle = self._dispatcher.handle
        now_ns = self._clock.monotonic_ns
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
                request = self._next(handler, to_wake)
            if request is None:
                self._dispatcher.leave()
                del self._handlers[handler.id]
                return
            request.dequeued_ns = now_ns()
            handler.request = request
            answered += 1
            try:
                handle(request, to_wake)
            except Exception:
                # Why: a mistake outside the API (in sending, in parking) must not end the handler.
                log.exception("handling a request of connection %s failed", request.context.connection_id)
            handler.request = None

    def _next(self, handler: Handler, to_wake: list[ResponseQueue]) -> Request | None:
        try:
            return self._requests.get(False)
        except queue.Empty:
            wake_all(to_wake)
        handler.since_ns = self._clock.monotonic_ns()
        while True:
            started_ns = self._clock.monotonic_ns()
            try:
                return self._requests.get(timeout=IDLE_REPORT_S)
            except queue.Empty:
                pass  # Why a timeout: idle time is to be seen while it lasts.
            finally:
                idle_ns = self._clock.monotonic_ns() - started_ns
                self._idle.mark(idle_ns // max(1, self._count))
