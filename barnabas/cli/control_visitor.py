"""HTTP for the control page: one visitor, one request, with the standard library's server."""

from __future__ import annotations

import http.server
import json
import socket
from collections.abc import Callable
from typing import Any

from barnabas.common.page_guard import PageGuard

BODY_BYTES_MAX = 1 << 20

AnswerTo = Callable[[str, str, bytes], tuple[int, dict[str, Any]]]


def attend(visitor: socket.socket, address: Any, answer: AnswerTo) -> None:
    """Read a request, send its answer; raises OSError if the visitor goes away."""

    class Handler(http.server.BaseHTTPRequestHandler):
        """Asks `answer` whatever the method is."""

        def do_GET(self) -> None:
            # A page in somebody's browser is not to break a cluster.
            hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
            if PageGuard().refusal(hosts, origins, can_change=True) is not None:
                self.send_error(403)
                return
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                self.send_error(413)
                return
            status, values = answer(self.command, self.path, self.rfile.read(int(length)))
            body = json.dumps(values, ensure_ascii=False).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    Handler(visitor, address, None)  # type: ignore[arg-type]
