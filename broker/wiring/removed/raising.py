"""Carries out a request of a removed version as one of the lowest version that the API has today.

Rules
1. The request gets today's message, and a header with that version, before the API sees it. The answer's message gets
   the class of the removed versions, and the request its own header back, before the dispatcher sees the answer.
2. A request that the API forwards also gets a frame of that version.
3. However the API ends, by an error or after a wait, the request has its own header again.

Threads: as the API: its handler, and the thread that completes a parked operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.requests.parking import Answer, Continuation, Park
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages import request_class
from barnabas.protocol.removed import removed_response

if TYPE_CHECKING:
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

#: What becomes of the end of a raised request.
Lower = Callable[[Ending], Ending]


def copied(message: Any, into: type[Any]) -> Any:
    """Return a message of another class with the same values; fields that the other class lacks are left out."""
    values = {field.name: getattr(message, field.name) for field in into.FIELDS if hasattr(message, field.name)}
    return into(**values)


def to_current(message: Message) -> Message:
    """Return today's request with the values of one of a removed version."""
    current: Message = copied(message, request_class(message.API_KEY))
    return current


def to_removed(message: Message) -> Message:
    """Return the response in the class of the removed versions."""
    removed: Message = copied(message, removed_response(message.API_KEY))
    return removed


def lowering(change: Callable[[Message], Message]) -> Lower:
    """Return what changes the message of a reply, and no other end."""

    def lower(given: Ending) -> Ending:
        if not isinstance(given, Reply):
            return given
        return Reply(change(given.message), given.throttle_time_ms, given.close_after)

    return lower


def carry_out(
    api: Api, services: Any, request: Request, message: Message, lower: Lower, *, needs_frame: bool = True
) -> Answer:
    """Have the API carry out `message` instead of the request's own; `lower` changes the end of it."""
    raised = _Raised(request, lower)
    with raised:
        raised.put(message, api.versions[0], needs_frame=needs_frame)
        return raised.answer(api.handle(services, request))


class _Raised:
    """A request with another header. As a context it puts the request's own header back if an error leaves it."""

    __slots__ = ("_header", "_lower", "_request")

    def __init__(self, request: Request, lower: Lower) -> None:
        self._request = request
        self._header = request.header
        self._lower = lower

    def put(self, message: Message, version: int, *, needs_frame: bool) -> None:
        """Give the request a message and a version, and the frame of both."""
        request, own = self._request, self._header
        request.header = RequestHeader(own.api_key, version, own.correlation_id, own.client_id)
        request.message = message
        if needs_frame:
            request.buffer = memoryview(encode_request_header(request.header) + message.encode(version))

    def answer(self, given: Answer) -> Answer:
        """Return the answer for a client of the removed version: now if it is known, else when it is."""
        if isinstance(given, Park):
            return Continuation(given.operation, lambda: self._resumed(given), given.purgatory, given.keys)
        self._request.header = self._header
        return self._lower(given)

    def _resumed(self, park: Park) -> Answer:
        with self:
            return self.answer(park.answer())

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._request.header = self._header
