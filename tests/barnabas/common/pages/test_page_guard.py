"""Which hosts and origins a page answers."""

from __future__ import annotations

import pytest

from barnabas.common.pages.page_guard import PageGuard, host_of

OWN = ["machine.example.org", "broker.example.org:9404", "0.0.0.0", ""]


@pytest.mark.parametrize(
    ("host", "reads", "changes"),
    [
        ("127.0.0.1:9404", True, True),
        ("192.168.1.5", True, True),
        ("[::1]:9404", True, True),
        ("[fe80::1%25eth0]:9404", True, True),
        ("localhost:9404", True, True),
        ("LOCALHOST", True, True),
        ("a.localhost:1", True, True),
        ("machine.example.org:1", True, True),
        ("Broker.Example.ORG.:9404", True, True),
        ("broker-0:9404", True, False),
        ("broker-0.brokers.ns.svc.cluster.local:9404", True, False),
        ("broker.corp.internal", True, False),
        ("evil.example:9404", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("localhost.evil.example", False, False),
        ("machine.example.org.evil.example", False, False),
        ("evil.example@127.0.0.1", False, False),
        ("127.1", False, False),
        ("local", True, False),
        ("", False, False),
        (":9404", False, False),
    ],
)
def test_hosts(host: str, reads: bool, changes: bool) -> None:
    guard = PageGuard(OWN)
    assert (guard.refusal([host], [], can_change=False) is None) == reads
    assert (guard.refusal([host], [], can_change=True) is None) == changes


def test_none_is_a_probe_and_two_are_a_trick() -> None:
    guard = PageGuard()
    assert guard.refusal([], [], can_change=True) is None
    assert guard.refusal(["localhost", "localhost"], [], can_change=False) == "more than one Host"


def test_a_star_allows_every_name_but_no_foreign_page() -> None:
    guard = PageGuard(["*"])
    assert guard.refusal(["pages.example"], [], can_change=True) is None
    assert guard.refusal(["pages.example"], ["http://evil.example"], can_change=True) is not None


@pytest.mark.parametrize(
    ("origin", "reads"),
    [
        ("http://localhost:9404", True),
        ("http://LOCALHOST:9404", True),
        ("https://localhost:9404", False),
        ("http://localhost:9405", False),
        ("http://evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_origins(origin: str, reads: bool) -> None:
    guard = PageGuard()
    assert (guard.refusal(["localhost:9404"], [origin], can_change=False) is None) == reads
    assert guard.refusal(["localhost:9404"], [origin], can_change=True) is not None


def test_the_name_of_a_host() -> None:
    assert [host_of(text) for text in ("a:1", " A. ", "[::1]:2", "::1", "a.b.:3")] == ["a", "a", "::1", "::1", "a.b"]
