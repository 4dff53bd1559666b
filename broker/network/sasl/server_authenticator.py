"""SaslServerAuthenticator: the SASL exchange of one connection, as a state machine over frames.

States and their transitions
    INITIAL ------------ ApiVersions ------> HANDSHAKE            (a too new or invalid one is answered; no change)
    INITIAL ------------ SaslHandshake ----> AUTHENTICATE
    INITIAL ------------ anything else ----> AUTHENTICATE with GSSAPI, if that is enabled (clients of Kafka 0.9)
    VERSIONS ----------- as INITIAL, without the last; INITIAL becomes VERSIONS with the first Kafka request
    HANDSHAKE ---------- SaslHandshake ----> AUTHENTICATE
    AUTHENTICATE ------- SaslAuthenticate, or a bare token after SaslHandshake v0 -> AUTHENTICATE, COMPLETE
    BAD_MECHANISM ------ anything ---------> FAILED
    any ---------------- any other frame --> FAILED

Rules
1. Of the frames that come before the end, only ApiVersions, SaslHandshake and SaslAuthenticate are ever decoded.
2. At most `MESSAGES_MAX` frames are taken, each of at most `sasl.server.max.receive.size`.
3. A client that authenticates again has a new authenticator, made by `again`. Its principal and its mechanism must not
   change. It may do so if its session has an end, and once a second at most (KIP-368).
4. A failure may have a response, which is sent when the connection is closed: later, so that guessing is slow.

Threads: the processor that owns the connection.
Source: SaslServerAuthenticator, KafkaChannel (Kafka 4.3). Different: there, some malformed frames close the connection
at once and are not counted as failed authentications, and a request of another API after the handshake is decoded and
answered (tests/compare/test_sasl_answers.py compares the rest). A first token without a handshake is refused since
Kafka 4.0 (tests/clients/test_gssapi.py).
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.requests.request import Request, RequestContext
from barnabas.common.clock import NS_PER_MS, NS_PER_S
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.headers import RequestHeader, decode_request_header, response_parts
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.security.sasl.mechanism import (
    GSSAPI,
    AuthenticationError,
    Identity,
    RefusalError,
    SaslError,
    ServerMechanism,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.requests.answers import Reply
    from barnabas.common.clock import Clock
    from barnabas.protocol.schema import Message
    from barnabas.security.sasl.server_settings import ServerSettings

MESSAGES_MAX: Final = 32
AGAIN_INTERVAL_NS: Final = NS_PER_S
HANDSHAKE_VERSIONS: Final = (0, 1)
AUTHENTICATE_VERSIONS: Final = (0, 2)
API_VERSIONS_MAX: Final = ApiVersionsRequest.MAX_VERSION
_SIZE: Final = struct.Struct(">i")
_HANDSHAKE_PREFIX: Final = bytes([0, ApiKey.SASL_HANDSHAKE])


class ListenerSasl:
    """What the logins of one listener have in common."""

    __slots__ = ("answer_api_versions", "clock", "settings")

    def __init__(self, settings: ServerSettings, clock: Clock, answer_api_versions: Callable[[Request], Reply]) -> None:
        self.settings = settings  # replaced whole at run time (listeners.py); a login keeps that of its beginning
        self.clock = clock  # fixed before start
        # Fixed before start. May change the request's header; sets its client software.
        self.answer_api_versions = answer_api_versions


class State(Enum):
    """See the module."""

    INITIAL = 0
    VERSIONS = 1
    HANDSHAKE = 2
    AUTHENTICATE = 3
    BAD_MECHANISM = 4
    COMPLETE = 5
    FAILED = 6


class Session(NamedTuple):
    """A login that succeeded."""

    mechanism: str
    identity: Identity
    expires_ns: int | None  # of the monotonic clock; None: it does not end
    can_authenticate_again: bool  # whether the client is told how long its session lasts


class _Previous(NamedTuple):
    """The login before this one."""

    session: Session
    began_ns: int  # when this one began


class _Failure(NamedTuple):
    """How an exchange failed. Why not the exception: its traceback refers back to the authenticator and the frame."""

    reason: str
    response: bytes | None = None


class _FailedError(Exception):
    """Ends the exchange; `response` is sent before the connection is closed. The log shows the reason and `detail`."""

    def __init__(self, reason: str, response: bytes | None = None, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.response = response


class SaslServerAuthenticator:
    """See the module. `context` names the connection."""

    __slots__ = (
        "_bare_tokens",
        "_context",
        "_failure",
        "_listener",
        "_mechanism",
        "_mechanism_name",
        "_messages",
        "_previous",
        "_refusal",
        "_settings",
        "_state",
        "client_software",
        "finished_ns",
        "is_counted",
        "session",
    )

    def __init__(self, listener: ListenerSasl, context: RequestContext, previous: _Previous | None = None) -> None:
        self._listener = listener  # fixed before start
        self._settings = listener.settings  # fixed before start
        self._context = context  # fixed before start
        self._previous = previous  # fixed before start
        # owner: processor
        self._state = State.INITIAL if previous is None else State.VERSIONS
        self._messages = 0
        self._bare_tokens = False  # SaslHandshake v0: no headers around tokens
        self._mechanism: ServerMechanism | None = None
        self._mechanism_name = ""
        self._failure: _Failure | None = None
        self._refusal = ""  # why the client was refused by a challenge; "": it was not
        self.is_counted = False  # whether the failure is counted and logged; owner: Logins
        self.session: Session | None = None
        self.finished_ns = 0  # of the monotonic clock
        self.client_software: tuple[str, str] | None = None  # from ApiVersions

    # What the processor asks

    @property
    def is_complete(self) -> bool:
        """Whether the client has logged in."""
        return self._state is State.COMPLETE

    @property
    def is_failed(self) -> bool:
        """Whether the connection must be closed."""
        return self._state is State.FAILED

    @property
    def is_refused(self) -> bool:
        """Whether the client was refused by a challenge. It may close the connection now, so the failure counts."""
        return bool(self._refusal)

    @property
    def is_again(self) -> bool:
        """Whether the client had logged in before."""
        return self._previous is not None

    @property
    def failure_reason(self) -> str:
        """Why it failed, for the log: of a client that was refused, why that was."""
        return self._refusal or ("" if self._failure is None else self._failure.reason)

    @property
    def mechanism(self) -> str:
        """The mechanism that the client chose; "" before it chose one that is offered."""
        return self._mechanism_name if self._mechanism is not None else ""

    @property
    def failure_response(self) -> bytes | None:
        """The frame to send before the connection is closed."""
        return None if self._failure is None else self._failure.response

    @property
    def state(self) -> State:
        """The state, for tests and the live page."""
        return self._state

    def latency_ms(self) -> int:
        """Return how long it took to authenticate again; at least 1 unless nothing was measured."""
        if self._previous is None:
            return 0
        latency_ns = self.finished_ns - self._previous.began_ns
        return 0 if latency_ns == 0 else max(1, round(latency_ns / NS_PER_MS))

    def is_expired(self, now_ns: int) -> bool:
        """Whether the session has ended."""
        session = self.session
        return session is not None and session.expires_ns is not None and now_ns > session.expires_ns

    def may_begin_again(self, frame: memoryview, now_ns: int) -> bool:
        """Whether a frame of a client that has logged in begins to authenticate again (rule 3)."""
        if frame[:2] != _HANDSHAKE_PREFIX or self.session is None or self.session.expires_ns is None:
            return False
        return self._previous is None or now_ns - self._previous.began_ns >= AGAIN_INTERVAL_NS

    def again(self, now_ns: int) -> SaslServerAuthenticator:
        """Return the authenticator for a client that authenticates again."""
        assert self.session is not None
        return SaslServerAuthenticator(self._listener, self._context, _Previous(self.session, now_ns))

    def fail(self, reason: str) -> None:
        """End the exchange for a reason outside of it."""
        self._failure = _Failure(reason)
        self._state = State.FAILED

    # The exchange

    def receive(self, frame: memoryview) -> bytes | None:
        """Take a frame; return what to send now, if anything. `is_failed` and `is_complete` say how it goes on."""
        self._messages += 1
        try:
            if self._messages > MESSAGES_MAX:
                raise _FailedError(f"more than {MESSAGES_MAX} messages without a login")
            if self._state is State.AUTHENTICATE:
                return self._take_bare_token(frame) if self._bare_tokens else self._take_token(frame)
            if self._state is State.BAD_MECHANISM:
                assert self._previous is not None
                raise _FailedError(
                    f"SASL mechanism '{self._mechanism_name}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._previous.session.mechanism}'"
                )
            return self._take_request(frame)
        except _FailedError as failure:
            self._failure = _Failure(str(failure), failure.response)
            self._state = State.FAILED
            return None

    def _take_request(self, frame: memoryview) -> bytes | None:
        """Take what comes before tokens: ApiVersions, SaslHandshake, or a first token of GSSAPI."""
        try:
            header, offset = decode_request_header(frame)
        except MalformedMessageError as error:
            if self._state is not State.INITIAL:
                raise _FailedError(str(error)) from None
            return self._take_first_token(frame)
        if self._state is State.INITIAL:
            self._state = State.VERSIONS
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._take_handshake(header, frame, offset)
        if header.api_key != ApiKey.API_VERSIONS:
            raise _FailedError(f"Unexpected Kafka request of type {_name(header)} during SASL handshake.")
        if self._state is not State.VERSIONS or self._previous is not None:
            raise _FailedError(f"Unexpected ApiVersions request received during SASL {self._text()}")
        return self._take_api_versions(header, frame, offset)

    def _take_first_token(self, frame: memoryview) -> bytes | None:
        if GSSAPI not in self._settings.mechanisms:
            raise _FailedError("Exception handling first SASL packet from client, GSSAPI is not supported by server")
        self._begin(GSSAPI)
        self._bare_tokens = True
        return self._take_bare_token(frame)

    def _take_api_versions(self, header: RequestHeader, frame: memoryview, offset: int) -> bytes:
        message = None
        if 0 <= header.api_version <= API_VERSIONS_MAX:
            message = _decoded(header, frame, offset)
        request = Request.for_message(header, message, self._context)  # type: ignore[arg-type]
        reply = self._listener.answer_api_versions(request)
        if reply.message.error_code == ErrorCode.NONE:  # type: ignore[attr-defined]
            self._state = State.HANDSHAKE
            if request.client_software_name:
                self.client_software = request.client_software_name, request.client_software_version
        return _encoded(request.header, reply.message)

    def _take_handshake(self, header: RequestHeader, frame: memoryview, offset: int) -> bytes:
        _check_version(header, HANDSHAKE_VERSIONS)
        message = _decoded(header, frame, offset)
        assert isinstance(message, SaslHandshakeRequest)
        enabled = self._settings.mechanisms
        self._mechanism_name = message.mechanism
        if message.mechanism not in enabled:
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(enabled))
            sent = _encoded(header, response) if self._previous is None else None  # as Kafka
            raise _FailedError(f"Unsupported SASL mechanism {_shown(message.mechanism)}", sent)
        if self._previous is not None and self._previous.session.mechanism != message.mechanism:
            self._state = State.BAD_MECHANISM
        else:
            self._begin(message.mechanism)
        self._bare_tokens = header.api_version == 0
        return _encoded(header, SaslHandshakeResponse(mechanisms=list(enabled)))

    def _begin(self, mechanism: str) -> None:
        self._mechanism_name = mechanism
        self._mechanism = self._settings.mechanisms[mechanism]()
        self._state = State.AUTHENTICATE

    def _take_bare_token(self, frame: memoryview) -> bytes | None:
        try:
            answer = self._evaluate(bytes(frame))
        except SaslError as error:
            raise _FailedError(self._public_text(error), detail=_detail(error)) from error
        self._conclude(can_authenticate_again=False)
        return None if answer is None else _SIZE.pack(len(answer)) + answer

    def _take_token(self, frame: memoryview) -> bytes:
        try:
            header, offset = decode_request_header(frame)
        except MalformedMessageError as error:
            raise _FailedError(str(error)) from None
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {_name(header)} during SASL authentication."
            raise _FailedError(reason, _illegal_state(header, frame, offset, reason))
        _check_version(header, AUTHENTICATE_VERSIONS)
        message = _decoded(header, frame, offset)
        assert isinstance(message, SaslAuthenticateRequest)
        try:
            answer = self._evaluate(message.auth_bytes)
        except TransientError as transient:
            raise _FailedError(str(transient)) from transient
        except SaslError as error:
            text = self._public_text(error)
            response = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
            raise _FailedError(text, _encoded(header, response), _detail(error)) from error
        lifetime_ms = self._conclude(can_authenticate_again=header.api_version > 0)
        response = SaslAuthenticateResponse(auth_bytes=answer or b"", session_lifetime_ms=lifetime_ms)
        return _encoded(header, response)

    def _evaluate(self, token: bytes) -> bytes | None:
        """Let the mechanism take a token; the principal of a client that logs in again must be the same."""
        mechanism = self._mechanism
        assert mechanism is not None
        try:
            answer = mechanism.evaluate(token)
        except RefusalError as refusal:
            self._refusal, self.is_counted = str(refusal), False
            return refusal.challenge
        if mechanism.identity is not None and self._previous is not None:
            before, now = self._previous.session.identity.principal, mechanism.identity.principal
            if before != now:
                raise AuthenticationError(
                    "Cannot change principals during re-authentication from "
                    f"{before.replace(':', '.', 1)}: {now.replace(':', '.', 1)}"
                )
        return answer

    def _public_text(self, error: SaslError) -> str:
        if isinstance(error, (AuthenticationError, TransientError)):
            return str(error)
        return (
            f"Authentication failed during {self._text()} due to invalid credentials with SASL mechanism "
            f"{self._mechanism_name}"
        )

    def _conclude(self, *, can_authenticate_again: bool) -> int:
        """Note the end of a login that is complete; return the milliseconds that its session lasts, 0: no limit."""
        mechanism = self._mechanism
        assert mechanism is not None
        identity = mechanism.identity
        if identity is None:
            return 0
        clock = self._listener.clock
        limits = []
        max_reauth_ms = self._settings.max_reauth_ms.get(self._mechanism_name, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if identity.expires_ms is not None:
            limits.append(max(0, identity.expires_ms - clock.wall_ms()))
        self.finished_ns = clock.monotonic_ns()
        lifetime_ms = min(limits, default=0)
        expires_ns = self.finished_ns + lifetime_ms * NS_PER_MS if limits else None
        self.session = Session(self._mechanism_name, identity, expires_ns, can_authenticate_again)
        self._state = State.COMPLETE
        return lifetime_ms

    def _text(self) -> str:
        return "authentication" if self._previous is None else "re-authentication"


def _detail(error: SaslError) -> str:
    """Return what only the log shows of a failure."""
    return "" if isinstance(error, (AuthenticationError, TransientError)) else str(error)


def _decoded(header: RequestHeader, frame: memoryview, offset: int) -> Message:
    """Decode one of the three requests (rule 1)."""
    assert header.api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
    try:
        return request_class(header.api_key).decode(frame, header.api_version, offset)
    except MalformedMessageError as error:
        raise _FailedError(f"malformed {_name(header)} request: {error}") from None


def _check_version(header: RequestHeader, versions: tuple[int, int]) -> None:
    if not versions[0] <= header.api_version <= versions[1]:
        raise _FailedError(f"Version {header.api_version} is not supported for apiKey {_name(header)}")


def _illegal_state(header: RequestHeader, frame: memoryview, offset: int, reason: str) -> bytes | None:
    """Return the response to ApiVersions and SaslHandshake in a wrong place; other requests get none (rule 1)."""
    is_known = header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version in HANDSHAKE_VERSIONS
    is_known = is_known or (header.api_key == ApiKey.API_VERSIONS and 0 <= header.api_version <= API_VERSIONS_MAX)
    if not is_known:
        return None
    message = _decoded(header, frame, offset)
    return _encoded(header, error_response(message, header.api_version, ErrorCode.ILLEGAL_SASL_STATE, reason))


def _encoded(header: RequestHeader, message: Message) -> bytes:
    return b"".join(response_parts(header, message))  # type: ignore[arg-type]


def _name(header: RequestHeader) -> str:
    return ApiKey(header.api_key).name


def _shown(text: str) -> str:
    """Return a text of the client's that fits into a log line."""
    return text[:100] if text[:100].isprintable() else ascii(text[:100])
