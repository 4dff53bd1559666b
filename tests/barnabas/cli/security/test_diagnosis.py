"""Why a secured connection fails, in words."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.cli.security.diagnosis import (
    certificate_of,
    certificate_words,
    expiry_problem,
    explain,
    is_certain,
)
from barnabas.client.client_properties import ClientProperties
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.cluster.security.authority import Authority
from barnabas.common.clock import Clock, FakeClock, SystemClock

DAY_MS = 86_400_000
NOW_MS = SystemClock().wall_ms()


@contextlib.contextmanager
def listener(context: ssl.SSLContext | None) -> Iterator[int]:
    """A listener that does TLS handshakes, or closes each connection; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        if context is None:
                            connection.recv(1)
                            connection.sendall(b"\0\0\0\1x")
                        else:
                            with context.wrap_socket(connection, server_side=True) as secured:
                                secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def context_of(directory: Path, *hosts: str, now_ms: int = NOW_MS, asks: bool = False) -> ssl.SSLContext:
    """The TLS of a listener whose certificate is for these hosts and was issued then."""
    authority = Authority(directory, now_ms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker.pem", "broker-0", hosts))
    if asks:
        context.load_verify_locations(authority.certificate_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def connect_with(**properties: str) -> Connect:
    """Make connections with these properties."""
    return partial(NodeConnection, security=ClientProperties(properties, SystemClock()).security())


def tls(directory: Path) -> dict[str, str]:
    """Properties that trust the authority of a directory."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }


def explained(port: int, clock: Clock | None = None, **properties: str) -> str:
    """The words about a failure, which trying again would not help."""
    connect = connect_with(**properties)
    with pytest.raises(NodeConnectionError) as raised, connect("127.0.0.1", port) as node:
        node.connect()
    assert is_certain(raised.value)
    return explain(raised.value, "127.0.0.1", port, connect, clock)


def test_the_name_is_another(tmp_path: Path) -> None:
    with listener(context_of(tmp_path, "broker.example.org")) as port:
        assert explained(port, **tls(tmp_path)) == (
            "the listener's certificate (CN=broker-0) is for broker.example.org, not for 127.0.0.1: connect by a name "
            "that it has"
        )


def test_the_issuer_is_not_trusted(tmp_path: Path) -> None:
    Authority(tmp_path / "other", NOW_MS)
    with listener(context_of(tmp_path, "127.0.0.1")) as port:
        words = explained(port, **tls(tmp_path / "other"))
    assert "add CN=Barnabas throw-away authority to ssl.truststore.location" in words


@pytest.mark.parametrize(
    ("issued_days", "words"),
    [(-400, "the listener's certificate (CN=broker-0) expired on "), (10, "(CN=broker-0) is not valid before ")],
)
def test_the_dates_do_not_fit_the_clock(tmp_path: Path, issued_days: int, words: str) -> None:
    with listener(context_of(tmp_path, "127.0.0.1", now_ms=NOW_MS + issued_days * DAY_MS)) as port:
        found = explained(port, **tls(tmp_path))
    assert words in found
    assert f"this machine's clock says {datetime.datetime.now(datetime.UTC):%Y-%m-%d}" in found


def test_a_listener_without_tls(tmp_path: Path) -> None:
    Authority(tmp_path, NOW_MS)
    with listener(None) as port:
        assert explained(port, **tls(tmp_path)).startswith("the listener does not speak TLS: security.protocol is")
        assert certificate_of("127.0.0.1", port) is None


def test_a_listener_with_tls_for_a_client_without(tmp_path: Path) -> None:
    with listener(context_of(tmp_path, "127.0.0.1")) as port:
        error = NodeConnectionError("closed")
        words = explain(error, "127.0.0.1", port)
    assert words == (
        f"the listener at 127.0.0.1:{port} speaks TLS: set security.protocol=SSL or SASL_SSL (--command-config)"
    )


def test_another_error_keeps_its_text() -> None:
    error = NodeConnectionError("cannot connect")
    error.__cause__ = ConnectionRefusedError()
    assert explain(error, "127.0.0.1", 1) == "cannot connect"
    assert not is_certain(error)


def test_a_certificate_in_words(tmp_path: Path) -> None:
    with listener(context_of(tmp_path, "127.0.0.1", "localhost")) as port:
        certificate = certificate_of("127.0.0.1", port)
    assert certificate is not None
    assert certificate_words(certificate).startswith(
        "CN=broker-0 for 127.0.0.1, localhost, issued by CN=Barnabas throw-away authority, until 20"
    )
    assert expiry_problem(certificate, SystemClock()) is None
    late = FakeClock(wall_ms=NOW_MS + 360 * DAY_MS)
    assert str(expiry_problem(certificate, late)).startswith("the certificate expires in ")
