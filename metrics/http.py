"""The HTTP page of a process: /metrics and /healthz, and room for more (`add_page`), such as /readyz.

A tiny server on a thread of its own: HTTP/1.1, GET and HEAD, one request a connection, one connection at a time. A
scraper is served in milliseconds, and what a scrape computes it computes here: no request of a client waits for it.

Rules
1. A visitor gets `PATIENCE_S` seconds for all it does; a slow one is cut off, so nobody keeps the page from others.
2. Nothing that happens here reaches the rest of the process; errors are logged and the thread goes on.

Threads: the server's own; `add_page` before `start`; `stop` by main.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.clock import Clock, SystemClock
from barnabas.common.threads import ServiceThread
from metrics.exposition import CONTENT_TYPE, Exposition

if TYPE_CHECKING:
    from metrics.registry import Registry

log = logging.getLogger("barnabas.metrics")

PATIENCE_S: Final = 5.0
_HEAD_BYTES_MAX: Final = 16 * 1024
_OFF: Final = -1


class Page(NamedTuple):
    """What an address answers."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: str = "200 OK"


def readiness(state: str, *, is_ready: bool) -> Page:
    """The page /readyz of a process that is in `state`."""
    return Page(f"{state.lower()}\n".encode(), status="200 OK" if is_ready else "503 Service Unavailable")


_NOT_FOUND: Final = Page(b"not found\n", status="404 Not Found")
_BAD_REQUEST: Final = Page(b"bad request\n", status="400 Bad Request")
_BAD_METHOD: Final = Page(b"only GET and HEAD\n", status="405 Method Not Allowed")
_BROKEN: Final = Page(b"internal error\n", status="500 Internal Server Error")


class MetricsServer:
    """Serves the registry on `host:port`; port 0 is a free one (see `port` after `start`), -1 serves nothing."""

    def __init__(self, registry: Registry, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        self._host = host  # fixed before start
        self._clock = clock or SystemClock()  # fixed before start
        self.port = port  # replaced by start, before the thread
        self._listener: socket.socket | None = None  # replaced by start and stop
        self._thread: ServiceThread | None = None  # owner: whoever starts and stops
        self._stopping = threading.Event()
        self._exposition = Exposition(registry)  # owner: the server's thread
        self._pages: dict[str, Callable[[], Page]] = {  # fixed before start
            "/metrics": lambda: Page(self._exposition.render(), CONTENT_TYPE),
            "/healthz": lambda: Page(b"ok\n"),
        }

    def add_page(self, path: str, page: Callable[[], Page]) -> None:
        """Answer GET `path` with what `page()` returns, on the server's thread."""
        assert self._thread is None, "pages are added before the start"
        self._pages[path] = page

    def start(self) -> None:
        """Listen; raise OSError if the address cannot be had."""
        if self.port == _OFF:
            return
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.create_server((self._host, self.port), family=family, backlog=16)
        self.port = self._listener.getsockname()[1]
        self._thread = ServiceThread("metrics-http", "metrics-http", self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the page; waits for the visitor that is being served."""
        self._stopping.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            if self._thread is not None:
                self._thread.join()
            listener.close()

    def _serve(self) -> None:
        listener = self._listener
        assert listener is not None
        while not self._stopping.is_set():
            try:
                visitor, _ = listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                log.warning("the metrics page cannot accept a connection: %s", error)
                continue
            with visitor:
                self._answer(visitor)

    def _answer(self, visitor: socket.socket) -> None:
        try:
            head = self._read_head(visitor)
            if head:
                method, page = self._find(head)
                visitor.sendall(_response(page, with_body=method != "HEAD"))
        except OSError as error:
            log.debug("a visitor of the metrics page left: %s", error)

    def _read_head(self, visitor: socket.socket) -> bytes:
        """Read up to the blank line; b"" for a visitor who sent nothing."""
        deadline_ms = self._clock.monotonic_ms() + int(PATIENCE_S * 1000)
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or len(head) > _HEAD_BYTES_MAX:
                raise TimeoutError("no whole request within the time and size it may have")
            visitor.settimeout(left_ms / 1000)
            received = visitor.recv(4096)
            if not received:
                return b""
            head += received
        visitor.settimeout(PATIENCE_S)
        return head

    def _find(self, head: bytes) -> tuple[str, Page]:
        line = head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(line) != 3 or not line[2].startswith("HTTP/"):
            return "", _BAD_REQUEST
        method, target, _ = line
        if method not in ("GET", "HEAD"):
            return method, _BAD_METHOD
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return method, _NOT_FOUND
        try:
            return method, page()
        except Exception as error:  # rule 2
            log.error("the page %s failed", target, exc_info=error)
            return method, _BROKEN


def _response(page: Page, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if with_body else b"")
