"""The SASL exchange of a connection: every order of messages, re-authentication, and garbage."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from barnabas.broker.apis.k18_api_versions import answer
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.network.sasl.server_authenticator import (
    MESSAGES_MAX,
    ListenerSasl,
    SaslServerAuthenticator,
    State,
)
from barnabas.broker.requests.request import RequestContext
from barnabas.common.clock import NS_PER_S, FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.schema import Message
from barnabas.security.sasl.mechanism import Identity, InvalidCredentialsError, TransientError
from barnabas.security.sasl.plain import PlainServer, passwords_of
from barnabas.security.sasl.scram.client import ScramClient
from barnabas.security.sasl.scram.server import ScramServer
from barnabas.security.sasl.server_settings import ServerSettings
from barnabas.security.values import ScramMechanism
from tests.barnabas.security.sasl.test_scram import Users
from tests.support.broker.network import make_api_table
from tests.support.cycles import cyclic_garbage

CONTEXT = RequestContext("OUTSIDE", "SASL_PLAINTEXT", "10.0.0.1", 5, "c-1")
CHECK = passwords_of({"user_alice": "secret", "user_bob": "secret"})
ALICE = b"\0alice\0secret"
USERS = Users(carol="c")


class Expiring:
    """A mechanism whose credentials end; a message is a name and when it ends."""

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def evaluate(self, response: bytes) -> bytes:
        name, _, expires = response.decode().partition("@")
        if not name:
            raise InvalidCredentialsError("the reason")
        self.identity = Identity(f"User:{name}", int(expires) if expires else None)
        return b"welcome"


class Silent:
    """A mechanism whose last message has no answer, as GSSAPI's has none; `later` may succeed at the next try."""

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def evaluate(self, response: bytes) -> bytes | None:
        if response == b"later":
            raise TransientError("the reason")
        if response != b"last":
            return b"challenge"
        self.identity = Identity("User:silent")
        return None


class Rig:
    """An authenticator, and a clock."""

    def __init__(self, max_reauth_ms: int = 0, *, gssapi: bool = False) -> None:
        self.clock = FakeClock()
        mechanisms: dict[str, Any] = {
            "PLAIN": lambda: PlainServer(CHECK),
            "SCRAM-SHA-256": lambda: ScramServer(ScramMechanism.SCRAM_SHA_256, USERS, b""),
            "EXPIRING": Expiring,
            "SILENT": Silent,
        }
        if gssapi:
            mechanisms["GSSAPI"] = Expiring
        table = make_api_table()
        listener = ListenerSasl(
            ServerSettings(mechanisms, dict.fromkeys(mechanisms, max_reauth_ms), 1000, 0, ()),
            self.clock,
            lambda request: answer(request, table, FinalizedFeatures({}, -1)),
        )
        self.authenticator = SaslServerAuthenticator(listener, CONTEXT)

    def raw(self, frame: bytes) -> bytes | None:
        return self.authenticator.receive(memoryview(bytearray(frame)))

    def send(self, message: Message, version: int) -> Any:
        """Send a request; return the response, or that of the failure, or None."""
        sent = self.raw(encode_request(RequestHeader(message.API_KEY, version, 7, "test"), message)[4:])
        frame = self.authenticator.failure_response if sent is None else sent
        if frame is None:
            return None
        assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
        used = 0 if message.API_KEY == 18 and version > 4 else version
        correlation_id, offset = decode_response_header(frame[4:], message.API_KEY, used)
        assert correlation_id == 7
        return response_class(message.API_KEY).decode(memoryview(frame)[4:], used, offset)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.send(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> Any:
        return self.send(SaslAuthenticateRequest(auth_bytes=token), version)

    def versions(self, version: int = 3, name: str = "client") -> Any:
        return self.send(ApiVersionsRequest(client_software_name=name, client_software_version="1.0"), version)

    def again(self) -> None:
        """Let a client that has logged in begin again."""
        self.authenticator = self.authenticator.again(self.clock.monotonic_ns())

    @property
    def principal(self) -> str | None:
        session = self.authenticator.session
        return None if session is None else session.identity.principal

    @property
    def reason(self) -> str:
        assert self.authenticator.is_failed
        assert not self.authenticator.is_complete
        assert self.authenticator.session is None
        return self.authenticator.failure_reason


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login(version: int) -> None:
    rig = Rig()
    assert rig.versions().error_code == ErrorCode.NONE
    assert rig.authenticator.client_software == ("client", "1.0")
    handshake = rig.handshake()
    assert handshake.error_code == ErrorCode.NONE
    assert handshake.mechanisms == ["PLAIN", "SCRAM-SHA-256", "EXPIRING", "SILENT"]
    response = rig.token(ALICE, version)
    assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
    assert rig.authenticator.is_complete
    assert rig.principal == "User:alice"
    assert not rig.authenticator.is_expired(2**62)


def test_api_versions_may_be_left_out() -> None:
    rig = Rig()
    rig.handshake()
    rig.token(ALICE)
    assert rig.principal == "User:alice"


def test_bare_tokens_after_handshake_v0() -> None:
    rig = Rig()
    rig.handshake(version=0)
    assert rig.raw(ALICE) == struct.pack(">i", 0)
    assert rig.principal == "User:alice"
    assert rig.authenticator.session is not None
    assert not rig.authenticator.session.can_authenticate_again


def test_bare_tokens_that_fail_have_no_response() -> None:
    rig = Rig()
    rig.handshake(version=0)
    assert rig.raw(b"\0alice\0wrong") is None
    assert rig.reason == "Authentication failed: Invalid username or password"
    assert rig.authenticator.failure_response is None


@pytest.mark.parametrize("version", [0, 1, None])
def test_a_failure_does_not_keep_its_frames(version: int | None) -> None:
    """What a stranger sends is freed with the connection, not when the garbage collector runs."""

    def fail() -> None:
        rig = Rig()
        if version is not None:
            rig.handshake(version=version)
        if version:
            rig.token(b"\0alice\0wrong")
        else:
            rig.raw(b"\0alice\0wrong")
        assert rig.reason

    fail()  # what the first one imports
    assert cyclic_garbage(fail) == 0


def test_an_exchange_of_two_tokens() -> None:
    rig = Rig()
    rig.handshake("SCRAM-SHA-256")
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, "carol", "c")
    first = rig.token(client.first())
    assert not rig.authenticator.is_complete
    assert client.evaluate(rig.token(client.evaluate(first.auth_bytes) or b"").auth_bytes) is None
    assert client.is_complete
    assert rig.principal == "User:carol"


def test_an_unknown_mechanism_lists_the_enabled_ones() -> None:
    rig = Rig()
    response = rig.handshake("DIGEST\nMD5")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "EXPIRING", "SILENT"]
    assert rig.reason == "Unsupported SASL mechanism 'DIGEST\\nMD5'"


def test_the_client_sees_the_texts_that_it_may_see() -> None:
    rig = Rig()
    rig.handshake()
    response = rig.token(b"\0alice\0wrong")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "Authentication failed: Invalid username or password"
    rig = Rig()
    rig.handshake("EXPIRING")
    assert rig.token(b"").error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism EXPIRING"
    )
    assert rig.reason.endswith("with SASL mechanism EXPIRING: the reason")  # for the log


def test_a_version_that_is_too_new_is_answered_and_may_be_repeated() -> None:
    rig = Rig()
    header = struct.pack(">hhih", 18, 99, 7, -1) + b"\0"
    frame = rig.raw(header + b"whatever a later release sends")
    assert frame is not None
    response = response_class(18).decode(memoryview(frame), 0, 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert rig.authenticator.state is State.VERSIONS
    assert rig.versions().error_code == ErrorCode.NONE


def test_an_invalid_software_name_is_answered() -> None:
    rig = Rig()
    assert rig.versions(name="no spaces here").error_code == ErrorCode.INVALID_REQUEST
    assert rig.authenticator.client_software is None
    assert rig.versions().error_code == ErrorCode.NONE


STEPS = {
    "versions": lambda rig: rig.versions(),
    "handshake": lambda rig: rig.handshake(),
    "token": lambda rig: rig.token(ALICE),
    "metadata": lambda rig: rig.send(MetadataRequest(), 12),
}
#: What may come after these messages; any other ends the exchange.
LEGAL = {(): {"versions", "handshake"}, ("versions",): {"handshake"}, ("handshake",): {"token"}}


@pytest.mark.parametrize("before", [(), ("versions",), ("handshake",), ("versions", "handshake")])
@pytest.mark.parametrize("step", STEPS)
def test_every_order(before: tuple[str, ...], step: str) -> None:
    rig = Rig()
    for earlier in before:
        STEPS[earlier](rig)
    response = STEPS[step](rig)
    if step in LEGAL[before[-1:]]:
        assert not rig.authenticator.is_failed
        assert response.error_code == ErrorCode.NONE
        return
    assert rig.reason.startswith("Unexpected ")
    is_known = step in ("versions", "handshake") and before[-1:] == ("handshake",)
    assert (None if response is None else response.error_code) == (ErrorCode.ILLEGAL_SASL_STATE if is_known else None)


def test_an_unexpected_request_is_named_as_in_kafka() -> None:
    rig = Rig()
    rig.send(MetadataRequest(), 12)
    assert rig.reason == "Unexpected Kafka request of type METADATA during SASL handshake."
    rig = Rig()
    rig.handshake()
    rig.send(MetadataRequest(), 12)
    assert rig.reason == "Unexpected Kafka request of type METADATA during SASL authentication."


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 17, 2, 7, -1) + b"\0\x05PLAIN",
        struct.pack(">hhih", 17, -1, 7, -1) + b"\0\x05PLAIN",
        struct.pack(">hhih", 17, 1, 7, -1) + b"\0\x50PLAIN",
        struct.pack(">hhih", 17, 1, 7, -1),
        struct.pack(">hhih", 18, 3, 7, -1) + b"\0\xff",
    ],
)
def test_malformed_requests(frame: bytes) -> None:
    rig = Rig()
    assert rig.raw(frame) is None
    assert rig.reason
    assert rig.authenticator.failure_response is None


@pytest.mark.parametrize("frame", [b"", b"\x60\x82\x01\x02token", struct.pack(">hhih", 999, 0, 7, -1)])
def test_a_first_frame_that_is_no_request(frame: bytes) -> None:
    rig = Rig()
    assert rig.raw(frame) is None
    assert rig.reason == "Exception handling first SASL packet from client, GSSAPI is not supported by server"


def test_the_first_frame_of_an_old_client_is_a_token_of_gssapi() -> None:
    rig = Rig(gssapi=True)
    assert rig.raw(b"\x60user") == struct.pack(">i", 7) + b"welcome"
    assert rig.principal == "User:\x60user"
    rig = Rig(gssapi=True)
    rig.versions()
    assert rig.raw(b"\x60user") is None
    assert rig.authenticator.is_failed


def test_a_last_message_without_an_answer() -> None:
    """A request has a response; a bare token has none, since its client sends requests now."""
    rig = Rig()
    rig.handshake("SILENT")
    assert rig.token(b"first").auth_bytes == b"challenge"
    assert rig.token(b"last").auth_bytes == b""
    assert rig.principal == "User:silent"
    rig = Rig()
    rig.handshake("SILENT", 0)
    assert rig.raw(b"first") == struct.pack(">i", 9) + b"challenge"
    assert rig.raw(b"last") is None
    assert rig.principal == "User:silent"
    assert rig.authenticator.is_complete


@pytest.mark.parametrize("version", [0, 1])
def test_a_failure_that_may_be_gone_in_a_moment_has_no_answer(version: int) -> None:
    rig = Rig()
    rig.handshake("SILENT", version)
    assert (rig.token(b"later") if version else rig.raw(b"later")) is None
    assert rig.reason == "the reason"
    assert rig.authenticator.failure_response is None


def test_the_number_of_messages_is_bounded() -> None:
    rig = Rig()
    for _ in range(MESSAGES_MAX):
        assert rig.versions(name="no spaces here").error_code == ErrorCode.INVALID_REQUEST
    assert rig.versions() is None
    assert rig.reason == f"more than {MESSAGES_MAX} messages without a login"


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, 0), (5000, None, 5000), (0, 3000, 3000), (5000, 3000, 3000), (2000, 3000, 2000), (5000, -3000, 0)],
)
def test_the_life_of_a_session(max_reauth_ms: int, expires_in_ms: int | None, lifetime_ms: int) -> None:
    rig = Rig(max_reauth_ms)
    rig.handshake("EXPIRING")
    expires = "" if expires_in_ms is None else rig.clock.wall_ms() + expires_in_ms
    assert rig.token(f"alice@{expires}".encode()).session_lifetime_ms == lifetime_ms
    has_end = max_reauth_ms > 0 or expires_in_ms is not None
    assert not rig.authenticator.is_expired(rig.clock.monotonic_ns())
    rig.clock.advance_ms(lifetime_ms)
    rig.clock.advance_ns(1)
    assert rig.authenticator.is_expired(rig.clock.monotonic_ns()) == has_end


HANDSHAKE = memoryview(struct.pack(">hhih", 17, 1, 7, -1) + b"\0\x05PLAIN")


def test_who_may_authenticate_again() -> None:
    rig = Rig()
    rig.handshake()
    rig.token(ALICE)
    assert not rig.authenticator.may_begin_again(HANDSHAKE, rig.clock.monotonic_ns())
    rig = Rig(5000)
    rig.handshake()
    rig.token(ALICE)
    now_ns = rig.clock.monotonic_ns()
    assert rig.authenticator.may_begin_again(HANDSHAKE, now_ns)
    assert not rig.authenticator.may_begin_again(memoryview(b"\0\x03\0\0"), now_ns)
    rig.again()
    rig.handshake()
    rig.token(ALICE)
    assert not rig.authenticator.may_begin_again(HANDSHAKE, now_ns + NS_PER_S - 1)
    assert rig.authenticator.may_begin_again(HANDSHAKE, now_ns + NS_PER_S)


def test_authenticating_again() -> None:
    rig = Rig(5000)
    rig.handshake()
    rig.token(ALICE)
    rig.clock.advance_ms(4000)
    rig.again()
    assert rig.authenticator.is_again
    assert rig.handshake().error_code == ErrorCode.NONE
    rig.clock.advance_ms(3)
    assert rig.token(ALICE).session_lifetime_ms == 5000
    assert rig.principal == "User:alice"
    assert rig.authenticator.latency_ms() == 3
    rig.clock.advance_ms(4999)
    assert not rig.authenticator.is_expired(rig.clock.monotonic_ns())


def test_the_principal_must_not_change() -> None:
    rig = Rig(5000)
    rig.handshake()
    rig.token(ALICE)
    rig.again()
    rig.handshake()
    response = rig.token(b"\0bob\0secret")
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert rig.reason == text


def test_the_mechanism_must_not_change() -> None:
    rig = Rig(5000)
    rig.handshake()
    rig.token(ALICE)
    rig.again()
    assert rig.handshake("SCRAM-SHA-256").error_code == ErrorCode.NONE
    assert rig.token(b"n,,n=carol,r=x") is None
    assert rig.reason == (
        "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    )


def test_no_api_versions_while_authenticating_again() -> None:
    rig = Rig(5000)
    rig.handshake()
    rig.token(ALICE)
    rig.again()
    assert rig.versions() is None
    assert rig.reason.startswith("Unexpected ApiVersions request")


@pytest.mark.parametrize("seed", range(20))
def test_garbage_never_raises_and_never_logs_in(seed: int) -> None:
    chosen = random.Random(seed)
    good = [
        encode_request(RequestHeader(18, 3, 1, "c"), ApiVersionsRequest(client_software_name="c"))[4:],
        bytes(HANDSHAKE),
        encode_request(RequestHeader(36, 2, 1, "c"), SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))[4:],
    ]
    for _ in range(300):
        rig = Rig(gssapi=False)
        for _ in range(4):
            frame = bytearray(chosen.choice(good))
            for _ in range(chosen.randrange(4)):
                frame[chosen.randrange(len(frame))] = chosen.randrange(256)
            if chosen.random() < 0.2:
                frame = frame[: chosen.randrange(len(frame) + 1)]
            rig.raw(bytes(frame))
            if rig.authenticator.is_failed:
                break
        assert not rig.authenticator.is_complete
