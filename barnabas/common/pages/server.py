"""The server under the pages: the standard library's `http.server`, with limits.

Rules
1. A visitor has `PATIENCE_S` seconds for its whole visit. There are at most `VISITORS_MAX`; one more closes the oldest.
   A closed visitor's thread may still wait for its turn to compute a page, so threads have a limit of their own,
   `THREADS_MAX`: beyond it new visitors are closed at once.
2. The head of a request has at most `HEAD_BYTES_MAX` bytes and 100 lines, its body `BODY_BYTES_MAX`. A larger request
   is not answered: its connection is closed.
3. With TLS, the handshake is part of the visit. A visitor's deadline also ends a handshake: the socket that is shut is
   another descriptor of the same connection.
4. A head that is not plain HTTP/1 (a line without a colon, a space before it) is a bad request. The guard of the pages
   must not read a head in another way than a browser or a proxy does.

Threads: `serve` runs on one thread, which accepts visitors and closes slow ones. Each visitor has a daemon thread,
which reads its request, calls `respond` and sends the answer.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, TCPServer
from typing import TYPE_CHECKING, Final, cast

from barnabas.common.clock import Clock
from barnabas.common.net import plain_host
from barnabas.common.pages.page import Page, Request
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("barnabas.metrics")

PATIENCE_S: Final = 5.0
VISITORS_MAX: Final = 64
THREADS_MAX: Final = 2 * VISITORS_MAX
HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 1024 * 1024
_LENGTH_DIGITS_MAX: Final = 10
_PAUSE_S: Final = 0.1  # after an error of accept(), such as no free descriptor
_REQUEST_LINE_WORDS: Final = 3


class _HeadReader(io.BufferedReader):
    """Reads a request, and raises OSError once its lines exceed the bound."""

    _left = HEAD_BYTES_MAX

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line of at most as many bytes as are left."""
        line = super().readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionAbortedError(f"the head of the request exceeds {HEAD_BYTES_MAX} bytes")
        return line


class _Visit(BaseHTTPRequestHandler):
    """One connection, with one request. Owner: the visitor's thread."""

    protocol_version = "HTTP/1.1"
    rbufsize = 0  # `_HeadReader` has the buffer
    timeout = PATIENCE_S  # of each call that reads or writes

    server: PageServer

    def __init__(
        self, stream: socket.socket, address: object, server: PageServer, visitor: socket.socket | None = None
    ) -> None:
        self._visitor = visitor or stream  # fixed before start; by which the server knows the connection
        super().__init__(stream, address, server)  # reads the request and answers

    def setup(self) -> None:
        """Make the streams of the connection."""
        super().setup()
        self.rfile = _HeadReader(cast(io.RawIOBase, self.rfile))

    def answer(self) -> None:
        """Answer the request whose head was read."""
        if len(self.requestline.split()) != _REQUEST_LINE_WORDS or not _is_plain(self):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        headers = self.headers
        request = Request(
            self.command,
            self.path,
            headers.get_all("Host", []),
            headers.get_all("Origin", []),
            ",".join(headers.get_all("Accept", [])),
            headers.get_all("Accept-Encoding", []),
            self._body(),
            headers.get_all("Authorization", []),
            plain_host(str(self.client_address[0])),
        )
        self._send(self.server.respond(request, lambda: self.server.is_visitor(self._visitor)))

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = do_PATCH = do_OPTIONS = answer  # noqa: N815 - http.server's names

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with an error that http.server found in the head of the request."""
        status = HTTPStatus(code)
        log.debug("a bad request for a page: %s", message or status.phrase)
        self._send(Page(f"{status.phrase.lower()}\n".encode(), status=f"{status.value} {status.phrase}"))

    def log_message(self, format: str, *args: object) -> None:
        """Log a line of http.server, such as a time-out."""
        log.debug(format, *args)

    def _body(self) -> bytes:
        """Return the body. Raises OSError if it is too large or not complete."""
        length = _body_length(self.headers.get_all("Content-Length", []))
        if length > BODY_BYTES_MAX:
            raise ConnectionAbortedError(f"the body of the request has {length} bytes or more")
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the body of the request is not complete")
        return body

    def _send(self, page: Page) -> None:
        self.close_connection = True
        more = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
        head = (
            f"HTTP/1.1 {page.status}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"{more}"
            "Connection: close\r\n\r\n"
        )
        self.wfile.write(head.encode("latin-1") + (b"" if self.command == "HEAD" else page.body))


class PageServer(TCPServer):
    """Accepts visitors from a listening socket and gives each a thread."""

    def __init__(
        self,
        listener: socket.socket,
        respond: Callable[[Request, Callable[[], bool]], Page],
        clock: Clock,
        stopping: threading.Event,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        # Why not TCPServer's: it would make a socket of its own.
        BaseServer.__init__(self, listener.getsockname(), _Visit)
        self.socket = listener  # fixed before start
        self.respond = respond  # fixed before start; its second argument tells whether the visitor is still there
        self._clock = clock  # fixed before start
        self._tls = tls  # fixed before start; the context of the next visitor
        self._stopping = stopping
        self._lock = threading.Lock()
        self._deadlines_ms: dict[socket.socket, int] = {}  # guarded by: _lock; of each visitor, oldest first
        self._thread_count = 0  # guarded by: _lock

    def serve(self) -> None:
        """Accept visitors until the listener is shut down; then close them all."""
        while not self._stopping.is_set():
            self.timeout = self._wait_s()
            self.handle_request()
            self._close_older(self._clock.monotonic_ms())
        with self._lock:
            for sock in self._deadlines_ms:
                _shut(sock)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; raise BlockingIOError if its visitor has left already."""
        # Why here: `handle_request` takes the timeout of a non-blocking socket, which is 0, for its own.
        self.socket.setblocking(False)
        try:
            return self.socket.accept()
        except BlockingIOError:
            raise
        except OSError as error:
            if not self._stopping.wait(_PAUSE_S):
                log.warning("the metrics page cannot accept a connection: %s", error)
            raise
        finally:
            self.socket.setblocking(True)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Start the thread of a visitor; close the oldest visitor if there are too many."""
        assert isinstance(request, socket.socket)
        sock = request
        with self._lock:
            if self._thread_count >= THREADS_MAX:
                raise ConnectionAbortedError(f"{THREADS_MAX} visitors wait for a page")
            if len(self._deadlines_ms) >= VISITORS_MAX:
                oldest = next(iter(self._deadlines_ms))
                del self._deadlines_ms[oldest]
                _shut(oldest)
            self._thread_count += 1
            self._deadlines_ms[sock] = self._clock.monotonic_ms() + int(PATIENCE_S * 1000)
        visit = lambda: self._visit(sock, client_address)  # noqa: E731
        try:
            ServiceThread("metrics-http-visitor", "metrics-visitor", visit, daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self._remove(sock)
            raise

    def handle_error(self, request: object, client_address: object) -> None:
        """Log that a visitor got no thread; its connection is closed."""
        error = sys.exception()
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        log.log(level, "a visitor of the metrics page could not be served: %s", error)

    def is_visitor(self, sock: socket.socket) -> bool:
        """Return whether the connection was not closed by this server in the meantime."""
        with self._lock:
            return sock in self._deadlines_ms

    def _visit(self, sock: socket.socket, client_address: object) -> None:
        """Serve a visitor, on its own thread."""
        try:
            if self._tls is None:
                _Visit(sock, client_address, self)
            else:
                with _over_tls(sock, self._tls()) as stream:
                    _Visit(stream, client_address, self, sock)
        except OSError as error:
            log.debug("a visitor of the metrics page left: %s", error)
        except Exception:  # a fault of one visit must not end the process
            log.exception("a visitor of the metrics page could not be served")
        self._remove(sock)
        self.shutdown_request(sock)

    def _remove(self, sock: socket.socket) -> None:
        with self._lock:
            self._thread_count -= 1
            self._deadlines_ms.pop(sock, None)

    def _wait_s(self) -> float | None:
        """Return the seconds until the oldest visitor's time is over."""
        with self._lock:
            oldest_ms = next(iter(self._deadlines_ms.values()), None)
        return None if oldest_ms is None else max(0, oldest_ms - self._clock.monotonic_ms()) / 1000

    def _close_older(self, now_ms: int) -> None:
        with self._lock:
            for sock in [known for known, deadline_ms in self._deadlines_ms.items() if deadline_ms <= now_ms]:
                log.debug("a visitor of the metrics page was too slow")
                del self._deadlines_ms[sock]
                _shut(sock)


def _over_tls(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands on a descriptor of its own (rule 3)."""
    own = sock.dup()
    try:
        own.settimeout(PATIENCE_S)
        return context.wrap_socket(own, server_side=True)
    except BaseException:
        own.close()
        raise


def _shut(sock: socket.socket) -> None:
    """End a connection. Its thread, which finds it at its end, closes the socket."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _is_plain(visit: _Visit) -> bool:
    """Return whether the head is as RFC 9112 wants it (rule 4)."""
    headers = visit.headers
    if headers.defects or any(name != name.strip() for name in headers):
        return False
    return not any("\n" in value or "\r" in value for value in headers.values())  # a folded line begins with a space


def _body_length(values: list[str]) -> int:
    """Return how many bytes follow the head; 0 where no header gives a number."""
    for value in map(str.strip, values):
        if value.isdecimal() and value.isascii():
            return int(value[:_LENGTH_DIGITS_MAX])  # Why cut: ten digits are too many already
    return 0
