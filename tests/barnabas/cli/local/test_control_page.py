"""The control page of a secured cluster takes a new certificate while it runs; a body without end is a mistake.

test_closed_pages.py and tests/barnabas/cli/breaking/test_faults.py have what it serves.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from barnabas.cli.local.control_page import ControlPage
from barnabas.cluster.security.authority import Authority, write_private

DAY_MS = 86_400_000
NOW_MS = 1_900_000_000_000


def shown(page: ControlPage) -> str:
    """The certificate that a visitor is shown now."""
    address = urlsplit(page.url)
    return ssl.get_server_certificate((str(address.hostname), int(address.port or 0)), timeout=30)


def test_a_renewed_certificate_is_used_by_the_next_visitor(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW_MS)
    path = authority.issue("supervisor.pem", "supervisor", ("127.0.0.1",))
    with ControlPage(tmp_path, certificate=path) as page:
        first = shown(page)
        assert shown(page) == first
        authority.issue_from(NOW_MS + 340 * DAY_MS)
        authority.issue("supervisor.pem", "supervisor", ("127.0.0.1",))
        second = shown(page)
        assert second != first
        assert second in path.read_text()
        write_private(path, b"half a file")
        assert shown(page) == second, "what cannot be used changes nothing"
        path.unlink()
        assert shown(page) == second


@pytest.mark.parametrize("path", ["/clock", "/faults", "/nodes/1"])
def test_a_body_that_is_too_deep_is_a_mistake(tmp_path: Path, path: str) -> None:
    with ControlPage(tmp_path) as page:
        status, answer = page.respond("POST", path, b"[" * 100_000)
    assert (status, answer["error"][:20]) == (400, "the body is not JSON")
