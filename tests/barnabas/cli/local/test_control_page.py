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
from barnabas.common.pages.page_access import OPEN, Access, credentials_of
from barnabas.common.pages.page_client import ask

DAY_MS = 86_400_000
NOW_MS = 1_900_000_000_000
CLOSED = credentials_of("t0ken", None, None)
METHODS = ("GET", "POST", "DELETE")


def shown(page: ControlPage) -> str:
    """The certificate that a visitor is shown now."""
    address = urlsplit(page.url)
    return ssl.get_server_certificate((str(address.hostname), int(address.port or 0)), timeout=30)


def test_a_renewed_certificate_is_used_by_the_next_visitor(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW_MS)
    path = authority.issue("supervisor.pem", "supervisor", ("127.0.0.1",))
    with ControlPage(tmp_path, CLOSED, path) as page:
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
    with ControlPage(tmp_path, CLOSED) as page:
        status, answer = page.respond("POST", path, b"[" * 100_000)
    assert (status, answer["error"][:20]) == (400, "the body is not JSON")


@pytest.mark.parametrize(
    ("keys", "readers", "changers"),
    [
        ((None, None, "ch4nge"), ["", "ch4nge"], ["ch4nge"]),
        (("r3ad", None, "ch4nge"), ["r3ad", "ch4nge"], ["ch4nge"]),
        (("r3ad", None, None), ["r3ad"], ["r3ad"]),
    ],
)
def test_who_may_read_and_change(
    tmp_path: Path, keys: tuple[str | None, str | None, str | None], readers: list[str], changers: list[str]
) -> None:
    tokens = ["", "guess", "r3ad", "ch4nge"]
    with ControlPage(tmp_path, credentials_of(*keys)) as page:
        port = int(page.url.rpartition(":")[2])

        def status(method: str, token: str) -> int:
            access = Access(f"Bearer {token}") if token else OPEN
            return ask("127.0.0.1", port, method, "/nothing", access, timeout_s=30, body="{}").status

        allowed = {method: [token for token in tokens if status(method, token) == 404] for method in METHODS}
    is_open = "" in readers
    assert allowed == {"GET": tokens if is_open else readers, "POST": changers, "DELETE": changers}


def test_without_credentials_nothing_can_be_changed(tmp_path: Path) -> None:
    with ControlPage(tmp_path, credentials_of(None, None, None)) as page:
        port = int(page.url.rpartition(":")[2])
        answer = ask("127.0.0.1", port, "POST", "/faults", OPEN, timeout_s=30, body="{}")
        assert (answer.status, answer.fields()["error"][:28]) == (403, "nothing can be changed here:")
