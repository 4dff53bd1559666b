"""The keys of a provider, kept current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.common.clock import FakeClock
from barnabas.security.sasl.oauthbearer.jwks import SOON_MS, Jwks, parse_keys
from barnabas.security.sasl.oauthbearer.web import Web, WebError
from tests.barnabas.security.sasl.oauthbearer.test_validator import JWKS
from tests.support.waiting import eventually

CLOCK = FakeClock()
READ = Web().read


def test_the_keys_for_signatures_are_used() -> None:
    assert [key.id for key in parse_keys(json.dumps(JWKS).encode())] == ["rsa", "ec", "ed"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"keys": 5}', b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}'])
def test_sets_without_a_key(body: bytes) -> None:
    with pytest.raises(WebError):
        parse_keys(body)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": JWKS["keys"][:1]}))
    keys = Jwks(path.as_uri(), CLOCK, READ)
    keys.read_file()
    keys.start()
    try:
        assert [key.id for key in keys.find("rsa")] == ["rsa"]
        assert keys.find("ec") == []
        path.write_text(json.dumps(JWKS))
        keys.refresh()
        assert [key.id for key in keys.find("ec")] == ["ec"]
        path.write_text("damaged")
        assert keys.refresh() < 1000
        assert [key.id for key in keys.find("ec")] == ["ec"]
    finally:
        keys.stop()


def test_keys_of_an_address_are_taken_over_until_it_answers() -> None:
    """A setting of logins changes at run time, while the provider does not answer."""
    url = "https://keys.example/jwks"

    def fail(_: str) -> bytes:
        raise WebError("no answer")

    before = Jwks(url, CLOCK, lambda _: json.dumps(JWKS).encode())
    before.refresh()
    keys, others = Jwks(url, CLOCK, fail), Jwks("https://others.example/jwks", CLOCK, fail)
    keys.take_over(before)
    others.take_over(before)
    keys.refresh()
    assert [key.id for key in keys.find("ec")] == ["ec"]
    assert others.find("ec") == [], "another provider's keys are no longer trusted"


def test_keys_in_a_file_are_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    before = Jwks(path.as_uri(), CLOCK, READ)
    before.read_file()
    path.write_text(json.dumps({"keys": JWKS["keys"][:1]}))
    keys = Jwks(path.as_uri(), CLOCK, READ)
    keys.read_file()
    keys.take_over(before)
    assert keys.find("ec") == []


def test_a_file_that_could_not_be_read_is_tried_until_it_can(tmp_path: Path) -> None:
    """Its time of change stays the same when only the rights to read it change, or the disk works again."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    errors = [WebError("Permission denied"), WebError("Permission denied")]

    def read(url: str) -> bytes:
        if errors:
            raise errors.pop()
        return READ(url)

    keys = Jwks(path.as_uri(), CLOCK, read)
    assert [keys.refresh() for _ in range(3)] == [100, 200, 1000]
    assert keys.find("rsa")


def test_a_file_that_is_missing_at_start(tmp_path: Path) -> None:
    with pytest.raises(WebError, match=r"cannot read file:.*No such file"):
        Jwks((tmp_path / "none").as_uri(), CLOCK, READ).read_file()


def test_an_unknown_key_id_is_looked_for_once_the_last_fetch_is_a_while_ago() -> None:
    clock = FakeClock()
    fetched: list[str] = []

    def read(url: str) -> bytes:
        fetched.append(url)
        return json.dumps(JWKS).encode()

    keys = Jwks("https://provider/keys", clock, read)
    keys.start()
    try:
        eventually("the keys are fetched", lambda: keys.find("rsa"))
        clock.advance_ms(60_000)
        assert keys.find("unknown") == []
        eventually("they are fetched again", lambda: len(fetched) >= 2)
    finally:
        keys.stop()


def test_tokens_do_not_delay_the_next_attempt_after_a_failure() -> None:
    """The clock stands still, so a pause of SOON_MS since the last attempt would take longer than this test waits."""
    answers = [WebError("down"), WebError("down")]

    def read(_url: str) -> bytes:
        keys.find("rsa")  # a client's token comes meanwhile
        if answers:
            raise answers.pop()
        return json.dumps(JWKS).encode()

    keys = Jwks("https://provider/keys", FakeClock(), read, retry_ms=1, retry_max_ms=1)
    keys.start()
    try:
        eventually("the keys are fetched", lambda: keys.find(None), timeout_ms=SOON_MS - 1000)
    finally:
        keys.stop()


def test_a_failure_is_retried_after_growing_pauses() -> None:
    def read(_url: str) -> bytes:
        raise WebError("down")

    keys = Jwks("https://provider/keys", CLOCK, read, retry_ms=100, retry_max_ms=1000)
    assert [keys.refresh() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
