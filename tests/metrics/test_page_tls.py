"""The pages over TLS."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.clock import FakeClock, SystemClock
from barnabas.common.pages import server as server_module
from barnabas.common.pages.page import Page
from barnabas.common.pages.page_access import Access
from barnabas.common.pages.page_client import ask
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.page_tls import REVIEW_MS, PageTls, make_tls, settings_of
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from tests.support.certificates import Authority
from tests.support.waiting import eventually

DAY_S = 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=SystemClock().wall_ms())  # certificates are issued for today


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def store(tmp_path: Path, authority: Authority) -> Path:
    return authority.issue("pages").write_pem(tmp_path / "pages.pem")


def config_of(store: Path, **more: str) -> Config:
    """A config with a PEM key store; `more` by what follows `barnabas.pages.ssl.`."""
    keys = {"keystore.type": "PEM", "keystore.location": str(store), **more}
    return Config.from_properties({f"barnabas.pages.ssl.{key}": text for key, text in keys.items()})


@pytest.fixture
def server(store: Path, clock: FakeClock) -> Iterator[MetricsServer]:
    made = MetricsServer(Registry(), tls=make_tls(config_of(store), clock))
    made.add_page("/large", lambda: Page(b"x" * 1_000_000))
    made.add_page("/visited", lambda: Page(b"hello"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def access(tmp_path: Path, authority: Authority) -> Access:
    return Access(scheme="https", ca=str(authority.write_pem(tmp_path / "ca.pem")))


def test_pages_are_read_over_tls(server: MetricsServer, access: Access) -> None:
    answer = ask("127.0.0.1", server.port, "GET", "/large", access, timeout_s=60)
    assert (answer.status, answer.body) == (200, b"x" * 1_000_000)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask("127.0.0.1", server.port, "GET", "/visited", access._replace(ca=""), timeout_s=60)


def test_plain_http_gets_no_answer(server: MetricsServer, access: Access) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as visitor:
        visitor.sendall(b"GET /visited HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := visitor.recv(65536):
                received += piece
    assert b"hello" not in received
    assert ask("127.0.0.1", server.port, "GET", "/visited", access, timeout_s=60).body == b"hello"


def test_a_page_of_its_own_site_may_ask(server: MetricsServer, access: Access) -> None:
    context = ssl.create_default_context(cafile=access.ca)
    for origin, status in ((f"https://localhost:{server.port}", b"200"), (f"http://localhost:{server.port}", b"403")):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as visitor,
        ):
            host = f"localhost:{server.port}"
            visitor.sendall(f"GET /visited HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode())
            assert visitor.recv(65536).split()[1] == status


def test_a_slow_handshake_ends(server: MetricsServer, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(server_module, "PATIENCE_S", 0.2)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as visitor:
            visitor.sendall(b"\x16\x03\x01")
            assert visitor.recv(1) == b""
    assert ask("127.0.0.1", server.port, "GET", "/visited", access, timeout_s=60).status == 200


def test_no_descriptor_is_left(server: MetricsServer, access: Access) -> None:
    ask("127.0.0.1", server.port, "GET", "/visited", access, timeout_s=60)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ask("127.0.0.1", server.port, "GET", "/visited", access, timeout_s=60)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as visitor:
            visitor.sendall(b"no TLS at all, and long enough")
            visitor.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                visitor.recv(100)
    eventually("descriptors are closed", lambda: len(os.listdir("/proc/self/fd")) <= before + 2)


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(
    store: Path, authority: Authority, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    tls = make_tls(config_of(store), clock)
    assert tls is not None
    first = tls.context()
    assert tls.context() is first
    authority.issue("renewed pages").write_pem(store)
    assert tls.context() is first  # not looked at yet
    clock.advance_ms(REVIEW_MS)
    second = tls.context()
    assert second is not first
    store.write_text("broken")
    clock.advance_ms(REVIEW_MS)
    with caplog.at_level(logging.ERROR):
        assert tls.context() is second
        clock.advance_ms(REVIEW_MS)
        assert tls.context() is second
    (line,) = caplog.messages
    assert line.startswith("the pages keep their certificate: barnabas.pages.ssl: ")


def test_the_days_until_the_certificate_expires_are_shown_and_logged(
    tmp_path: Path, authority: Authority, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = authority.issue("pages", to_days=100).write_pem(tmp_path / "pages.pem")
    tls = make_tls(config_of(store), clock)
    assert tls is not None
    registry = Registry()
    MetricsServer(registry, tls=tls)
    ((labels, gauge),) = dict(registry.collect())[catalogue.TLS_CERTIFICATE_SECONDS_LEFT]
    assert labels == ("pages",)
    assert 99 * DAY_S < gauge.read() < 101 * DAY_S

    def visited_after(days: int) -> list[str]:
        clock.advance_ms(days * DAY_S * 1000)
        caplog.clear()
        caplog.set_level(logging.INFO)
        for _ in range(2):
            tls.context()
            clock.advance_ms(REVIEW_MS)
        return caplog.messages

    assert visited_after(0) == []
    assert visited_after(80) == ["the certificate of the pages expires in 19 days"]
    assert visited_after(1) == ["the certificate of the pages expires in 18 days"]
    authority.issue("pages", to_days=300).write_pem(store)
    assert visited_after(1) == ["the pages have a new certificate: O=Barnabas,CN=pages"]
    assert gauge.read() > 200 * DAY_S
    assert visited_after(300) == ["the certificate of the pages has expired: no client accepts it"]


def test_visitors_may_need_a_certificate(
    store: Path, tmp_path: Path, authority: Authority, clock: FakeClock, access: Access
) -> None:
    more = {"client.auth": "required", "truststore.type": "PEM", "truststore.location": access.ca}
    tls = make_tls(config_of(store, **more), clock)
    assert tls is not None
    assert tls.authenticates
    server = MetricsServer(Registry(), tls=tls)
    server.start()
    try:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask("127.0.0.1", server.port, "GET", "/healthz", access, timeout_s=60)
        context = ssl.create_default_context(cafile=access.ca)
        context.load_cert_chain(authority.issue("visitor").write_pem(tmp_path / "visitor.pem"))
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as visitor,
        ):
            visitor.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert visitor.recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        server.stop()


def test_the_listeners_keys_do_not_reach_the_pages(store: Path, clock: FakeClock) -> None:
    config = Config.from_properties({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)})
    assert make_tls(config, clock) is None
    assert settings_of(config).keystore_type == "JKS"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"keystore.type": "JKS"}, "ssl.keystore.location is set, but not ssl.keystore.password"),
        ({"keystore.location": "/absent"}, "barnabas.pages.ssl: "),
        ({"enabled.protocols": "SSLv3"}, "barnabas.pages.ssl: ssl.enabled.protocols: SSLv3 is not supported"),
    ],
)
def test_what_cannot_work_is_refused(store: Path, clock: FakeClock, keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_tls(config_of(store, **keys), clock)


def test_an_expired_certificate_is_refused(tmp_path: Path, authority: Authority, clock: FakeClock) -> None:
    store = authority.issue("pages", from_days=-3, to_days=-1).write_pem(tmp_path / "old.pem")
    with pytest.raises(ConfigError, match=r"barnabas\.pages\.ssl: .* expired on"):
        PageTls(settings_of(config_of(store)), clock)


def test_tls_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.pages\.ssl\.client\.auth: pages have TLS only with"):
        Config.from_properties({"barnabas.pages.ssl.client.auth": "required"})


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"client.auth": "required"}, None),
        ({}, "without authentication"),
        (None, "without TLS: credentials can be read on their way"),
    ],
)
def test_what_a_wide_address_lacks_is_said(
    store: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, settings: dict[str, str] | None, line: str | None
) -> None:
    properties = dict(config_of(store, **settings).originals) if settings is not None else {}
    if settings is None:
        properties["barnabas.pages.auth.token"] = "t0ken"
    config = Config.from_properties({**properties, "barnabas.metrics.host": "0.0.0.0", "barnabas.metrics.port": "0"})
    server = MetricsServer.of_config(Registry(), config, clock)
    with caplog.at_level(logging.WARNING):
        server.start()
    server.stop()
    warnings = [message for message in caplog.messages if "pages listen" in message]
    assert len(warnings) == (line is not None)
    assert line is None or line in warnings[0]
