"""The page's server: what it answers, and that nobody can keep it from others or hurt it."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.common.page_guard import PageGuard
from barnabas.config.config import Config
from barnabas.metrics import catalogue as c
from barnabas.metrics import http
from barnabas.metrics.http import MetricsServer, Page, own_names
from barnabas.metrics.registry import Registry

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
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as visitor:
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
    assert b"kafka_server_kafkaserver_brokerstate 3\n" in body
    assert get(server, "/metrics?x=1")[1].startswith(b"# HELP")
    assert get(server, "/healthz")[1] == b"ok\n"
    assert get(server, "/hello") == (get(server, "/hello")[0], b"<p>hello")


def test_readiness() -> None:
    assert http.readiness("RUNNING", is_ready=True) == Page(b"running\n")
    assert http.readiness("STARTING", is_ready=False).status.startswith("503")


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
    ],
)
def test_refusals(server: MetricsServer, request_bytes: bytes, status: bytes) -> None:
    assert ask(server, request_bytes)[0].split()[1] == status
    assert get(server, "/healthz")[1] == b"ok\n"


def test_a_slow_visitor_and_one_that_sends_no_end_are_cut_off(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(http, "PATIENCE_S", 0.05)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.sendall(b"GET /met")
            assert slow.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as endless, pytest.raises(OSError):
        endless.sendall(b"X: y\r\n" * 4_000_000)
    assert get(server, "/healthz")[1] == b"ok\n"


def test_a_visitor_who_leaves_at_once(server: MetricsServer) -> None:
    socket.create_connection(("127.0.0.1", server.port)).close()
    assert get(server, "/healthz")[1] == b"ok\n"


def test_connections_that_ask_nothing_yet_keep_nobody_waiting(server: MetricsServer) -> None:
    """As browsers open them ahead of need."""
    with contextlib.ExitStack() as stack:
        for _ in range(http.VISITORS_MAX // 2):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
        assert get(server, "/healthz")[1] == b"ok\n"


def test_of_too_many_visitors_the_oldest_makes_room(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        visitors = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(http.VISITORS_MAX)
        ]
        assert get(server, "/healthz")[1] == b"ok\n"
        assert visitors[0].recv(1) == b""
        visitors[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert visitors[-1].recv(15) == b"HTTP/1.1 200 OK"


def test_a_large_page_reaches_a_visitor_who_reads_slowly_while_others_are_served(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        received = slow.recv(1000)
        assert get(server, "/healthz")[1] == b"ok\n"
        while chunk := slow.recv(65536):
            received += chunk
    assert received.endswith(b"\r\n\r\n" + LARGE)


def test_a_view_is_given_the_query(server: MetricsServer) -> None:
    assert get(server, "/echo?a=1&b=x%20y&a=2&empty=")[1] == b"[('a', '2'), ('b', 'x y'), ('empty', '')]"
    assert get(server, "/echo")[1] == b"[]"


def test_headers_of_a_page_and_of_a_refusal(server: MetricsServer) -> None:
    assert b"\r\nX-Mine: yes\r\n" in get(server, "/echo")[0]
    assert b"\r\nAllow: GET, HEAD\r\n" in get(server, "/hello", "POST")[0]


def test_minus_one_is_off() -> None:
    before = threading.active_count()
    server = MetricsServer(Registry(), port=-1)
    server.start()
    assert threading.active_count() == before
    server.stop()


def test_a_taken_port_is_an_error(server: MetricsServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsServer(Registry(), "127.0.0.1", server.port).start()


def test_resources_take_methods_paths_and_bodies() -> None:
    asked: list[http.Asked] = []

    def resource(request: http.Asked) -> Page:
        asked.append(request)
        return Page(b"created", status="201 Created")

    server = MetricsServer(Registry(), "127.0.0.1", 0)
    server.add_resource("/things", resource)
    server.start()
    try:
        body = b"x" * 10_000
        head, answer = ask(
            server, b"POST /things/7?a=b HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body + b"more"
        )
        assert (head.split(b"\r\n")[0], answer) == (b"HTTP/1.1 201 Created", b"created")
        assert asked.pop() == http.Asked("POST", "7", {"a": "b"}, body)
        assert get(server, "/things", "DELETE")[1] == b"created"
        assert asked.pop() == http.Asked("DELETE", "", {}, b"")
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
def test_a_foreign_page_is_told_nothing(path: str, headers: str) -> None:
    asked: list[http.Asked] = []
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


def test_prometheus_asks_by_the_name_of_a_service(server: MetricsServer) -> None:
    assert get(server, "/metrics", headers="Host: broker-0:9404")[0].startswith(b"HTTP/1.1 200")
    head, body = get(server, "/metrics", headers="Host: broker.example.org:9404")
    assert head.startswith(b"HTTP/1.1 403")
    assert body == b"this page is not known as 'broker.example.org'; barnabas.metrics.hosts names further hosts\n"


def test_the_names_of_a_process_are_its_own() -> None:
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


def test_a_length_of_very_many_digits_does_not_end_the_thread(server: MetricsServer) -> None:
    assert ask(server, b"GET /healthz HTTP/1.1\r\nContent-Length: " + b"9" * 9_000 + b"\r\n\r\n") == (b"", b"")
    assert get(server, "/healthz")[1] == b"ok\n"


def test_metrics_in_gzip_for_those_who_ask(server: MetricsServer) -> None:
    asked = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
    head, body = ask(server, asked)
    assert b"\r\nContent-Encoding: gzip\r\n" in head
    assert b"\r\nVary: Accept-Encoding\r\n" in head
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert b"kafka_server_kafkaserver_brokerstate 3\n" in gzip.decompress(body)
    head_only, nothing = ask(server, asked.replace(b"GET", b"HEAD"))
    assert nothing == b""
    assert b"Content-Encoding: gzip" in head_only


def test_other_and_small_pages_are_sent_as_they_are(server: MetricsServer) -> None:
    for path in (b"/large", b"/healthz"):
        head, _ = ask(server, b"GET " + path + b" HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")
        assert b"Content-Encoding" not in head
