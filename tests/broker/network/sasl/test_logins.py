"""Logins on real connections: what handlers see, how failures end, sessions, floods. Tests logins.py and metrics.py."""

from __future__ import annotations

import contextlib
import logging
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis import k17_sasl_handshake, k36_sasl_authenticate
from barnabas.broker.apis.k18_api_versions import answer
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.network.connection import TRUSTED_BYTES
from barnabas.broker.network.connections import INBOX_SIZE
from barnabas.broker.network.sasl import logins
from barnabas.broker.network.sasl.logins import Logins
from barnabas.broker.network.sasl.metrics import LINES_MAX, PERIOD_S, LoginMetrics
from barnabas.broker.network.sasl.server_authenticator import ListenerSasl
from barnabas.broker.network.unauthenticated.share import Share
from barnabas.broker.processors import SLEEP_S
from barnabas.common.clock import NS_PER_MS, NS_PER_S, FakeClock, SystemClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.security.sasl.mechanism import AuthenticationError, Identity, RefusalError
from barnabas.security.sasl.plain import PlainServer, passwords_of
from barnabas.security.sasl.server_settings import ServerSettings
from tests.broker.test_tls_processing import SSL_KEYS, TlsClient, secured
from tests.support.broker.network import (
    API_VERSIONS,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    Client,
    ListenerRow,
    Network,
    api_versions_request,
    heartbeat,
)
from tests.support.waiting import eventually

HANDSHAKE, AUTHENTICATE = 17, 36
DELAY_MS = 50
SESSION_MS = 600_000
#: For tests whose clients wait with their TLS handshakes.
PATIENT = {"barnabas_ssl_handshake_timeout_ms": 600_000}
CHECK = passwords_of({"user_alice": "secret", "user_bob": "secret"})


class Broken:
    """A mechanism with a bug."""

    identity = None

    def evaluate(self, _response: bytes) -> bytes:
        raise RuntimeError("our bug")


class Satisfied:
    """A mechanism whose only message has no answer."""

    identity: Identity | None = None

    def evaluate(self, response: bytes) -> None:
        self.identity = Identity(f"User:{response.decode()}")


class Refusing:
    """A mechanism that refuses by a challenge, as OAUTHBEARER does."""

    identity = None

    def __init__(self) -> None:
        self._is_refused = False

    def evaluate(self, _response: bytes) -> bytes:
        if self._is_refused:
            raise AuthenticationError("refused")
        self._is_refused = True
        raise RefusalError(b"no", "why it is refused")


class Sources:
    """The SASL of every listener: PLAIN, one whose message has no answer, one that refuses, and one with a bug."""

    def __init__(self, max_reauth_ms: int, network: list[Network]) -> None:
        self.settings = ServerSettings(
            {"PLAIN": lambda: PlainServer(CHECK), "BROKEN": Broken, "SATISFIED": Satisfied, "REFUSING": Refusing},
            {"PLAIN": max_reauth_ms},
            1000,
            DELAY_MS,
            (),
        )
        self.network = network

    def listener(self, _config: Any, _name: str, _clock: Any) -> ListenerSasl:
        return ListenerSasl(
            self.settings,
            SystemClock(),
            lambda request: answer(request, self.network[0].table, FinalizedFeatures({}, -1)),
        )


class SaslNetwork(Network):
    """A network whose only listener asks for a login."""

    def __init__(self, max_reauth_ms: int = 0, protocol: str = "SASL_PLAINTEXT", **config: Any) -> None:
        self.max_reauth_ms = max_reauth_ms
        super().__init__(
            listeners=(ListenerRow("OUTSIDE", protocol),), sasl=self.make_sources(), num_network_threads=1, **config
        )
        for module in (k17_sasl_handshake, k36_sasl_authenticate):
            self.table[module.API.key] = module.API

    def make_sources(self) -> Sources:
        return Sources(self.max_reauth_ms, [self])

    def client(self, listener: str = "OUTSIDE") -> Client:
        return super().client(listener)

    def count(self, row: Any) -> int:
        found: int = self.registry.sensor(row, listener="OUTSIDE", networkProcessor=0).count
        return found

    @property
    def principals(self) -> list[str]:
        return [connection.context.principal for connection in self.connections()]


@pytest.fixture
def network() -> Iterator[SaslNetwork]:
    with SaslNetwork() as network:
        yield network


@pytest.fixture
def expiring() -> Iterator[SaslNetwork]:
    """Sessions end, but not during a test."""
    with SaslNetwork(SESSION_MS) as network:
        yield network


def handshake(number: int = 1, mechanism: str = "PLAIN") -> bytes:
    return encode_request(RequestHeader(HANDSHAKE, 1, number, "test"), SaslHandshakeRequest(mechanism=mechanism))


def token(user: str = "alice", password: str = "secret", number: int = 2) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    return encode_request(RequestHeader(AUTHENTICATE, 2, number, "test"), request)


def log_in(client: Client, user: str = "alice") -> None:
    client.send(api_versions_request(3, 9) + handshake() + token(user))
    assert client.receive(API_VERSIONS, 3, 9).error_code == ErrorCode.NONE
    assert client.receive(HANDSHAKE, 1, 1).error_code == ErrorCode.NONE
    assert client.receive(AUTHENTICATE, 2, 2).error_code == ErrorCode.NONE


def test_requests_come_after_the_login(network: SaslNetwork) -> None:
    with network.client() as client:
        log_in(client)
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert network.principals == ["User:alice"]
        assert network.connections()[0].client_software == ("tests", "1.0")
    assert network.count(c.SUCCESSFUL_AUTHENTICATION) == 1
    assert network.count(c.FAILED_AUTHENTICATION) == 0


def test_everything_in_one_piece(network: SaslNetwork) -> None:
    """A client that does not wait for answers: the requests after the login are answered in order."""
    with network.client() as client:
        client.send(handshake() + token() + b"".join(heartbeat("ok", number) for number in range(30)))
        client.receive(HANDSHAKE, 1, 1)
        client.receive(AUTHENTICATE, 2, 2)
        for number in range(30):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE


@pytest.mark.parametrize("waits", [False, True], ids=["in one piece", "one after the other"])
def test_requests_after_a_login_whose_end_has_no_answer(network: SaslNetwork, waits: bool) -> None:
    """A bare token that completes a login is not answered; what follows is read all the same."""
    begin = encode_request(RequestHeader(HANDSHAKE, 0, 1, "test"), SaslHandshakeRequest(mechanism="SATISFIED"))
    token = struct.pack(">i", 3) + b"old"
    with network.client() as client:
        if waits:
            client.send(begin)
            client.receive(HANDSHAKE, 0, 1)
            client.send(token)
            eventually("the login is complete", lambda: network.principals == ["User:old"])
        else:
            client.send(begin + token + heartbeat("ok", 2))
            client.receive(HANDSHAKE, 0, 1)
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 2).error_code == ErrorCode.NONE
        assert client.heartbeat("ok") == ErrorCode.NONE


def test_no_handler_sees_a_request_before_the_login(network: SaslNetwork) -> None:
    with network.client() as client:
        client.send(heartbeat("move:seen"))
        assert client.is_closed_by_server()
    with network.client() as client:
        client.send(handshake() + heartbeat("move:seen"))
        client.receive(HANDSHAKE, 1, 1)
        assert client.is_closed_by_server()
    assert network.services.completed == []
    assert network.count(c.FAILED_AUTHENTICATION) == 2


def test_a_wrong_password_is_answered_late_and_closes(network: SaslNetwork, caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    with caplog.at_level(logging.INFO, "barnabas.network"), network.client() as client:
        began_ns = clock.monotonic_ns()
        client.send(handshake() + token(password="wrong") + heartbeat("move:seen"))
        client.receive(HANDSHAKE, 1, 1)
        response = client.receive(AUTHENTICATE, 2, 2)
        assert clock.monotonic_ns() - began_ns >= DELAY_MS * NS_PER_MS
        assert response.error_message == "Authentication failed: Invalid username or password"
        assert client.is_closed_by_server()
    (line,) = [record.getMessage() for record in caplog.records if "authentication" in record.getMessage()]
    assert line.startswith("Failed authentication with /127.0.0.1 (channelId=127.0.0.1:")
    assert line.endswith("(Authentication failed: Invalid username or password) by PLAIN")
    assert network.services.completed == []
    assert network.count(c.FAILED_AUTHENTICATION) == 1


@pytest.mark.parametrize("answers", [0, 1])
def test_a_refusal_by_a_challenge_counts_once_whether_or_not_it_is_acknowledged(
    network: SaslNetwork, caplog: pytest.LogCaptureFixture, answers: int
) -> None:
    with caplog.at_level(logging.INFO, "barnabas.network"), network.client() as client:
        client.send(handshake(mechanism="REFUSING") + token())
        client.receive(HANDSHAKE, 1, 1)
        assert client.receive(AUTHENTICATE, 2, 2).auth_bytes == b"no"
        eventually("it counts", lambda: network.count(c.FAILED_AUTHENTICATION) == 1)
        if answers:
            client.send(token())
            assert client.receive(AUTHENTICATE, 2, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_server()
    (line,) = [record.getMessage() for record in caplog.records if "authentication" in record.getMessage()]
    assert line.endswith("(why it is refused) by REFUSING")
    assert network.count(c.FAILED_AUTHENTICATION) == 1


def test_a_frame_that_is_too_large_for_a_login(network: SaslNetwork) -> None:
    for size in (1001, -1, 2**31 - 1):
        with network.client() as client:
            client.send(struct.pack(">i", size) + b"x")
            assert client.is_closed_by_server()
    assert network.count(c.FAILED_AUTHENTICATION) == 3
    with network.client() as client:
        log_in(client)
        assert client.heartbeat("ok:" + "x" * 2000) == ErrorCode.NONE


def test_a_client_that_leaves_during_the_delay(network: SaslNetwork) -> None:
    with network.client() as client:
        client.send(handshake() + token(password="wrong"))
    eventually("the connections close", lambda: network.connections() == [])
    with network.client() as client:
        log_in(client)


def test_sasl_requests_after_the_login_are_out_of_place(network: SaslNetwork) -> None:
    with network.client() as client:
        log_in(client)
        client.send(handshake(5) + token(number=6) + heartbeat("ok", 7))
        assert client.receive(HANDSHAKE, 1, 5).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.receive(AUTHENTICATE, 2, 6).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 7).error_code == ErrorCode.NONE


def test_frames_of_a_session_without_an_end_are_no_logins(network: SaslNetwork, expiring: SaslNetwork) -> None:
    for one, may in ((network, False), (expiring, True)):
        with one.client() as client:
            assert eventually("it is open", one.connections)[0].may_log_in
            log_in(client)
            assert one.connections()[0].may_log_in is may


def test_authenticating_again_between_requests(expiring: SaslNetwork) -> None:
    """The requests before it are answered first, and the session begins anew."""
    with expiring.client() as client:
        log_in(client)
        client.send(b"".join(heartbeat("ok", number) for number in range(5)) + handshake(8) + token(number=9))
        for number in range(5):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert client.receive(HANDSHAKE, 1, 8).error_code == ErrorCode.NONE
        assert client.receive(AUTHENTICATE, 2, 9).session_lifetime_ms == SESSION_MS
        assert client.heartbeat("ok") == ErrorCode.NONE
    assert expiring.count(c.SUCCESSFUL_AUTHENTICATION) == 1
    assert expiring.count(c.SUCCESSFUL_REAUTHENTICATION) == 1


def test_another_principal_cannot_take_a_connection_over(expiring: SaslNetwork) -> None:
    with expiring.client() as client:
        log_in(client)
        client.send(handshake(8) + token("bob", number=9))
        client.receive(HANDSHAKE, 1, 8)
        response = client.receive(AUTHENTICATE, 2, 9)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_server()
    assert expiring.count(c.FAILED_REAUTHENTICATION) == 1


def test_a_session_that_has_ended_is_closed_when_it_is_used() -> None:
    with SaslNetwork(1) as network, network.client() as client:
        log_in(client)
        (connection,) = network.connections()
        authenticator = connection.authenticator
        assert authenticator is not None
        eventually("the session ends", lambda: authenticator.is_expired(SystemClock().monotonic_ns()))
        assert network.connections() == [connection]
        client.send(heartbeat("move:seen"))
        assert client.is_closed_by_server()
        assert network.services.completed == []
        assert network.server.processors()[0].metrics.expired_count == 1


def test_a_login_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with SaslNetwork() as network, network.client() as client:
        log_in(client)
        monkeypatch.setattr(logins, "LOGIN_TIMEOUT_NS", NS_PER_S // 10)
        with network.client() as slow:
            slow.send(b"\0\0")
            assert slow.is_closed_by_server()
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert network.count(c.FAILED_AUTHENTICATION) == 1


def test_a_processor_looks_often_while_a_client_has_not_logged_in(network: SaslNetwork) -> None:
    """Its limits are seconds, and may change."""
    (processor,) = network.server.processors()
    with network.client() as client:
        log_in(client)
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert processor._sleep_s() > SLEEP_S
        with network.client():
            eventually("it looks often", lambda: processor._sleep_s() == SLEEP_S)
        eventually("it does so no more", lambda: processor._sleep_s() > SLEEP_S)


def test_the_number_of_logins_that_have_begun_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is closed; a client that has logged in is none of them."""
    monkeypatch.setattr(logins, "BEGUN_MAX", 4)
    with SaslNetwork() as network, network.client() as client, contextlib.ExitStack() as stack:
        log_in(client)
        slow = []
        for _ in range(6):
            slow.append(stack.enter_context(network.client()))
            slow[-1].send(handshake())
            slow[-1].receive(HANDSHAKE, 1, 1)
        for early in slow[:2]:
            assert early.is_closed_by_server()
        slow[-1].send(token())
        assert slow[-1].receive(AUTHENTICATE, 2, 2).error_code == ErrorCode.NONE
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert len(network.connections()) == 5


def test_clients_that_wait_for_their_tls_handshake_have_not_begun_to_log_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Thousands that come at once are served in their order: none makes way before its turn has come."""
    monkeypatch.setattr(logins, "BEGUN_MAX", 2)
    with SaslNetwork(protocol="SASL_SSL", originals=SSL_KEYS, **PATIENT) as network, contextlib.ExitStack() as stack:
        port = network.server.port("OUTSIDE")
        waiting = [stack.enter_context(network.client()) for _ in range(6)]
        eventually("all are there", lambda: len(network.connections()) == 6)
        with TlsClient(port, tmp_path) as client:
            log_in(client)
            assert client.heartbeat("ok") == ErrorCode.NONE
        eventually("one has left", lambda: len(network.connections()) == 6)
        waiting[0].sock = secured(waiting[0].sock)
        log_in(waiting[0])
        assert waiting[0].heartbeat("ok") == ErrorCode.NONE
        slow = [stack.enter_context(TlsClient(port, tmp_path)) for _ in range(3)]
        assert slow[0].is_closed_by_server()


def test_logins_wait_while_their_share_is_used_up_and_requests_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    is_open = threading.Event()
    is_open.set()
    monkeypatch.setattr(Share, "wait_ns", lambda _: 0 if is_open.is_set() else NS_PER_MS)
    with SaslNetwork() as network, network.client() as client, contextlib.ExitStack() as stack:
        log_in(client)
        begun = stack.enter_context(network.client())
        begun.send(handshake())
        begun.receive(HANDSHAKE, 1, 1)
        is_open.clear()
        assert client.heartbeat("ok") == ErrorCode.NONE  # now no step is under way that was allowed before
        begun.send(token())
        late = [stack.enter_context(network.client()) for _ in range(2 * INBOX_SIZE)]
        for each in late:
            each.send(handshake() + token())
        for number in range(50):
            assert client.heartbeat("ok", number) == ErrorCode.NONE
        assert len(network.connections()) == 2, "none is taken over meanwhile"
        assert select.select([each.sock for each in (begun, *late)], [], [], 0)[0] == []
        is_open.set()
        assert begun.receive(AUTHENTICATE, 2, 2).error_code == ErrorCode.NONE
        for each in late:
            each.receive(HANDSHAKE, 1, 1)
            assert each.receive(AUTHENTICATE, 2, 2).error_code == ErrorCode.NONE


def test_what_is_done_for_strangers_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    charged: list[int] = []
    monkeypatch.setattr(Share, "charge", lambda _, spent_ns: charged.append(spent_ns))
    with SaslNetwork() as network, network.client() as client:
        log_in(client)
        assert sum(charged) > 0
        before = len(charged)
        for number in range(50):
            assert client.heartbeat("ok", number) == ErrorCode.NONE
        # Chores, four times a second, close those that take too long.
        assert len(charged) - before < 50


def test_bytes_of_incomplete_logins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds most is closed; they take nothing from the memory for requests."""
    monkeypatch.setattr(logins, "HELD_BYTES_MAX", 1500)
    with SaslNetwork(queued_max_request_bytes=2000) as network, contextlib.ExitStack() as stack:
        small, large = (stack.enter_context(network.client()) for _ in range(2))
        small.send(struct.pack(">i", 900) + bytes(600))
        eventually(
            "it is there", lambda: max((each.frames.begun_bytes() for each in network.connections()), default=0) == 900
        )
        large.send(struct.pack(">i", 1000) + bytes(950))
        assert large.is_closed_by_server()
        assert all(connection.pooled_bytes == 0 for connection in network.connections())
        with network.client() as client:
            log_in(client)
            assert client.heartbeat("ok:" + "x" * 1800) == ErrorCode.NONE
        assert len(network.connections()) >= 1
        assert network.count(c.FAILED_AUTHENTICATION) == 1


def test_the_number_of_failed_logins_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "FAILED_MAX", 2)
    monkeypatch.setattr(Logins, "wait_ns", lambda *_: None)
    monkeypatch.setattr(Logins, "take_ended", lambda *_: iter(()))  # the delay is never over
    with SaslNetwork() as network, contextlib.ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(network.client()))
            clients[-1].send(handshake() + token(password="wrong"))
            clients[-1].receive(HANDSHAKE, 1, 1)
            expected = len(clients)
            eventually("it has failed", lambda expected=expected: network.count(c.FAILED_AUTHENTICATION) == expected)
        assert clients[0].is_closed_by_server()
        eventually("two wait", lambda: len(network.connections()) == 2)


class Failing:
    """A connection, and its authenticator too, whose login fails."""

    context = failure_response = outgoing = None
    is_complete = is_failed = is_counted = False

    def __init__(self) -> None:
        self.authenticator = self.frames = self

    def fail(self, _reason: str) -> None:
        self.is_failed = True

    def drop(self) -> None:
        pass


def test_a_changed_delay_counts_for_those_that_wait_already() -> None:
    settings = SimpleNamespace(failure_delay_ms=60_000)
    connections: Any = SimpleNamespace(has=lambda _: True)
    metrics: Any = SimpleNamespace(logins=SimpleNamespace(failed=lambda *_: None))
    listener: Any = SimpleNamespace(settings=settings)
    tested = Logins(listener, connections, metrics, 1000)
    early, late = Failing(), Failing()
    tested.refuse(early, "no frame", 0)  # type: ignore[arg-type]
    assert tested.wait_ns(NS_PER_S) == 59 * NS_PER_S
    settings.failure_delay_ms = 100
    tested.refuse(late, "no frame", NS_PER_S)  # type: ignore[arg-type]
    assert tested.wait_ns(NS_PER_S) == 0
    assert tested.count() == 2
    assert list(tested.take_ended(NS_PER_S)) == [early]
    assert tested.count() == 1
    assert tested.wait_ns(NS_PER_S) == 100 * NS_PER_MS
    assert list(tested.take_ended(NS_PER_S + 100 * NS_PER_MS)) == [late]
    assert tested.wait_ns(NS_PER_S) is None


def test_memory_for_the_frame_of_a_login_grows_with_its_bytes(network: SaslNetwork) -> None:
    with network.client() as client:
        eventually("it is there", lambda: len(network.connections()) == 1)
        (connection,) = network.connections()
        eventually("its bound is set", lambda: connection.frames.trusted_bytes == logins.TRUSTED_BYTES)
        log_in(client)
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert connection.frames.trusted_bytes == TRUSTED_BYTES


def test_the_software_of_who_has_not_logged_in_is_cut(network: SaslNetwork) -> None:
    """The pages show it for each connection."""
    versions = ApiVersionsRequest(client_software_name="n" * 400, client_software_version="1" * 400)
    with network.client() as client:
        client.send(encode_request(RequestHeader(API_VERSIONS, 3, 1, "test"), versions))
        assert client.receive(API_VERSIONS, 3, 1).error_code == ErrorCode.NONE
        assert network.connections()[0].client_software == ("n" * 200, "1" * 200)


def test_a_bug_of_a_mechanism_fails_only_its_login(network: SaslNetwork, caplog: pytest.LogCaptureFixture) -> None:
    with network.client() as client, network.client() as other:
        client.send(handshake(mechanism="BROKEN") + token())
        client.receive(HANDSHAKE, 1, 1)
        assert client.is_closed_by_server()
        log_in(other)
    assert network.count(c.FAILED_AUTHENTICATION) == 1
    assert "uncaught" not in caplog.text


def test_a_flood_of_failures_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    metrics = LoginMetrics(Registry(clock), "OUTSIDE", 0)
    with caplog.at_level(logging.INFO, "barnabas.network"):
        assert sum(metrics.may_log(logging.INFO) for _ in range(1000)) == LINES_MAX
        assert caplog.records == []
        clock.advance_ms(PERIOD_S * 1000)
        assert metrics.may_log(logging.INFO)
    assert [record.getMessage() for record in caplog.records] == [
        "... and 990 more in a period of 1 s: authentications failed"
    ]
