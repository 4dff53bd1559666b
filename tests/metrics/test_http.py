"""The HTTP pages: answers, and limits that keep a visitor from blocking or hurting others.

Tests metrics/http.py, barnabas/common/pages/server.py and barnabas/common/pages/page.py.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas.common.clock import SystemClock
from barnabas.common.pages import server as server_module
from barnabas.common.pages.page import Page, ResourceRequest, readiness
from barnabas.common.pages.page_auth import Auths, PageAuth
from barnabas.common.pages.page_guard import PageGuard
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.metrics.http import MetricsServer, own_names
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c
from tests.support.waiting import eventually

PATIENCE_S = 60  # of visitors, on a busy machine too
LARGE = bytes(range(256)) * 40_000


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    registry = Registry()
    registry.gauge(c.BROKER_STATE, lambda: 3)
    registry.timer(c.LOG_FLUSH_TIME_MS)
    made = MetricsServer(registry, "127.0.0.1", 0)
    made.add_page("/hello", lambda: Page(b"<p>hello", "text/html"))
    made.add_page("/broken", broken_page)
    made.add_page("/large", lambda: Page(LARGE))
    made.add_view("/echo", lambda query: Page(str(sorted(query.items())).encode(), headers=(("X-Mine", "yes"),)))
    made.start()
    yield made
    made.stop()


def broken_page() -> Page:
    raise ValueError("no page today")


def ask(server: MetricsServer, request: bytes) -> tuple[bytes, bytes]:
    """Send bytes, return head and body of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as visitor:
        visitor.sendall(request)
        visitor.shutdown(socket.SHUT_WR)
        answer = b""
        while received := visitor.recv(65536):
            answer += received
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def get(server: MetricsServer, path: str, method: str = "GET", headers: str = "Host: localhost") -> tuple[bytes, bytes]:
    return ask(server, f"{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())


def test_pages(server: MetricsServer) -> None:
    head, body = get(server, "/metrics")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/plain; version=0.0.4" in head
    assert b"kafka_server_kafkaserver_brokerstate 3.0\n" in body
    assert get(server, "/metrics?x=1")[1].startswith(b"# HELP")
    assert get(server, "/healthz")[1] == b"ok\n"
    assert get(server, "/hello") == (get(server, "/hello")[0], b"<p>hello")


def test_readiness() -> None:
    assert readiness("RUNNING", is_ready=True) == Page(b"running\n")
    assert readiness("STARTING", is_ready=False).status.startswith("503")


def test_head_has_no_body(server: MetricsServer) -> None:
    head, body = get(server, "/healthz", "HEAD")
    assert (b"Content-Length: 3" in head, body) == (True, b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01 tls\r\n\r\n", b"400"),
        (b"GET /broken HTTP/1.0\n\n", b"500"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nno colon\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nX: y\r\n Origin: http://evil.example\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", b"431"),
        (b"BREW /healthz HTTP/1.1\r\n\r\n", b"501"),
    ],
)
def test_refusals(server: MetricsServer, request_bytes: bytes, status: bytes) -> None:
    assert ask(server, request_bytes)[0].split()[1] == status
    assert get(server, "/healthz")[1] == b"ok\n"


def test_slow_and_endless_requests_are_cut_off(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(server_module, "PATIENCE_S", 0.05)
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as slow:
            slow.sendall(b"GET /met")
            assert slow.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as endless, pytest.raises(OSError):
        endless.sendall(b"X: y\r\n" * 4_000_000)
    assert get(server, "/healthz")[1] == b"ok\n"


def test_a_visitor_that_leaves_at_once(server: MetricsServer) -> None:
    socket.create_connection(("127.0.0.1", server.port)).close()
    assert get(server, "/healthz")[1] == b"ok\n"


def test_silent_connections_do_not_block_others(server: MetricsServer) -> None:
    """As browsers open them ahead of need."""
    with contextlib.ExitStack() as stack:
        for _ in range(server_module.VISITORS_MAX // 2):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
        assert get(server, "/healthz")[1] == b"ok\n"


def test_one_visitor_too_many_closes_the_oldest(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        visitors = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            for _ in range(server_module.VISITORS_MAX)
        ]
        assert get(server, "/healthz")[1] == b"ok\n"
        assert visitors[0].recv(1) == b""
        visitors[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert visitors[-1].recv(15) == b"HTTP/1.1 200 OK"


def test_threads_that_wait_for_a_page_are_limited() -> None:
    may_go, calls = threading.Event(), []
    server = MetricsServer(Registry())
    server.add_page("/slow", lambda: (calls.append(1), may_go.wait(PATIENCE_S), Page(b"done"))[-1])
    server.start()
    try:
        before = set(threading.enumerate())
        with contextlib.ExitStack() as stack:
            visitors = []
            for _ in range(server_module.THREADS_MAX + 50):
                visitor = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
                with contextlib.suppress(OSError):  # it may be refused already
                    visitor.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
                visitors.append(visitor)
            with contextlib.suppress(OSError):
                assert visitors[-1].recv(1) == b"", "refused"
            assert len(set(threading.enumerate()) - before) <= server_module.THREADS_MAX
            may_go.set()
            eventually("all threads end", lambda: set(threading.enumerate()) <= before)
        assert len(calls) <= server_module.VISITORS_MAX + 1, "no page is computed for closed connections"
        assert get(server, "/healthz")[1] == b"ok\n"
    finally:
        may_go.set()
        server.stop()


def test_a_slow_reader_gets_a_large_page_while_others_are_served(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        received = slow.recv(1000)
        assert get(server, "/healthz")[1] == b"ok\n"
        while chunk := slow.recv(65536):
            received += chunk
    assert received.endswith(b"\r\n\r\n" + LARGE)


def test_a_view_gets_the_query(server: MetricsServer) -> None:
    assert get(server, "/echo?a=1&b=x%20y&a=2&empty=")[1] == b"[('a', '2'), ('b', 'x y'), ('empty', '')]"
    assert get(server, "/echo")[1] == b"[]"


def test_headers_of_pages_and_refusals(server: MetricsServer) -> None:
    assert b"\r\nX-Mine: yes\r\n" in get(server, "/echo")[0]
    assert b"\r\nAllow: GET, HEAD\r\n" in get(server, "/hello", "POST")[0]


def test_port_minus_one_is_off() -> None:
    before = set(threading.enumerate())
    server = MetricsServer(Registry(), port=-1)
    server.start()
    assert set(threading.enumerate()) <= before
    server.stop()


def test_a_taken_port_is_an_error(server: MetricsServer) -> None:
    with pytest.raises(OSError, match="the port is taken by another process"):
        MetricsServer(Registry(), "127.0.0.1", server.port).start()


def test_resources_take_methods_paths_and_bodies() -> None:
    asked: list[ResourceRequest] = []

    def resource(request: ResourceRequest) -> Page:
        asked.append(request)
        return Page(b"created", status="201 Created")

    server = MetricsServer(Registry(), "127.0.0.1", 0, auths=Auths(None, PageAuth(["Bearer t0ken"], SystemClock())))
    server.add_resource("/things", resource)
    server.start()
    token = "Host: localhost\r\nAuthorization: Bearer t0ken"
    try:
        body = b"x" * 10_000
        head, answer = ask(
            server,
            f"POST /things/7?a=b HTTP/1.1\r\n{token}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body + b"more",
        )
        assert (head.split(b"\r\n")[0], answer) == (b"HTTP/1.1 201 Created", b"created")
        assert asked.pop() == ResourceRequest("POST", "7", {"a": "b"}, body)
        assert get(server, "/things", "DELETE", token)[1] == b"created"
        assert asked.pop() == ResourceRequest("DELETE", "", {}, b"")
        assert get(server, "/things", "HEAD")[1] == b""
        assert asked.pop().method == "HEAD"
        assert get(server, "/things", "PATCH")[0].startswith(b"HTTP/1.1 405")
        assert get(server, "/thingsome")[0].startswith(b"HTTP/1.1 404")
        assert get(server, "/metrics", "POST")[0].startswith(b"HTTP/1.1 405")
        assert ask(server, b"POST /things HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n") == (b"", b""), "too large"
        assert ask(server, b"POST /things HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc") == (b"", b""), "half a body"
        assert asked == []
    finally:
        server.stop()


@pytest.mark.parametrize("headers", ["Host: evil.example", "Host: localhost\r\nOrigin: http://evil.example"])
@pytest.mark.parametrize("path", ["/metrics", "/hello", "/nothing", "/things", "/things/1"])
def test_a_foreign_page_gets_nothing(path: str, headers: str) -> None:
    asked: list[ResourceRequest] = []
    server = MetricsServer(Registry(), "127.0.0.1", 0)
    server.add_page("/hello", lambda: Page(b"hello"))
    server.add_resource("/things", lambda request: asked.append(request) or Page(b""))
    server.start()
    try:
        methods = ("GET", "HEAD", "POST", "DELETE") if path.startswith("/things") else ("GET", "HEAD")
        for method in methods:
            head, body = get(server, path, method, headers)
            assert head.startswith(b"HTTP/1.1 403")
            assert b"hello" not in body
        assert asked == []
        assert get(server, "/healthz", headers=headers)[1] == b"ok\n"
    finally:
        server.stop()


def test_prometheus_may_use_the_name_of_a_service(server: MetricsServer) -> None:
    assert get(server, "/metrics", headers="Host: broker-0:9404")[0].startswith(b"HTTP/1.1 200")
    head, body = get(server, "/metrics", headers="Host: broker.example.org:9404")
    assert head.startswith(b"HTTP/1.1 403")
    assert body == b"this page is not known as 'broker.example.org'; barnabas.metrics.hosts names further hosts\n"


def test_own_names() -> None:
    config = Config.from_properties(
        {
            "process.roles": "broker",
            "node.id": "0",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://inside.example.org:9092",
            "advertised.listeners": "PLAINTEXT://outside.example.org:9092",
            "barnabas.live.peers": "broker-1=peer.example.org:9404",
            "barnabas.metrics.hosts": "further.example.org,another.example.org",
        },
        "broker",
    )
    guard = PageGuard(own_names(config))
    for name in ("inside", "outside", "peer", "further", "another"):
        assert guard.refusal([f"{name}.example.org:1"], [], can_change=True) is None
    assert guard.refusal(["evil.example.org"], [], can_change=False) is not None
    assert guard.refusal([socket.gethostname()], [], can_change=True) is None


def test_a_content_length_with_many_digits(server: MetricsServer) -> None:
    assert ask(server, b"GET /healthz HTTP/1.1\r\nContent-Length: " + b"9" * 9_000 + b"\r\n\r\n") == (b"", b"")
    assert get(server, "/healthz")[1] == b"ok\n"


def test_metrics_in_gzip(server: MetricsServer) -> None:
    asked = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
    head, body = ask(server, asked)
    assert b"\r\nContent-Encoding: gzip\r\n" in head
    assert b"\r\nVary: Accept-Encoding\r\n" in head
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert b"kafka_server_kafkaserver_brokerstate 3.0\n" in gzip.decompress(body)
    head_only, nothing = ask(server, asked.replace(b"GET", b"HEAD"))
    assert nothing == b""
    assert b"Content-Encoding: gzip" in head_only


def test_the_accept_header_chooses_the_format(server: MetricsServer) -> None:
    accept = "Host: x\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    head, body = get(server, "/metrics", headers=accept)
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in head
    assert body.endswith(b"# EOF\n")
    head, body = get(server, "/metrics", headers="Host: x\r\nAccept: text/html")
    assert b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
    assert b"# EOF" not in body


def test_libraries_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys, urllib.request, barnabas.broker.main, barnabas.controller.main\n"
        "from barnabas.metrics.http import MetricsServer\n"
        "from barnabas.metrics.registry import Registry\n"
        "server = MetricsServer(Registry())\n"
        "server.start()\n"
        "loaded = lambda: [name for name in ('http.server', 'prometheus_client') if name in sys.modules]\n"
        "print(loaded())\n"
        "for path in ('healthz', 'metrics'):\n"
        "    urllib.request.urlopen(f'http://127.0.0.1:{server.port}/{path}').read()\n"
        "    print(loaded())\n"
        "server.stop()\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['http.server']", "['http.server', 'prometheus_client']"]


def test_other_and_small_pages_are_not_compressed(server: MetricsServer) -> None:
    for path in (b"/large", b"/healthz"):
        head, _ = ask(server, b"GET " + path + b" HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")
        assert b"Content-Encoding" not in head


# -- who may ask


@pytest.fixture
def closed() -> Iterator[MetricsServer]:
    """A server that asks for credentials."""
    config = Config.from_properties({"barnabas.pages.auth.token": "t0ken", "barnabas.metrics.port": "0"})
    made = MetricsServer.of_config(Registry(), config, SystemClock())
    made.add_page("/readyz", lambda: readiness("RUNNING", is_ready=True))
    made.add_resource("/faults", lambda request: Page(f"{request.method} done\n".encode()))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("path", ["/metrics", "/faults", "/faults/f1", "/nothing", "/healthz/x"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
def test_every_page_asks_for_credentials(closed: MetricsServer, method: str, path: str) -> None:
    head = get(closed, path, method)[0]
    assert head.startswith(b"HTTP/1.1 401 Unauthorized")
    assert b"WWW-Authenticate: Bearer" in head


def test_the_token_opens_pages_and_resources(closed: MetricsServer) -> None:
    token = "Host: localhost\r\nAuthorization: Bearer t0ken"
    assert get(closed, "/metrics", headers=token)[0].startswith(b"HTTP/1.1 200")
    assert get(closed, "/faults", "POST", token)[1] == b"POST done\n"


def test_the_token_does_not_help_a_foreign_page(closed: MetricsServer) -> None:
    foreign = "Host: localhost\r\nOrigin: http://evil.example\r\nAuthorization: Bearer t0ken"
    assert get(closed, "/faults", "POST", foreign)[0].startswith(b"HTTP/1.1 403")


def test_probes_need_no_credentials(closed: MetricsServer) -> None:
    assert get(closed, "/healthz")[1] == b"ok\n"
    assert get(closed, "/readyz")[1] == b"running\n"


@pytest.fixture
def make_changeable() -> Iterator[Callable[..., MetricsServer]]:
    """Starts servers with the resource /things and this configuration."""
    started = []

    def make(**settings: str) -> MetricsServer:
        properties = {f"barnabas.pages.{key.replace('_', '.')}": value for key, value in settings.items()}
        config = Config.from_properties({**properties, "barnabas.metrics.port": "0"})
        server = MetricsServer.of_config(Registry(), config, SystemClock())
        server.add_resource("/things", lambda request: Page(f"{request.method} done\n".encode()))
        server.start()
        started.append(server)
        return server

    yield make
    for server in started:
        server.stop()


def status(server: MetricsServer, method: str, token: str = "") -> int:
    headers = f"Host: localhost\r\nAuthorization: Bearer {token}" if token else "Host: localhost"
    return int(get(server, "/things/1", method, headers)[0].split()[1])


def test_nothing_changes_without_a_token(
    make_changeable: Callable[..., MetricsServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_changeable()
    assert "nothing can be changed at /things: set barnabas.pages.change.token" in caplog.text
    assert (status(server, "GET"), status(server, "HEAD")) == (200, 200)
    for method in ("POST", "DELETE"):
        assert (status(server, method), status(server, method, "guess")) == (403, 403)
    assert json.loads(get(server, "/things", "POST")[1])["error"].startswith("nothing can be changed here: set ")


def test_the_change_token_changes(
    make_changeable: Callable[..., MetricsServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_changeable(change_token="ch4nge")
    assert "nothing can be changed" not in caplog.text
    assert status(server, "GET") == 200, "reading needs none"
    for method in ("POST", "DELETE"):
        assert (status(server, method), status(server, method, "guess")) == (401, 401)
        assert status(server, method, "ch4nge") == 200
    assert status(server, "PATCH") == 405


def test_with_a_change_token_that_of_readers_changes_nothing(make_changeable: Callable[..., MetricsServer]) -> None:
    server = make_changeable(auth_token="r3ad", change_token="ch4nge")
    assert [status(server, "GET", token) for token in ("", "r3ad", "ch4nge")] == [401, 200, 200]
    assert [status(server, "POST", token) for token in ("", "r3ad", "ch4nge")] == [401, 401, 200]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"auth.token": ""}, "token and .users are empty"),
        ({"auth.users": " "}, "token and .users are empty"),
        ({"auth.token": "", "change.token": "ch4nge"}, "token and .users are empty"),
        ({"change.token": ""}, "pages.change.token is empty"),
        ({"auth.token": "r3ad", "change.token": ""}, "pages.change.token is empty"),
        ({"change.token": "s3 cret"}, "pages.change.token: a token has only"),
    ],
)
def test_credentials_that_no_request_can_carry_are_refused(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Config.from_properties({f"barnabas.pages.{key}": value for key, value in keys.items()})
    assert "s3 cret" not in str(caught.value)


def test_without_credentials_a_wide_address_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def warnings(host: str, auth: PageAuth | None = None) -> list[str]:
        caplog.clear()
        server = MetricsServer(Registry(), host, 0, auths=Auths(auth, auth))
        server.start()
        server.stop()
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    (line,) = warnings("0.0.0.0")
    assert "without authentication: every host that reaches them can read them. Set" in line
    assert warnings("127.0.0.1") == []
    (line,) = warnings("0.0.0.0", PageAuth(["Bearer x"], SystemClock()))
    assert "without TLS" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_all_interfaces_are_those_of_ipv6_too(host: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")  # Why: such kernels exist, and `listen` uses IPv4 there (test_net.py)
    seen = []
    server = MetricsServer(Registry(), host, 0)
    server.respond = lambda request, _is_visitor: Page(seen.append(request.address) or b"here")  # type: ignore[method-assign,func-returns-value]
    server.start()
    try:
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, server.port), timeout=10) as sock:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.makefile("rb").read().endswith(b"here")
    finally:
        server.stop()
    assert seen == ["127.0.0.1", "::1"]
