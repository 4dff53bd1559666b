"""The check of credentials: what is accepted, and how often one may try."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.pages.page_access import basic, credentials
from barnabas.common.pages.page_auth import ADDRESSES_MAX, TRIES_MAX, TRY_MS, PageAuth

WRONG = ["Bearer wrong"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def auth(clock: FakeClock) -> PageAuth:
    return PageAuth(credentials("t0ken", "alice:secret,bob:other"), clock)


def status(auth: PageAuth, headers: list[str], address: str = "10.0.0.1") -> str:
    page = auth.refusal(headers, address)
    return "200" if page is None else page.status[:3]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer t0ken",
        "bearer  t0ken ",
        basic("token", "t0ken"),
        basic("alice", "secret"),
        basic("bob", "other").replace("Basic", "BASIC"),
    ],
)
def test_right_credentials_are_accepted(auth: PageAuth, header: str) -> None:
    assert auth.refusal([header], "10.0.0.1") is None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        ["t0ken"],
        ["Digest t0ken"],
        ["Bearer"],
        ["Bearer T0ken"],
        ["Bearer t0ken x"],
        ["Basic t0ken"],
        [basic("alice", "other")],
        [basic("alice", "")],
        [f"Bearer {basic('alice', 'secret').partition(' ')[2]}"],
        ["Bearer t0ken", "Bearer t0ken"],
        ["Bearer \udcff\xff"],
        ["Bearer " + "x" * 100_000],
    ],
)
def test_others_get_the_challenge(auth: PageAuth, headers: list[str]) -> None:
    page = auth.refusal(headers, "10.0.0.1")
    assert page is not None
    assert page.status == "401 Unauthorized"
    assert [name for name, _ in page.headers] == ["WWW-Authenticate", "WWW-Authenticate"]


def test_tries_are_bounded_and_come_back(auth: PageAuth, clock: FakeClock) -> None:
    assert [status(auth, WRONG) for _ in range(TRIES_MAX)] == ["401"] * TRIES_MAX
    assert status(auth, WRONG) == "429"
    assert status(auth, ["Bearer t0ken"]) == "429"  # unseen: the answer must not tell which one is right
    clock.advance_ms(TRY_MS - 1)
    assert status(auth, ["Bearer t0ken"]) == "429"
    clock.advance_ms(1)
    assert status(auth, ["Bearer t0ken"]) == "200"
    assert [status(auth, WRONG), status(auth, WRONG)] == ["401", "429"]
    clock.advance_ms(100 * TRY_MS)
    assert [status(auth, WRONG) for _ in range(TRIES_MAX + 1)] == ["401"] * TRIES_MAX + ["429"]


def test_others_are_not_held_up(auth: PageAuth) -> None:
    for _ in range(TRIES_MAX + 1):
        status(auth, [basic("alice", "guess")])
    assert status(auth, [basic("alice", "secret")]) == "429"
    assert status(auth, ["Bearer t0ken"]) == "200"
    assert status(auth, [basic("alice", "secret")], "10.0.0.2") == "200"


def test_a_request_without_credentials_is_no_try(auth: PageAuth) -> None:
    for _ in range(3 * TRIES_MAX):
        status(auth, [])
        status(auth, ["Digest x"])
        status(auth, ["Bearer t0ken"])
    assert status(auth, ["Bearer t0ken"]) == "200"


def test_an_ipv6_host_has_one_bound(auth: PageAuth) -> None:
    for number in range(TRIES_MAX):
        status(auth, WRONG, f"2001:db8::{number:x}")
    assert status(auth, WRONG, "2001:db8::ffff") == "429"
    assert status(auth, WRONG, "2001:db8:0:1::1") == "401"
    assert status(auth, WRONG, "::ffff:10.0.0.1") == "401"
    assert status(auth, WRONG, "no address") == "401"


def test_known_addresses_are_bounded(auth: PageAuth) -> None:
    for number in range(ADDRESSES_MAX + 10):
        status(auth, WRONG, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(auth._tries) == ADDRESSES_MAX


def test_a_failed_try_is_logged_without_what_was_tried(auth: PageAuth, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        status(auth, [basic("alice", "s3cret")])
    assert caplog.messages == ["refused a request for a page from 10.0.0.1: wrong basic credentials"]
