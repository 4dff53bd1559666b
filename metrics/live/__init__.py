"""The live page: hand-written HTML, CSS and JavaScript modules, served as they are: nothing is built or from outside.

The page asks its own process for /live.json (`barnabas.common.live_shape`) twice a second. What clients chose (client
ids, names of topics) reaches it as text only, and its policy (`POLICY`) lets it load and ask nothing but its server.

    static/index.html             the frame; theme.js runs before it is painted
    static/app.js, poll.js        asks, shows; headline.js says it in a sentence
    static/picture.js, flow.js    the way of a request, and what moves on it
    static/waiting.js, threads.js, slow.js, partitions.js, groups.js, brokers.js    a panel each
    static/dom.js, format.js, families.js    what they share
"""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Final

from barnabas.metrics.http import Page

if TYPE_CHECKING:
    from barnabas.metrics.http import MetricsServer

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
)
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX: Final = "index.html"


def add_live_page(server: MetricsServer) -> None:
    """Have the server answer /live with the page, /live/... with what belongs to it, and / by sending to /live."""
    for file in (resources.files(__name__) / "static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in TYPES:
            path = "/live" if file.name == INDEX else f"/live/{file.name}"
            server.add_page(path, partial(_static, file.name, TYPES[suffix]))
    server.add_page("/", lambda: Page(b"see /live\n", status="302 Found", headers=(("Location", "/live"),)))


def _static(name: str, content_type: str) -> Page:
    """Read a file each time: it is asked for seldom, and a page that is being worked on is seen at once."""
    return Page((resources.files(__name__) / "static" / name).read_bytes(), content_type, headers=HEADERS)
