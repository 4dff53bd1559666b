"""The control page: a new certificate, a body without end, and who may read and change.

test_closed_pages.py and tests/barnabas/cli/breaking/test_faults.py have what it serves.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from barnabas.cli.local.control_page import ControlPage
from barnabas.cluster.security.authority import Authority, write_private
from barnabas.common.pages.page_access import OPEN, Access
from barnabas.common.pages.page_client import ask

DAY_MS = 86_400_000
NOW_MS = 1_900_000_000_000
CREDENTIAL = "Bearer t0ken"


def shown(page: ControlPage) -> str:
    """The certificate that a visitor is shown now."""
    address = urlsplit(page.url)
    return ssl.get_server_certificate((str(address.hostname), int(address.port or 0)), timeout=30)


def test_a_renewed_certificate_is_used_by_the_next_visitor(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW_MS)
    path = authority.issue("supervisor.pem", "supervisor", ("127.0.0.1",))
    with ControlPage(tmp_path, CREDENTIAL, path) as page:
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
    with ControlPage(tmp_path, CREDENTIAL) as page:
        status, answer = page.respond("POST", path, b"[" * 100_000)
    assert (status, answer["error"][:20]) == (400, "the body is not JSON")


@pytest.mark.parametrize("is_readable", [True, False])
def test_changes_need_the_credential(tmp_path: Path, *, is_readable: bool) -> None:
    with ControlPage(tmp_path, CREDENTIAL, is_readable=is_readable) as page:
        port = int(page.url.rpartition(":")[2])

        def status(method: str, access: Access) -> int:
            return ask("127.0.0.1", port, method, "/nothing", access, timeout_s=30, body="{}").status

        assert status("GET", OPEN) == (404 if is_readable else 401)
        for method in ("POST", "DELETE"):
            assert (status(method, OPEN), status(method, Access("Bearer guess"))) == (401, 401)
        assert [status(method, Access(CREDENTIAL)) for method in ("GET", "POST", "DELETE")] == [404, 404, 404]
