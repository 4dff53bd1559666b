"""HTTP for the control page: one request of one connection, by the standard library's server."""

from __future__ import annotations

import http.server
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.common.pages.page import Page
from barnabas.common.pages.page_guard import PageGuard

BODY_BYTES_MAX = 1 << 20
LENGTH_DIGITS_MAX = 10

Respond = Callable[[str, str, bytes], tuple[int, dict[str, Any]]]  # method, target, body -> status, JSON values
Refusal = Callable[[str, Sequence[str], str], Page | None]  # method, Authorization headers, address -> an answer


def handle(connection: socket.socket, address: tuple[str, int], respond: Respond, refusal: Refusal) -> None:
    """Read a request and send its response; raises OSError if the client disconnects."""

    class Handler(http.server.BaseHTTPRequestHandler):
        """Calls `respond` for every method."""

        def do_GET(self) -> None:
            """Check the request and send the response."""
            # Why first: a connection that is closed before all of it was read loses the response on its way.
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal() or len(length) > LENGTH_DIGITS_MAX or int(length) > BODY_BYTES_MAX:
                self.send_error(413)
                return
            content = self.rfile.read(int(length))
            # A page in a user's browser must not be able to break a cluster.
            hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
            if PageGuard().refusal(hosts, origins, can_change=True) is not None:
                self.send_error(403)
                return
            denied = refusal(self.command, self.headers.get_all("Authorization", []), address[0])
            if denied is not None:
                self._deny(denied)
                return
            status, values = respond(self.command, self.path, content)
            body = json.dumps(values, ensure_ascii=False).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _deny(self, page: Page) -> None:
            self.send_response(int(page.status.split()[0]))
            for name, value in (*page.headers, ("Content-Length", str(len(page.body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    Handler(connection, address, None)  # type: ignore[arg-type]
