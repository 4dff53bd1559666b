"""Forwarding: admin requests go to the controller in an Envelope, on behalf of the client (KIP-590).

The client's frame is sent unchanged. The controller's answer comes back as a whole response, which is decoded and sent
to the client. A request that changes topics or security metadata waits in the `topic` purgatory until this broker's own
metadata shows the change, or its time is up. So a client that asks the same broker next finds the change.

Threads: handlers forward; the channel's thread brings the controller's answer.
Source: ForwardingManager, EnvelopeUtils, DefaultKafkaPrincipalBuilder.serialize (Kafka 4.3).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Park
from barnabas.common.ids import random_uuid
from barnabas.common.logs import LogLimit
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.data.principal import DefaultPrincipalData
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.push_tags import offset_of, set_token_id

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.common.pages.live_shape import Reason
    from barnabas.config import Config
    from barnabas.protocol.headers import RequestHeader
    from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.forwarding")

#: Whether this broker's metadata cache shows what a response (of the forwarded API) reports.
IsVisible = Callable[[Any], bool]
#: Whether this broker's metadata is complete up to an offset of the metadata log.
HasMetadata = Callable[[int], bool]
#: A watch key of forwarded requests: this broker's metadata has become newer. No topic has this name.
METADATA: Final = ""

_PRINCIPAL_VERSION = 0
_PRINCIPAL_VERSION_PREFIX = b"\x00\x00"  # DefaultPrincipalData is preceded by its version, an int16


class DelayedForward(DelayedOperation):
    """A forwarded request: waits for the controller's answer, then until its effect is visible here."""

    __slots__ = ("_answer", "_has_metadata", "_is_visible", "_offset", "_on_timeout")

    def __init__(
        self, delay_ms: int, is_visible: IsVisible, has_metadata: HasMetadata, on_timeout: Callable[[], Message]
    ) -> None:
        super().__init__(delay_ms)
        # All of them are dropped by `response`: they hold the request's message, and completed operations linger in
        # their purgatory.
        self._is_visible: IsVisible | None = is_visible
        self._has_metadata: HasMetadata | None = has_metadata
        self._on_timeout: Callable[[], Message] | None = on_timeout
        self._offset = -1  # set once by the channel's thread, before the answer: where its effect ends in the log
        self._answer: Message | None = None  # set once by the channel's thread

    def answered(self, answer: Message, offset: int) -> None:
        """Take the controller's answer, and the metadata offset up to which its effect is in the log."""
        self._offset = offset
        self._answer = answer
        self.safe_try_complete()

    def try_complete(self) -> bool:
        """Complete when the answer has come and this broker's metadata shows it."""
        answer, has_metadata, is_visible = self._answer, self._has_metadata, self._is_visible
        if answer is None or has_metadata is None or is_visible is None:
            return False
        if not has_metadata(self._offset) or not is_visible(answer):
            return False
        return self.force_complete()

    def waits_for(self) -> list[Reason]:
        """Return what is awaited first: the answer, then the metadata."""
        if self._answer is None:
            return [{"kind": "controller", "text": "for the controller's answer"}]
        return [{"kind": "metadata", "text": "until this broker has heard of what the controller decided"}]

    def response(self) -> Reply:
        """Return the controller's answer, even if its effect is not visible yet; without one, REQUEST_TIMED_OUT.

        The client waits here if the controller's quota says so.
        """
        answer: Any = self._answer
        if answer is None:
            assert self._on_timeout is not None, "called once"
            answer = self._on_timeout()
        self._answer = self._is_visible = self._has_metadata = self._on_timeout = None
        return Reply(answer, getattr(answer, "throttle_time_ms", 0))


class ForwardingManager:
    """Forwards requests over one channel to the controller. Everything is fixed before start."""

    def __init__(self, config: Config, channel: ControllerChannel, purgatory: Purgatory, clock: Clock) -> None:
        self._config = config
        self._lines = LogLimit(log, clock.monotonic_ns)
        self._channel = channel
        self._purgatory = purgatory  # watch keys: names of topics

    def forward(
        self,
        request: Request,
        *,
        topics: Sequence[str] = (),
        is_visible: IsVisible = lambda _answer: True,
        timeout_ms: int = 0,
        has_metadata: HasMetadata | None = None,
    ) -> Park:
        """Forward the request's frame unchanged.

        With a positive `timeout_ms` the answer waits at most that long until `is_visible(answer)`, which is tried
        again whenever one of `topics` changes. With `has_metadata` it waits until this broker's metadata is as new as
        the effect of the request.
        """
        request_timeout_ms = self._config.request_timeout_ms
        waits = is_visible if timeout_ms > 0 else (lambda _answer: True)
        operation = DelayedForward(
            max(timeout_ms, request_timeout_ms),
            waits,
            has_metadata or (lambda _offset: True),
            lambda: _failure(header, message, ErrorCode.REQUEST_TIMED_OUT),
        )
        # Why kept: the request drops its message when it is answered, perhaps by the timeout. And one of a removed
        # version gets its own header back then (wiring/removed/raising.py).
        header, message = request.header, request.message
        assert request.buffer is not None, "a request keeps its frame until it is answered"
        envelope = make_envelope(bytes(request.buffer), request)

        def on_done(response: EnvelopeResponse | None) -> None:
            operation.answered(_unwrap(header, message, response, self._lines), _effect(response))

        self._channel.send(envelope, on_done, timeout_ms=request_timeout_ms)
        keys = [METADATA] if has_metadata is not None else list(topics)
        return Park(operation, self._purgatory, keys)


def make_envelope(frame: bytes, request: Request) -> EnvelopeRequest:
    """Wrap a frame (header and body, no size) on behalf of the client that `request` came from."""
    envelope = EnvelopeRequest(
        request_data=frame,
        request_principal=encode_principal(request.principal, is_token=request.context.is_token_authenticated),
        client_host_address=_address(request.client_address),
    )
    if request.header.api_key == ApiKey.CREATE_DELEGATION_TOKEN:
        set_token_id(envelope, random_uuid())
    return envelope


def encode_principal(principal: str, *, is_token: bool = False) -> bytes:
    """Encode a principal (`type:name`) as an Envelope carries it: DefaultPrincipalData after its version."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=is_token)
    return _PRINCIPAL_VERSION_PREFIX + data.encode(_PRINCIPAL_VERSION)


def _address(text: str) -> bytes:
    """Return the bytes of an IP address: 4 or 16."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_pton(family, text.partition("%")[0])
    except OSError:
        return bytes(4)


def _effect(response: EnvelopeResponse | None) -> int:
    """Return the metadata offset at which the effect of a forwarded request ends; -1 if it is unknown."""
    try:
        offset = None if response is None else offset_of(response)
    except MalformedMessageError as error:
        log.error("cannot read the controller's answer to a forwarded request: %s", error)
        return -1
    return -1 if offset is None else offset


def _unwrap(header: RequestHeader, message: Message, response: EnvelopeResponse | None, lines: LogLimit) -> Message:
    """Return the response inside an Envelope's; an error response if there is none."""
    if response is None:
        return _failure(header, message, ErrorCode.REQUEST_TIMED_OUT)
    if response.error_code or response.response_data is None:
        name = ErrorCode.of(response.error_code).name
        if lines.admits(logging.WARNING, f"forwarded requests refused with {name}"):
            log.warning("the controller refused a forwarded request: %s", name)
        return _failure(header, message, ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        frame = memoryview(response.response_data)
        correlation_id, offset = decode_response_header(frame, header.api_key, header.api_version)
        if correlation_id != header.correlation_id:
            raise MalformedMessageError(f"its correlation id is {correlation_id}")
        return response_class(header.api_key).decode(frame, header.api_version, offset)
    except MalformedMessageError as error:
        log.error("cannot decode the controller's answer to a forwarded request: %s", error)
        return _failure(header, message, ErrorCode.UNKNOWN_SERVER_ERROR)


def _failure(header: RequestHeader, message: Message, code: ErrorCode) -> Message:
    return error_response(message, header.api_version, code, None)
