"""A request to a page of a process, over HTTP or HTTPS.

Threads: any; each request has its own connection.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from barnabas.common.pages.page_access import Access

UNAUTHORIZED = 401


class Answer(NamedTuple):
    """The answer of a page."""

    status: int
    reason: str
    body: bytes

    def fields(self) -> dict[str, Any]:
        """Return the JSON object in the body; empty if there is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def ask(
    host: str,
    port: int,
    method: str,
    target: str,
    access: Access,
    *,
    timeout_s: float,
    body: str | None = None,
    bytes_max: int | None = None,
) -> Answer:
    """Send a request and return the answer, cut after `bytes_max`. Raises OSError and HTTPException."""
    connection = _connection(host, port, access, timeout_s)
    try:
        connection.request(method, target, body, {"Authorization": access.credential} if access.credential else {})
        response = connection.getresponse()
        return Answer(response.status, response.reason, response.read(bytes_max))
    finally:
        connection.close()


def _connection(host: str, port: int, access: Access, timeout_s: float) -> http.client.HTTPConnection:
    if access.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    import ssl  # Why here: few pages are asked for over TLS

    context = ssl.create_default_context(cafile=access.ca or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
