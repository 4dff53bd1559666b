"""The dispatcher: carries one request out, from its frame to its queued response.

Steps (`Dispatcher.handle`): decode, dispatch by the API table, act on the answer. Then, holding no lock, check the
purgatories for the keys that the API moved.

Rules
1. One place dispatches (`_dispatch`), one parks (`_park`), one replies (`_reply`). Code that watches, delays or breaks
   requests hooks in there.
2. The dispatcher never touches a socket: it encodes the response and queues it for the request's processor.
3. `ApiError` is an expected failure of the whole request and becomes the API's error response. Any other exception is a
   bug: it is logged with the correlation id, counted, and answered with UNKNOWN_SERVER_ERROR.
4. A request that cannot be understood closes its connection, as in Kafka: an unknown API key or version, a malformed
   header or body, a request too large for its kind. The exception is an ApiVersions of too new a version: it is
   answered in version 0, so that clients can step down (KIP-511).
5. A parked request is answered by the thread that completes its operation: another handler, the reaper, an event
   thread. A `Continuation` resumes there too, and may park the request again.
6. On a listener for clients, a request that only brokers and controllers send (`Api.nodes_only`) is answered with
   CLUSTER_AUTHORIZATION_FAILED, unless an authorizer has a rule by which the client is a node.
7. The authorizer, if there is one, is asked before the API: for the rights that the whole request needs.
8. Each answer is charged to the client's quotas, unless its API has done so (Produce, Fetch). The response names the
   wait that a quota imposes; the processor carries it out.
9. Lines about closed connections and about bugs are limited (`LogLimit`): a client can cause any number of them.

Threads: any handler, and any thread that completes a parked operation. All attributes are fixed before start, unless
they say otherwise.
Source: Kafka's KafkaApis.handle, RequestChannel.sendResponse (4.3).
"""

from __future__ import annotations

import copy
import functools
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from barnabas.broker.authorization.nodes import is_node_by_listener
from barnabas.broker.requests.answers import Close, Ending, NoReply, Reply
from barnabas.broker.requests.parking import Answer, Park
from barnabas.broker.requests.request import CLOSING, Action, Request
from barnabas.common.logs import LogLimit
from barnabas.protocol import headers
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.limits import SMALL_BYTES, UNBOUNDED, request_bytes_max
from barnabas.protocol.messages import request_class

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.broker.authorization.authorizer import Authorizer
    from barnabas.broker.purgatory import DelayedOperation
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.requests.api import Api, Table
    from barnabas.broker.requests.request import Responses
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.common.clock import Clock
    from barnabas.protocol.headers import RequestHeader

log = logging.getLogger("barnabas.handlers")

Decode: TypeAlias = "Callable[..., Any]"

API_VERSIONS_KEY: Final = 18
#: Produce, Fetch, ListOffsets, Metadata, Heartbeat, ApiVersions: they answer or park without waiting for anything.
QUICK_KEYS: Final = frozenset({0, 1, 2, 3, 12, 18})
#: Why a bound: a client that sends much and reads nothing makes the broker keep the responses of one run.
GOES_ON_BYTES_MAX: Final = 16 * 1024

_NO_FRAME: Final = "only a request with a frame of its own is answered"

_SEND, _SEND_AND_CLOSE = Action.SEND, Action.SEND_AND_CLOSE  # Why: looked up for every response


def wake_all(to_wake: list[Responses]) -> None:
    """Wake the processors of these response queues, and empty the list."""
    for responses in to_wake:
        responses.wake()
    to_wake.clear()


def _api_name(request: Request) -> str:
    return request.api.name if request.api is not None else f"API key {request.header.api_key}"


def _throttled(answer: Ending, ms: int) -> Ending:
    """Return an answer that makes the client wait (rule 8), at least as long as it did already."""
    if isinstance(answer, Close) or answer.throttle_time_ms >= ms:
        return answer
    if isinstance(answer, NoReply):
        return NoReply(ms)
    message: Any = answer.message
    if getattr(message, "throttle_time_ms", ms) != ms:
        message = copy.copy(message)  # Why: it may be cached
        message.throttle_time_ms = ms
    return Reply(message, ms, answer.close_after)


class DispatcherServices(Protocol):
    """What the dispatcher itself needs of the services that it passes to APIs."""

    @property
    def complete_all_delayed(self) -> Callable[[Any], None]:
        """Tries the operations watched under any of these keys; called holding no lock."""


class RefusedError(Exception):
    """A request that cannot be understood: its connection is closed (rule 4)."""


class Dispatcher:
    """Turns requests into answers and answers into responses; shared by all handlers of a pool."""

    def __init__(
        self,
        table: Table,
        services: DispatcherServices,
        request_log: RequestLog,
        clock: Clock,
        request_bytes_max: int = UNBOUNDED,
        quotas: ClientQuotas | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._table = table
        self._quotas = quotas
        self._authorizer = authorizer
        self._request_bytes_max = request_bytes_max
        self._services = services
        self._complete_all_delayed = services.complete_all_delayed
        self._request_log = request_log
        self._now_ns = clock.monotonic_ns
        self._lines = LogLimit(log, clock.monotonic_ns)
        self._decoders: dict[int, Decode] = {}  # by API key and version; grows, entries never change
        self._to_wake: dict[int, list[Responses]] = {}  # by thread; each handler has an entry of its own

    def enter(self) -> list[Responses]:
        """Make the calling thread a handler; return the list of response queues that it has to wake."""
        to_wake = self._to_wake[get_ident()] = []
        return to_wake

    def leave(self) -> None:
        """End what `enter` began."""
        del self._to_wake[get_ident()]

    def handle(self, request: Request, to_wake: list[Responses]) -> None:
        """Carry a request out until it is answered or parked; the calling thread is a handler.

        `to_wake` is the handler's list from `enter`; queues whose processors it must wake are added.
        """
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
        moved = request.moved
        if isinstance(answer, Park):
            if moved:
                request.moved = []  # Why: another thread may continue the request at once, and move other keys.
            self._park(request, answer)
        else:
            self._reply(request, answer, to_wake, goes_on=request.following is not None)
        if moved:
            self._complete_moved(moved)

    def _decode(self, request: Request) -> Api:
        """Read header and body; raises RefusedError or MalformedMessageError (rule 4)."""
        buffer = request.buffer
        assert buffer is not None
        header, offset = headers.decode_request_header(buffer)
        request.header = header
        request.header_bytes = offset
        api = self._table.get(header.api_key)  # Why not kept with the decoder: rows change while the broker runs
        if api is None:
            raise RefusedError(f"API key {header.api_key} is not served here")
        decode = self._decoders.get(header.api_key << 16 | header.api_version) or self._new_decoder(api, header)
        if decode is not None:
            if len(buffer) > SMALL_BYTES:
                self._check_size(api, request, len(buffer))
            request.message = decode(buffer, offset)[0]
        request.api = api
        return api

    def _new_decoder(self, api: Api, header: RequestHeader) -> Decode | None:
        """Return what decodes a kind of request that was not seen before; raises RefusedError."""
        version = header.api_version
        if api.supports(version):
            decoder_of = api.decoder or request_class(api.key).decoder
            decode: Decode = decoder_of(version)
            self._decoders[api.key << 16 | version] = decode
            return decode
        if api.key != API_VERSIONS_KEY:
            raise RefusedError(f"{api.name} v{version} is not served here")
        # The body is of an unknown version too; the API looks at the header and answers UNSUPPORTED_VERSION.
        return None

    def _check_size(self, api: Api, request: Request, size: int) -> None:
        """Refuse, before decoding, a request too large for its kind or a large one that the API does not admit."""
        assert request.buffer is not None
        size_max = request_bytes_max(api.key, self._request_bytes_max, request.context.is_for_clients)
        if size > size_max:
            raise RefusedError(
                f"a {api.name} request of {size} bytes is larger than {size_max}; see barnabas.request.max.bytes"
            )
        if api.admits is not None and not api.admits(self._services, request.buffer):
            raise RefusedError(f"a {api.name} request of {size} bytes is not for this process")

    def _dispatch(self, api: Api, request: Request) -> Answer:
        """Let the API answer (rule 1), if the client may send this request (rules 6 and 7)."""
        try:
            if self._authorizer is not None and (refusal := self._authorizer.admit(api, request)) is not None:
                return refusal
            nodes_only = api.nodes_only
            if (
                nodes_only is not None
                and request.context.is_for_clients
                and nodes_only(request)
                and is_node_by_listener(request)
            ):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return api.handle(self._services, request)
        except ApiError as error:
            return self._error_answer(request, error)
        except Exception as bug:
            return self._bug_answer(request, bug)

    def _error_answer(self, request: Request, error: ApiError) -> Reply | Close:
        api, header = request.api, request.header
        assert api is not None
        make = api.error_response or error_response
        try:
            return Reply(make(request.message, header.api_version, error.code, error.message))
        except Exception:
            if self._lines.admits(logging.ERROR, f"{api.name} has no error response"):
                log.exception("%s v%d has no error response", api.name, header.api_version)
            return Close(f"no way to answer {error.code.name}")

    def _bug_answer(self, request: Request, error: Exception) -> Reply | Close:
        """Log a bug and return its answer (rule 3)."""
        header = request.header
        name = _api_name(request)
        if self._lines.admits(logging.ERROR, f"{name} requests failed with an unexpected {type(error).__name__}"):
            log.error(
                "%s v%d, correlation id %d from client=%s, connection %s, failed with an unexpected error",
                name,
                header.api_version,
                header.correlation_id,
                header.client_id,
                request.context.connection_id,
                exc_info=error,
            )
        return self._error_answer(request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _park(self, request: Request, park: Park) -> None:
        """Leave the request to its operation (rule 5), which may complete before this returns."""
        connection = request.connection
        if connection is not None and connection.pooled_bytes:
            # Why now: the request may wait for others that wait for memory. And if others can answer it, the
            # connection is about to read its next request.
            connection.release_memory()
        request.operation = park.operation
        park.operation.bind(functools.partial(self._answer_parked, request, park), request)
        if park.purgatory is not None:
            park.purgatory.try_complete_else_watch(park.operation, park.keys)

    def _answer_parked(self, request: Request, park: Park, _operation: DelayedOperation) -> None:
        """Answer or continue a request whose operation is complete, on the thread that completed it."""
        answer: Answer
        try:
            answer = park.answer()
        except ApiError as error:
            answer = self._error_answer(request, error)
        except Exception as bug:
            answer = self._bug_answer(request, bug)
        moved = request.moved
        if moved:
            request.moved = []
        if isinstance(answer, Park):
            self._park(request, answer)
        else:
            self._reply(request, answer, self._to_wake.get(get_ident()))
        if moved:
            self._complete_moved(moved)

    def _reply(
        self,
        request: Request,
        answer: Ending,
        to_wake: list[Responses] | None,
        goes_on: bool = False,
    ) -> None:
        """Queue the answer for the request's processor (rules 1 and 2).

        `to_wake` is the list of the calling handler; None on any other thread, which wakes the processor itself.
        `goes_on` lets the handler continue with the connection's next request if this answer allows it.
        """
        throttle = request.throttle
        if throttle is None and self._quotas is not None and self._quotas.request is not None:
            throttle = request.throttle = self._quotas.charge(request)
        if throttle is not None and throttle.ms:
            answer = _throttled(answer, throttle.ms)
        if isinstance(answer, Reply):
            try:
                self._encode(request, answer)
            except Exception as error:
                self._encode_error(request, error)
            request.api_throttle_ms = answer.throttle_time_ms
        elif isinstance(answer, NoReply):
            request.action = Action.NO_OP
            request.api_throttle_ms = answer.throttle_time_ms
        else:
            request.action = Action.CLOSE
            self._report_closing(request, answer)
        # Why dropped: parked requests are many, and these values are large.
        request.message = None
        request.buffer = None
        request.operation = None
        request.api_remote_done_ns = self._now_ns()
        if goes_on:  # Why before it is queued: the processor reads it.
            request.goes_on = (
                request.api_throttle_ms <= 0
                and request.action not in CLOSING
                and request.response_size_bytes <= GOES_ON_BYTES_MAX
            )
        processor = request.processor
        assert processor is not None, _NO_FRAME
        responses = processor.responses
        if not responses.add(request):
            return
        if to_wake is None:  # completed by the reaper, a fetcher, an event thread
            responses.wake()
        else:
            to_wake.append(responses)

    def _report_closing(self, request: Request, answer: Close) -> None:
        """Count the errors of a request that is not answered, and log why its connection is closed."""
        if answer.error_codes is not None:
            self._request_log.count_errors(request, answer.error_codes)
        name = _api_name(request)
        if self._lines.admits(answer.level, f"connections closed instead of answering {name}"):
            log.log(
                answer.level,
                "closing connection %s instead of answering %s: %s",
                request.context.connection_id,
                name,
                answer.reason or "no answer may be sent",
            )

    def _encode(self, request: Request, reply: Reply) -> None:
        parts = headers.response_parts(request.header, reply.message, reply.encoded)
        request.parts = parts
        request.response_size_bytes = headers.frame_size(parts)
        request.action = _SEND_AND_CLOSE if reply.close_after else _SEND
        self._request_log.replied(request, reply.message)

    def _encode_error(self, request: Request, error: Exception) -> None:
        """Encode an error response in place of an answer that could not be encoded."""
        substitute = self._bug_answer(request, error)
        request.action = Action.CLOSE
        request.parts = None
        if isinstance(substitute, Reply):
            try:
                self._encode(request, substitute)
            except Exception:
                if self._lines.admits(logging.ERROR, f"error responses of {_api_name(request)} cannot be encoded"):
                    log.exception("the error response cannot be encoded either; closing the connection")

    def _refuse(self, request: Request, reason: str) -> None:
        if self._lines.admits(logging.WARNING, "connections closed, since a request cannot be understood"):
            log.warning("closing connection %s: %s", request.context.connection_id, reason)
        request.action = Action.CLOSE
        request.buffer = None
        request.api_local_done_ns = request.api_remote_done_ns = self._now_ns()
        assert request.processor is not None, _NO_FRAME
        request.processor.responses.put(request)

    def _complete_moved(self, keys: list[Hashable]) -> None:
        """Try the operations that wait for what the API changed; no lock is held here."""
        try:
            self._complete_all_delayed(keys)
        except Exception:
            log.exception("completing what waits for %s failed", keys)
