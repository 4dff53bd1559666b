"""The live page: HTML, CSS and JavaScript modules, served as they are. There is no build step and no external file.

The page requests /live.json (`common/pages/live_shape.py`) from its own process twice a second. Text from clients
(client ids, names of topics) is inserted as text only, never as HTML. The page's policy (`POLICY`) lets it load and
request nothing but its own server's addresses.

    static/index.html             the frame; theme.js runs before it is painted
    static/app.js, poll.js        request and show the state; headline.js sums it up in a sentence
    static/picture.js, flow.js    the path of a request, and what moves on it
    static/waiting.js, threads.js, slow.js, partitions.js, groups.js, clients.js, brokers.js    a panel each
    static/dom.js, format.js, families.js    shared functions
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.common.pages.page import Page

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
#: Why not importlib.resources: it loads readers of archives, half a megabyte of each process.
FILES: Final = Path(__file__).parent / "static"


def add_live_page(server: MetricsServer) -> None:
    """Serve the page at /live and its files below /live/; redirect / to /live."""
    for file in FILES.iterdir():
        if file.suffix in TYPES:
            path = "/live" if file.name == INDEX else f"/live/{file.name}"
            server.add_page(path, partial(_static, file, TYPES[file.suffix]))
    server.add_page("/", lambda: Page(b"see /live\n", status="302 Found", headers=(("Location", "/live"),)))


def _static(file: Path, content_type: str) -> Page:
    """Return a file. It is read each time: requests are rare, and changes show at once."""
    return Page(file.read_bytes(), content_type, headers=HEADERS)
