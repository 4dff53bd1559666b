"""The HTTP pages of a process: /metrics and /healthz, and room for more (`add_page`, `add_view`): /readyz, /live.

What can be changed too, with POST and DELETE, is a resource (`add_resource`): /faults. There is none but in processes
that are there to be broken.

A tiny server on a thread of its own: HTTP/1.1, GET and HEAD, one request a connection. A scraper is served in
milliseconds, and what a scrape computes it computes here: no request of a client waits for it.

Rules
1. Visitors are served side by side as far as the network goes (browsers open connections that they use later), one at a
   time as far as work goes. Each gets `PATIENCE_S` seconds for all it does; there are at most `VISITORS_MAX`, the
   oldest makes room: nobody keeps the pages from others.
2. Nothing that happens here reaches the rest of the process; errors are logged and the thread goes on.
3. No foreign page in a browser asks anything here (`barnabas.common.page_guard`): each request is looked at before its
   page is. Only /healthz and /readyz, which tell nothing, answer under any name.

Threads: the server's own; `add_page`, `add_view` and `add_resource` before `start`; `stop` by main.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from barnabas.common.clock import Clock, SystemClock
from barnabas.common.page_addresses import page_addresses
from barnabas.common.page_guard import PageGuard
from barnabas.common.threads import ServiceThread
from barnabas.metrics import encoding
from barnabas.metrics.exposition import CONTENT_TYPE, Exposition
from barnabas.metrics.names import Dialect

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.metrics")

PATIENCE_S: Final = 5.0
VISITORS_MAX: Final = 64
_HEAD_BYTES_MAX: Final = 16 * 1024
_BODY_BYTES_MAX: Final = 1024 * 1024
_OFF: Final = -1
_LENGTH_DIGITS_MAX: Final = 10
_PROBES: Final = frozenset({"/healthz", "/readyz"})

#: What follows the question mark of an address: values by name, the last one where a name comes twice.
Query = Mapping[str, str]


class Page(NamedTuple):
    """What an address answers."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()  # besides those that every answer has
    may_be_gzipped: bool = False


class Asked(NamedTuple):
    """What a visitor asks of a resource: a method, the path below the resource's ("" for itself), a query, a body."""

    method: str
    path: str
    query: Query
    body: bytes


def readiness(state: str, *, is_ready: bool) -> Page:
    """The page /readyz of a process that is in `state`."""
    return Page(f"{state.lower()}\n".encode(), status="200 OK" if is_ready else "503 Service Unavailable")


def own_names(config: Any) -> list[str]:
    """The names under which the pages of the process with this config are asked."""
    listeners = [*config.listeners_parsed, *config.advertised_listeners_parsed]
    peers = page_addresses(config.barnabas_live_peers)
    return [
        socket.gethostname(),
        config.barnabas_metrics_host,
        *(listener.host or "" for listener in listeners),
        *(peer.address for peer in peers),
        *config.barnabas_metrics_hosts,
    ]


_NOT_FOUND: Final = Page(b"not found\n", status="404 Not Found")
_BAD_REQUEST: Final = Page(b"bad request\n", status="400 Bad Request")
_BAD_METHOD: Final = Page(b"only GET and HEAD\n", status="405 Method Not Allowed", headers=(("Allow", "GET, HEAD"),))
_RESOURCE_METHODS: Final = ("GET", "HEAD", "POST", "DELETE")
_BROKEN: Final = Page(b"internal error\n", status="500 Internal Server Error")


class _Visitor:
    """One connection: its request as far as it came, then the rest of its answer. Owner: the server's thread."""

    __slots__ = ("deadline_ms", "head", "rest", "sock")

    def __init__(self, sock: socket.socket, deadline_ms: int) -> None:
        self.sock = sock
        self.deadline_ms = deadline_ms
        self.head = b""
        self.rest: memoryview | None = None  # None while the request is read


class MetricsServer:
    """Serves the registry on `host:port`; port 0 is a free one (see `port` after `start`), -1 serves nothing."""

    def __init__(
        self,
        registry: Registry,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        names: Iterable[str] = (),
        dialect: str = Dialect.BOTH,
    ) -> None:
        self._host = host  # fixed before start
        self._guard = PageGuard(names)  # fixed before start
        self._clock = clock or SystemClock()  # fixed before start
        self.port = port  # replaced by start, before the thread
        self._listener: socket.socket | None = None  # replaced by start and stop
        self._thread: ServiceThread | None = None  # owner: whoever starts and stops
        self._stopping = threading.Event()
        self._exposition = Exposition(registry, Dialect(dialect))  # owner: the server's thread
        self._visitors: dict[_Visitor, None] = {}  # owner: the server's thread; oldest first
        self._pages: dict[str, Callable[[Query], Page]] = {  # fixed before start
            "/metrics": lambda _query: Page(self._exposition.render(), CONTENT_TYPE, may_be_gzipped=True),
            "/healthz": lambda _query: Page(b"ok\n"),
        }
        self._resources: dict[str, Callable[[Asked], Page]] = {}  # fixed before start

    def add_page(self, path: str, page: Callable[[], Page]) -> None:
        """Answer GET `path` with what `page()` returns, on the server's thread."""
        self.add_view(path, lambda _query: page())

    def add_view(self, path: str, view: Callable[[Query], Page]) -> None:
        """Answer GET `path` with what `view(query)` returns, on the server's thread."""
        assert self._thread is None, "pages are added before the start"
        self._pages[path] = view

    def add_resource(self, path: str, resource: Callable[[Asked], Page]) -> None:
        """Answer GET, HEAD, POST and DELETE of `path`, and of what is below it, with what `resource(asked)` returns."""
        assert self._thread is None, "resources are added before the start"
        self._resources[path] = resource

    def start(self) -> None:
        """Listen; raise OSError if the address cannot be had."""
        if self.port == _OFF:
            return
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.create_server((self._host, self.port), family=family, backlog=16)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._thread = ServiceThread("metrics-http", "metrics-http", self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the pages; waits for the page that is being computed."""
        self._stopping.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the selector
            if self._thread is not None:
                self._thread.join()
            listener.close()

    def _serve(self) -> None:
        listener = self._listener
        assert listener is not None
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for key, _ in selector.select(self._wait_s()):
                    if key.data is None:
                        self._accept(listener, selector)
                    elif key.data in self._visitors:
                        self._attend(key.data, selector)
                self._cut_off_slow(selector)
            for visitor in list(self._visitors):
                self._leave(visitor, selector)

    def _wait_s(self) -> float | None:
        """How long nobody's time is up."""
        oldest = next(iter(self._visitors), None)
        return None if oldest is None else max(0, oldest.deadline_ms - self._clock.monotonic_ms()) / 1000

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._stopping.is_set():
                log.warning("the metrics page cannot accept a connection: %s", error)
            return
        if len(self._visitors) >= VISITORS_MAX:
            self._leave(next(iter(self._visitors)), selector)
        sock.setblocking(False)
        visitor = _Visitor(sock, self._clock.monotonic_ms() + int(PATIENCE_S * 1000))
        self._visitors[visitor] = None
        selector.register(sock, selectors.EVENT_READ, visitor)

    def _attend(self, visitor: _Visitor, selector: selectors.BaseSelector) -> None:
        """Do for a visitor what can be done now."""
        try:
            if visitor.rest is None:
                visitor.rest = self._read(visitor)
                if visitor.rest is not None:
                    selector.modify(visitor.sock, selectors.EVENT_WRITE, visitor)
                return
            visitor.rest = visitor.rest[visitor.sock.send(visitor.rest) :]
            if not visitor.rest:
                self._leave(visitor, selector)
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("a visitor of the metrics page left: %s", error)
            self._leave(visitor, selector)
        except Exception:  # rule 2
            log.exception("a visitor of the metrics page could not be served")
            self._leave(visitor, selector)

    def _read(self, visitor: _Visitor) -> memoryview | None:
        """Read what is there; once that has a blank line, return the answer."""
        received = visitor.sock.recv(4096)
        visitor.head += received
        request = _whole_request(visitor.head)
        if request is not None:
            method, page = self._find(*request)
            page = _encoded(page, request[0])
            return memoryview(_response(page, with_body=method != "HEAD"))
        if not received:
            raise ConnectionResetError("no whole request")
        if len(visitor.head) > _HEAD_BYTES_MAX and not _end_of_head(visitor.head):
            raise ConnectionAbortedError("a request without an end")
        return None

    def _cut_off_slow(self, selector: selectors.BaseSelector) -> None:
        now_ms = self._clock.monotonic_ms()
        for visitor in [known for known in self._visitors if known.deadline_ms <= now_ms]:
            log.debug("a visitor of the metrics page was too slow")
            self._leave(visitor, selector)

    def _leave(self, visitor: _Visitor, selector: selectors.BaseSelector) -> None:
        del self._visitors[visitor]
        selector.unregister(visitor.sock)
        visitor.sock.close()

    def _find(self, head: bytes, body: bytes) -> tuple[str, Page]:
        line = head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(line) != 3 or not line[2].startswith("HTTP/"):
            return "", _BAD_REQUEST
        method, target, _ = line
        path, _, text = target.partition("?")
        root = next((r for r in self._resources if path == r or path.startswith(f"{r}/")), None)
        refusal = None
        if path not in _PROBES:
            hosts, origins = _values(head, b"host"), _values(head, b"origin")
            refusal = self._guard.refusal(hosts, origins, can_change=root is not None)
        if refusal is not None:
            log.info("refused %s %s: %s", method, path, refusal)
            return method, Page(f"{refusal}\n".encode(), status="403 Forbidden")
        try:
            query = dict(parse_qsl(text, keep_blank_values=True))
            if root is not None and method in _RESOURCE_METHODS:
                return method, self._resources[root](Asked(method, path[len(root) + 1 :], query, body))
            if method not in ("GET", "HEAD"):
                return method, _BAD_METHOD
            view = self._pages.get(path)
            return method, _NOT_FOUND if view is None else view(query)
        except Exception as error:  # rule 2
            log.error("the page %s failed", target, exc_info=error)
            return method, _BROKEN


def _encoded(page: Page, head: bytes) -> Page:
    """The page as its visitor wants it."""
    if not page.may_be_gzipped or len(page.body) < encoding.SMALL_BYTES or not encoding.accepts_gzip(head):
        return page
    return page._replace(body=encoding.gzipped(page.body), headers=(*page.headers, *encoding.HEADERS))


def _whole_request(received: bytes) -> tuple[bytes, bytes] | None:
    """The head and the body of a request; None while they are not all there. Raises OSError for a body too large."""
    body_at = _end_of_head(received)
    if not body_at:
        return None
    length = _body_length(received[:body_at])
    if length > _BODY_BYTES_MAX:
        raise ConnectionAbortedError(f"a body of {length} bytes")
    end = body_at + length
    return None if len(received) < end else (received[:body_at], received[body_at:end])


def _end_of_head(received: bytes) -> int:
    """Where the body begins; 0 while the blank line has not come."""
    ends = [at + len(line) for line in (b"\r\n\r\n", b"\n\n") if (at := received.find(line)) >= 0]
    return min(ends, default=0)


def _body_length(head: bytes) -> int:
    """How many bytes follow the blank line; 0 where the head does not say, or says no number."""
    for value in _values(head, b"content-length"):
        if value.isdecimal() and value.isascii():
            return int(value[:_LENGTH_DIGITS_MAX])  # Why cut: ten digits are too much already
    return 0


def _values(head: bytes, wanted: bytes) -> list[str]:
    """What the lines of a head say of one name, which is in small letters."""
    lines = (line.partition(b":") for line in head.split(b"\n")[1:])
    return [value.strip().decode("latin-1") for name, _, value in lines if name.strip().lower() == wanted]


def _response(page: Page, *, with_body: bool) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
    head = (
        f"HTTP/1.1 {page.status}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{more}"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if with_body else b"")
