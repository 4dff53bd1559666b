"""Forwarding: admin requests go to the controller in an Envelope, on behalf of the client (KIP-590).

The client's frame travels unchanged; the controller's answer comes back as a whole response, which is decoded and sent
on. A request that changes topics is answered only when this broker's own metadata cache shows the change (or its time
is
up), so that a client which asks the same broker next finds what it was told: it waits in the `topic` purgatory.

Source: ForwardingManager, EnvelopeUtils, DefaultKafkaPrincipalBuilder.serialize (Kafka 4.3).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.answers import Answer, Park
from barnabas.broker.purgatory import DelayedOperation
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.purgatory import Outcome
    from barnabas.broker.request_channel import Request
    from barnabas.common.live_shape import Reason

log = logging.getLogger("barnabas.forwarding")

IsVisible = Callable[[Any], bool]

SIZE_PREFIX = 4


class DelayedForward(DelayedOperation):
    """A forwarded request: waits for the controller's answer, then until `is_visible(answer)`."""

    __slots__ = ("_answer", "_is_visible", "_on_timeout")

    def __init__(self, delay_ms: int, is_visible: IsVisible, on_timeout: Callable[[], Any]) -> None:
        super().__init__(delay_ms)
        self._answer: Any = None  # set once by the channel's thread
        self._is_visible = is_visible  # fixed before start
        self._on_timeout = on_timeout  # fixed before start

    def answered(self, answer: Any) -> None:
        """The controller has answered."""
        self._answer = answer
        self.safe_try_complete()

    def try_complete(self) -> bool:
        """Complete when the answer is there and this broker sees what it says."""
        answer = self._answer
        return answer is not None and self._is_visible(answer) and self.force_complete()

    def waits_for(self) -> list[Reason]:
        """Tell who is to answer, or to hear, first."""
        if self._answer is None:
            return [{"kind": "controller", "text": "for the controller's answer"}]
        return [{"kind": "metadata", "text": "until this broker has heard of what the controller decided"}]

    def response(self) -> Outcome:
        """The controller's answer, even if this broker does not see its effect yet; REQUEST_TIMED_OUT without one."""
        outcome: Outcome = self._on_timeout() if self._answer is None else self._answer
        return outcome


def forward(
    services: Services,
    request: Request,
    *,
    topics: Sequence[str] = (),
    is_visible: IsVisible = lambda _answer: True,
    timeout_ms: int = 0,
    amend: Callable[[Any], Any] = lambda answer: answer,
) -> Answer:
    """Forward the request as it came; `topics` are the names whose change is awaited, for at most `timeout_ms`.

    `amend` makes of the controller's answer what the client is told.
    """
    request_timeout_ms = services.config.request_timeout_ms
    waits = is_visible if timeout_ms > 0 else (lambda _answer: True)
    operation = DelayedForward(
        max(timeout_ms, request_timeout_ms), waits, lambda: amend(_failure(request, ErrorCode.REQUEST_TIMED_OUT))
    )
    assert request.buffer is not None, "a request keeps its frame until it is answered"
    envelope = make_envelope(bytes(request.buffer), request)

    def on_done(response: Any) -> None:
        operation.answered(amend(_unwrap(request, response)))

    services.controller_channel.send(envelope, on_done, timeout_ms=request_timeout_ms)
    return Park(operation, services.purgatories.topic, list(topics) or [operation])


def make_envelope(frame: bytes, request: Request) -> EnvelopeRequest:
    """Wrap a frame (header and body, no size) on behalf of the client that `request` came from."""
    return EnvelopeRequest(
        request_data=frame,
        request_principal=encode_principal(request.principal),
        client_host_address=_address(request.client_address),
    )


def encode_principal(principal: str) -> bytes:
    """DefaultPrincipalData v0: int16 version, compact type and name, token flag, no tags."""
    kind, _, name = principal.partition(":")
    parts = [_compact(text) for text in (kind, name)]
    return b"\x00\x00" + b"".join(parts) + b"\x00\x00"


def _compact(text: str) -> bytes:
    raw = text.encode()
    length = len(raw) + 1
    prefix = bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + raw


def _address(text: str) -> bytes:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_pton(family, text.partition("%")[0])
    except OSError:
        return bytes(4)


def _unwrap(request: Request, response: Any) -> Any:
    """The response inside an Envelope's; an error response where there is none."""
    if response is None:
        return _failure(request, ErrorCode.REQUEST_TIMED_OUT)
    if response.error_code or response.response_data is None:
        log.warning("the controller refused a forwarded request: %s", ErrorCode(response.error_code).name)
        return _failure(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    header = request.header
    try:
        frame = memoryview(response.response_data)
        correlation_id, offset = decode_response_header(frame, header.api_key, header.api_version)
        if correlation_id != header.correlation_id:
            raise MalformedMessageError(f"the answer has correlation id {correlation_id}")
        return response_class(header.api_key).decode(frame, header.api_version, offset)
    except MalformedMessageError as error:
        log.error("the controller's answer to a forwarded request cannot be read: %s", error)
        return _failure(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _failure(request: Request, code: ErrorCode) -> Any:
    return error_response(request.message, request.version, code, None)
