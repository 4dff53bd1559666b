"""The HTTP pages of a process: /metrics, /healthz, and those that components add (/readyz, /live, /faults).

A page is read with GET and HEAD (`add_page`, `add_view`). A resource can also be changed, with POST and DELETE
(`add_resource`): /faults is one, and only processes started for fault injection have it.

The server is the standard library's `http.server` (`common/pages/server.py`), loaded by the first visitor: 1.5 MB and
some 20 ms, which a process without visitors saves. Each connection carries one request. Pages are computed on the
visitor's thread, so no client's request waits for one.

Rules
1. Pages are computed one at a time, under a lock; visitors send and receive side by side. The server bounds their
   number, their time and the size of their requests, so that none can keep the pages from others.
2. Errors of a page are logged and answered with status 500. They never reach the rest of the process.
3. No foreign page in a browser gets an answer (`common/pages/page_guard.py`): the guard checks each request before its
   page is computed.
4. With `barnabas.pages.auth.*`, each request must carry credentials (`common/pages/page_auth.py`). Without, a server
   that listens beyond the loopback interface logs a warning, and so does one that has credentials, but no TLS.
5. A request that changes something always must carry credentials: those of `barnabas.pages.change.token`, or without it
   of rule 4. Where there are none, nothing can be changed.
6. /healthz and /readyz answer under any name and to everybody, since they reveal nothing.

Threads: `add_page`, `add_view` and `add_resource` before `start`; `start` and `stop` by main; `respond` by the threads
of visitors.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from barnabas.common.clock import Clock, SystemClock
from barnabas.common.logs import LogLimit
from barnabas.common.net import is_loopback, listen
from barnabas.common.pages.page import Page, Query, Request, ResourceRequest
from barnabas.common.pages.page_access import CHANGE_KEY, TOKEN_KEY, credentials_of
from barnabas.common.pages.page_addresses import page_addresses
from barnabas.common.pages.page_auth import Auths
from barnabas.common.pages.page_guard import PageGuard
from barnabas.common.threads import ServiceThread
from barnabas.metrics.names import Dialect
from barnabas.metrics.page import encoding
from barnabas.metrics.page.exposition import Exposition

if TYPE_CHECKING:
    from barnabas.common.pages.server import PageServer
    from barnabas.config.config import Config
    from barnabas.metrics.page_tls import PageTls
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.metrics")

_OFF: Final = -1
_BACKLOG: Final = 128
_PROBES: Final = frozenset({"/healthz", "/readyz"})


def own_names(config: Config) -> list[str]:
    """Return the host names under which browsers and scrapers may ask the process with this config for its pages."""
    listeners = [*config.listeners_parsed, *config.advertised_listeners_parsed]
    peers = page_addresses(config.barnabas_live_peers)
    return [
        socket.gethostname(),
        config.barnabas_metrics_host,
        *(listener.host or "" for listener in listeners),
        *(peer.address for peer in peers),
        *config.barnabas_metrics_hosts,
    ]


def make_auths(config: Config, clock: Clock) -> Auths:
    """Return the checks of credentials that a config asks for (rules 4 and 5)."""
    keys = (config.barnabas_pages_auth_token, config.barnabas_pages_auth_users, config.barnabas_pages_change_token)
    return Auths.of(credentials_of(*(value and value.value for value in keys)), clock)


def _make_tls(config: Config, clock: Clock) -> PageTls | None:
    if not (config.barnabas_pages_ssl_keystore_location or config.barnabas_pages_ssl_keystore_key):
        return None
    from barnabas.metrics.page_tls import make_tls  # Why here: most pages have no TLS

    return make_tls(config, clock)


_NOT_FOUND: Final = Page(b"not found\n", status="404 Not Found")
_BAD_METHOD: Final = Page(b"only GET and HEAD\n", status="405 Method Not Allowed", headers=(("Allow", "GET, HEAD"),))
_OPEN: Final = Auths(None, None)
_READING: Final = ("GET", "HEAD")
_CHANGING: Final = ("POST", "DELETE")
_BROKEN: Final = Page(b"internal error\n", status="500 Internal Server Error")


class MetricsServer:
    """Serves the pages on `host:port`. Port 0 takes a free one (see `port` after `start`), -1 serves nothing."""

    def __init__(
        self,
        registry: Registry,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        names: Iterable[str] = (),
        dialect: str = Dialect.BOTH,
        auths: Auths = _OPEN,
        tls: PageTls | None = None,
    ) -> None:
        self._host = host  # fixed before start
        self._guard = PageGuard(names, "http" if tls is None else "https")  # fixed before start
        self._tls = tls  # fixed before start
        if tls is not None:
            tls.register(registry)
        self._auths = auths  # fixed before start
        self._clock = clock or SystemClock()  # fixed before start
        self._refused_lines = LogLimit(log, self._clock.monotonic_ns)  # fixed before start
        self.port = port  # replaced by start, before the thread
        self._listener: socket.socket | None = None  # replaced by start and stop
        self._thread: ServiceThread | None = None  # owner: the thread that starts and stops the server
        self._stopping = threading.Event()
        self._exposition = Exposition(registry, Dialect(dialect))  # guarded by: _page_lock
        self._page_lock = threading.Lock()  # held while a page is computed (rule 1)
        self._pages: dict[str, Callable[[Query], Page]] = {
            "/healthz": lambda _query: Page(b"ok\n")
        }  # fixed before start
        self._resources: dict[str, Callable[[ResourceRequest], Page]] = {}  # fixed before start

    @classmethod
    def of_config(cls, registry: Registry, config: Config, clock: Clock) -> MetricsServer:
        """Return the server of a process with this config."""
        return cls(
            registry,
            str(config.barnabas_metrics_host),
            int(config.barnabas_metrics_port),
            clock,
            own_names(config),
            str(config.barnabas_metrics_dialect),
            make_auths(config, clock),
            _make_tls(config, clock),
        )

    def add_page(self, path: str, page: Callable[[], Page]) -> None:
        """Answer GET `path` with what `page()` returns. Calls never overlap."""
        self.add_view(path, lambda _query: page())

    def add_view(self, path: str, view: Callable[[Query], Page]) -> None:
        """Answer GET `path` with what `view(query)` returns. Calls never overlap."""
        assert self._thread is None, "pages are added before the start"
        self._pages[path] = view

    def add_resource(self, path: str, resource: Callable[[ResourceRequest], Page]) -> None:
        """Answer GET, HEAD, POST and DELETE of `path`, and of the paths below it, with `resource(request)`."""
        assert self._thread is None, "resources are added before the start"
        self._resources[path] = resource

    def start(self) -> None:
        """Listen; raise OSError if the address cannot be used."""
        if self.port == _OFF:
            return
        listener = listen(self._host, self.port, _BACKLOG)
        listener.setblocking(True)
        self._listener = listener
        self.port = listener.getsockname()[1]
        if not is_loopback(self._host):
            self._warn_of_exposure()
        if self._resources and self._auths.of_changers is None:
            log.warning("nothing can be changed at %s: set %s", ", ".join(sorted(self._resources)), CHANGE_KEY)
        self._thread = ServiceThread("metrics-http", "metrics-http", lambda: self._serve(listener), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the pages; waits for the page that is being computed."""
        self._stopping.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            if self._thread is not None:
                self._thread.join()
            listener.close()
            with self._page_lock:
                pass

    def respond(self, request: Request, is_visitor: Callable[[], bool]) -> Page:
        """Return the answer to a request, compressed if the visitor accepts that.

        Raises OSError after `stop`, and if `is_visitor()` is false when its turn comes.
        """
        with self._page_lock:
            if self._stopping.is_set() or not is_visitor():
                raise ConnectionAbortedError("the connection was closed while it waited")
            page = self._page(request)
        if not page.may_be_gzipped or len(page.body) < encoding.SMALL_BYTES:
            return page
        if not encoding.accepts_gzip(request.accept_encodings):
            return page._replace(headers=(*page.headers, encoding.VARY))
        headers = (*page.headers, encoding.VARY, encoding.GZIPPED)
        return page._replace(body=encoding.gzipped(page.body), headers=headers)

    def _warn_of_exposure(self) -> None:
        """Log what others can do with the pages (rule 4)."""
        where = f"the pages listen on {self._host or 'all interfaces'} port {self.port}"
        if self._auths.of_readers is None and (self._tls is None or not self._tls.authenticates):
            log.warning(
                "%s without authentication: every host that reaches them can read them. Set %s, or keep "
                "barnabas.metrics.host=127.0.0.1", where, TOKEN_KEY,
            )  # fmt: skip
        elif self._tls is None:
            log.warning(
                "%s without TLS: credentials can be read on their way. Set barnabas.pages.ssl.keystore.location", where
            )

    def _serve(self, listener: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.select()
        if not self._stopping.is_set():
            self._server(listener).serve()

    def _server(self, listener: socket.socket) -> PageServer:
        from barnabas.common.pages.server import PageServer  # Why here: loaded by the first visitor

        return PageServer(
            listener, self.respond, self._clock, self._stopping, None if self._tls is None else self._tls.context
        )

    def _page(self, request: Request) -> Page:
        path, _, text = request.target.partition("?")
        root = next((r for r in self._resources if path == r or path.startswith(f"{r}/")), None)
        is_change = root is not None and request.method in _CHANGING
        if path not in _PROBES:
            denied = self._foreign(request, path, can_change=root is not None)
            denied = denied or self._auths.refusal(request.authorizations, request.address, is_change=is_change)
            if denied is not None:
                return denied
        try:
            query = dict(parse_qsl(text, keep_blank_values=True))
            if root is not None and (is_change or request.method in _READING):
                below = path[len(root) + 1 :]
                return self._resources[root](ResourceRequest(request.method, below, query, request.body))
            if request.method not in _READING:
                return _BAD_METHOD
            if path == "/metrics":
                content_type, body = self._exposition.page(request.accept)
                return Page(body, content_type, may_be_gzipped=True)
            view = self._pages.get(path)
            return _NOT_FOUND if view is None else view(query)
        except Exception as error:  # rule 2
            log.error("the page %s failed", request.target, exc_info=error)
            return _BROKEN

    def _foreign(self, request: Request, path: str, *, can_change: bool) -> Page | None:
        """Return the answer to a request that a foreign page may have made (rule 3)."""
        refusal = self._guard.refusal(request.hosts, request.origins, can_change=can_change)
        if refusal is None:
            return None
        if self._refused_lines.admits(logging.INFO, "requests for pages refused"):
            log.info("refused %s %s: %s", request.method, path, refusal)
        return Page(f"{refusal}\n".encode(), status="403 Forbidden")
