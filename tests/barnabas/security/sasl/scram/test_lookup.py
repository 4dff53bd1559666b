"""Credentials and tokens in the security metadata."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock, MovedClock
from barnabas.config.config import Config
from barnabas.security.image import SecurityImage
from barnabas.security.sasl.scram import lookup as module
from barnabas.security.sasl.scram.client import ScramClient
from barnabas.security.sasl.scram.formulas import Looks, make_credential
from barnabas.security.sasl.scram.lookup import KEPT_MAX, SecurityLookup
from barnabas.security.sasl.scram.server import ScramServer
from barnabas.security.tokens import token_password
from barnabas.security.values import ScramCredential, ScramKey, ScramMechanism, TokenInformation
from tests.barnabas.security.sasl.test_scram import log_in

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
CLOCK = FakeClock()


def lookup(image: SecurityImage, **settings: str) -> SecurityLookup:
    names = {name.replace("_", "."): text for name, text in settings.items()}
    return SecurityLookup(lambda: image, Config.from_properties({"node.id": "1", **names}), CLOCK)


def test_a_user_has_a_credential_for_each_mechanism() -> None:
    credential = make_credential(SHA_256, "x")
    found = lookup(SecurityImage(credentials={ScramKey("alice", SHA_256): credential}))
    assert found.credential(SHA_256, "alice") is credential
    assert found.credential(SHA_512, "alice") is None
    assert found.credential(SHA_256, "bob") is None


def test_the_looks_of_credentials_are_counted_once_for_each_change() -> None:
    credentials = {ScramKey(str(n), SHA_256): make_credential(SHA_256, "x", 4096 + n % 2) for n in range(5)}
    found = lookup(SecurityImage(credentials=credentials))
    assert found.looks(SHA_256) == {Looks(4096, 0, True): 3, Looks(4097, 0, True): 2}
    assert found.looks(SHA_256) is found.looks(SHA_256)
    assert found.looks(SHA_512) == {}


def test_a_token_is_a_login_until_it_expires() -> None:
    now_ms = CLOCK.wall_ms()
    token = TokenInformation("id", "User:alice", "User:alice", (), now_ms, now_ms + 9_000, now_ms + 5_000)
    found = lookup(SecurityImage(tokens={"id": token}), delegation_token_secret_key="s3cret")
    for mechanism in (SHA_256, SHA_512):
        server = ScramServer(mechanism, found, b"")
        log_in(ScramClient(mechanism, "id", token_password("s3cret", "id"), is_token=True), server)
        assert server.identity is not None
        assert server.identity.principal == "User:alice"
        assert server.identity.expires_ms == now_ms + 5_000
    assert found.token(SHA_256, "id") is not None
    assert found.token(SHA_256, "other") is None
    CLOCK.advance_ms(5_001)
    assert found.token(SHA_256, "id") is None


def test_the_session_of_a_token_ends_with_it_when_the_clock_of_tokens_is_ahead() -> None:
    moved = MovedClock(CLOCK, 604_800_000)
    expires_ms = moved.wall_ms() + 5_000
    token = TokenInformation("id", "User:alice", "User:alice", (), 0, expires_ms, expires_ms)
    config = Config.from_properties({"node.id": "1", "delegation.token.secret.key": "s3cret"})
    found = SecurityLookup(lambda: SecurityImage(tokens={"id": token}), config, moved).token(SHA_256, "id")
    assert found is not None
    assert found.expires_ms - CLOCK.wall_ms() == 5_000, "the clock of sessions"


def test_without_a_secret_there_are_no_tokens() -> None:
    token = TokenInformation("id", "User:alice", "User:alice", (), 0, 1 << 50, 1 << 50)
    assert lookup(SecurityImage(tokens={"id": token})).token(SHA_256, "id") is None


def test_a_key_is_derived_for_tokens_that_do_not_exist_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each, as for those that exist; they displace no credential of a token."""
    derived: list[str] = []

    def counted(mechanism: ScramMechanism, password: str, *_: object) -> ScramCredential:
        derived.append(password)
        return ScramCredential(b"", b"", b"", 4096)

    monkeypatch.setattr(module, "make_credential", counted)
    now_ms = CLOCK.wall_ms()
    token = TokenInformation("id", "User:alice", "User:alice", (), now_ms, now_ms + 9_000, now_ms + 5_000)
    found = lookup(SecurityImage(tokens={"id": token}), delegation_token_secret_key="s3cret")
    for token_id in ("id", "other", "id", "other"):
        found.token(SHA_256, token_id)
    assert derived == [token_password("s3cret", "id"), "other"]
    for number in range(KEPT_MAX + 1):
        found.token(SHA_256, str(number))
    derived.clear()
    found.token(SHA_256, "id")
    assert derived == []
