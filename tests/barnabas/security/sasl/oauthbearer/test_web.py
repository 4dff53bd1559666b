"""Addresses of a provider, with TLS by the options of a JAAS entry."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.oauthbearer.web import Web, WebError, check_url, tls_of
from barnabas.security.sasl.scopes import Scope
from tests.support.certificates import Authority

SCOPE = Scope(Config.from_properties({"node.id": "1"}), "OUTSIDE", "OAUTHBEARER")
NOW_MS = SystemClock().wall_ms()


class Provider(BaseHTTPRequestHandler):
    """Answers what the path asks for."""

    over = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/silent":
            Provider.over.wait()
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(b"x" * (2 << 20) if self.path == "/large" else b"keys")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.headers['Authorization']} {body.decode()}".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def serve(context: ssl.SSLContext | None = None) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"{'http' if context is None else 'https'}://localhost:{server.server_port}"
    Provider.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    yield from serve()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with an authority's certificate, and a server's."""
    directory = tmp_path_factory.mktemp("provider")
    authority = Authority()
    authority.write_pem(directory / "ca.pem")
    authority.issue("provider", names=("localhost",)).write_pem(directory / "provider.pem")
    Authority("stranger").write_pem(directory / "other.pem")
    return directory


@pytest.fixture(scope="module")
def secure(directory: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "provider.pem")
    yield from serve(context)


def trusting(path: Path) -> Web:
    options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path), "scope": "other options"}
    return Web(tls_of(SCOPE, options, NOW_MS))


@pytest.mark.parametrize("url", ["http://example.org/k", "ftp://h/k", "/k", ""])
def test_addresses_that_are_not_used(url: str) -> None:
    with pytest.raises(WebError):
        check_url(url)


def test_answers(provider: str) -> None:
    assert Web().read(f"{provider}/keys") == b"keys"
    assert Web().read(f"{provider}/token", b"a=b", {"Authorization": "Basic x"}) == b"Basic x a=b"
    with pytest.raises(WebError, match="more than"):
        Web().read(f"{provider}/large")
    with pytest.raises(WebError, match="302"):
        Web().read(f"{provider}/moved")


def test_a_provider_that_is_silent(provider: str) -> None:
    with pytest.raises(WebError, match="timed out"):
        Web(read_ms=50).read(f"{provider}/silent")


def test_the_trust_store_of_the_jaas_entry(secure: str, directory: Path) -> None:
    assert trusting(directory / "ca.pem").read(f"{secure}/keys") == b"keys"
    for web in (trusting(directory / "other.pem"), Web()):
        with pytest.raises(WebError, match="certificate verify failed"):
            web.read(f"{secure}/keys")
    with pytest.raises(WebError, match="certificate"):
        trusting(directory / "ca.pem").read(f"{secure.replace('localhost', '127.0.0.1')}/keys")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl.truststore.location": "/none", "ssl.truststore.type": "PEM"}, "/none"),
        ({"ssl.truststore.type": "DER"}, "ssl.truststore.type=DER is not supported"),
        ({"ssl.engine.factory.class": "x"}, "the option ssl.engine.factory.class has no effect"),
        ({"ssl.truststore.locaton": "x"}, "the option ssl.truststore.locaton has no effect"),
    ],
)
def test_options_that_cannot_work(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        tls_of(SCOPE, options, NOW_MS)
    assert str(caught.value).startswith("listener.name.outside.oauthbearer.sasl.jaas.config: ")


def test_no_option_leaves_the_systems_authorities() -> None:
    assert tls_of(SCOPE, {"clientId": "a"}, NOW_MS) is None
