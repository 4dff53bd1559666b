"""Requests to pages, with credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.pages.page import Page
from barnabas.common.pages.page_access import OPEN, Access, credentials
from barnabas.common.pages.page_auth import Auths, PageAuth
from barnabas.common.pages.page_client import Answer, ask
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.registry import Registry


@pytest.fixture
def port() -> Iterator[int]:
    auth = PageAuth(credentials("t0ken", None), FakeClock())
    server = MetricsServer(Registry(), auths=Auths(auth, auth))
    server.add_page("/long", lambda: Page(b"x" * 100))
    server.start()
    yield server.port
    server.stop()


@pytest.mark.parametrize(
    ("body", "expected"), [(b'{"a": 1}', {"a": 1}), (b"[1]", {}), (b"<html>", {}), (b"", {}), (b"\xff", {})]
)
def test_the_fields_of_an_answer(body: bytes, expected: dict[str, int]) -> None:
    assert Answer(200, "OK", body).fields() == expected


def test_a_credential_is_sent(port: int) -> None:
    assert ask("127.0.0.1", port, "GET", "/long", OPEN, timeout_s=10).status == 401
    access = Access("Bearer t0ken")
    assert ask("127.0.0.1", port, "GET", "/long", access, timeout_s=10) == Answer(200, "OK", b"x" * 100)
    assert ask("127.0.0.1", port, "GET", "/long", access, timeout_s=10, bytes_max=7).body == b"x" * 7
    assert ask("127.0.0.1", port, "POST", "/long", access, timeout_s=10, body="{}").status == 405
