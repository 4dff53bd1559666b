"""Loaded: what is loaded at start, and what may replace it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from barnabas.config.errors import ConfigError
from barnabas.security.tls.loaded import MS_PER_DAY, ExpiryLog, Loaded, check_replacement, load, stamps_of
from barnabas.security.tls.settings import settings_of
from tests.support.certificates import Authority, Identity

AUTHORITY = Authority()
NOW_MS = SystemClock().wall_ms()


def loaded(
    identity: Identity | None,
    trusted: str | None = None,
    *,
    is_between_nodes: bool = False,
    now_ms: int = NOW_MS,
    **values: str,
) -> Loaded:
    originals = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    if identity is not None:
        originals |= {"ssl.keystore.key": identity.key_pem(), "ssl.keystore.certificate.chain": identity.chain_pem()}
    if trusted is not None:
        originals["ssl.truststore.certificates"] = trusted
    originals |= {f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}
    settings = settings_of(originals, "L")
    return load(settings, is_server=True, is_between_nodes=is_between_nodes, now_ms=now_ms)


def test_a_server_needs_a_key() -> None:
    with pytest.raises(ConfigError, match=r"TLS needs ssl\.keystore\.location"):
        loaded(None)


@pytest.mark.parametrize(
    ("from_days", "to_days", "message"), [(-9, -1, "'O=Barnabas,CN=x' expired on 20"), (1, 9, "is not valid before 20")]
)
def test_certificates_out_of_time(from_days: float, to_days: float, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(AUTHORITY.issue("x", from_days=from_days, to_days=to_days))
    assert message in str(caught.value)


def test_when_it_expires_and_whose_it_is() -> None:
    found = loaded(AUTHORITY.issue("x", to_days=10))
    expires_ms = found.expires_ms()
    assert expires_ms is not None
    assert 9.9 < (expires_ms - NOW_MS) / 86_400_000 < 10.1
    assert found.subject() == "O=Barnabas,CN=x"


def test_what_expires_is_logged_once_a_day(caplog: pytest.LogCaptureFixture) -> None:
    expiry = ExpiryLog()

    def lines(days: float, expires_ms: int = 40 * MS_PER_DAY) -> list[str]:
        caplog.clear()
        expiry.note("listener L", expires_ms, expires_ms - int(days * MS_PER_DAY))
        return caplog.messages

    expiry.note("listener L", None, 0)
    assert lines(30.1) == []
    assert lines(30) == ["the certificate of listener L expires in 30 days"]
    assert lines(30) == []
    assert lines(28.9) == ["the certificate of listener L expires in 28 days"]
    assert lines(28.9, 40 * MS_PER_DAY + 1) == ["the certificate of listener L expires in 28 days"], "a new one"
    assert lines(-0.1) == ["the certificate of listener L has expired: no client accepts it"]


def test_brokers_must_trust_each_other() -> None:
    own = AUTHORITY.issue("x")
    loaded(own, AUTHORITY.pem(), is_between_nodes=True, client_auth="required")
    with pytest.raises(ConfigError, match="not trusted by the trust store"):
        loaded(own, Authority("stranger").pem(), is_between_nodes=True)


@pytest.mark.parametrize(
    ("name", "names", "allowed", "message"),
    [
        ("x", ("localhost", "127.0.0.1", "more"), {}, ""),
        ("y", ("localhost", "127.0.0.1"), {}, "ssl.allow.dn.changes=true"),
        ("y", ("localhost", "127.0.0.1"), {"allow_dn_changes": "true"}, ""),
        ("x", ("127.0.0.1",), {}, "lacks the alternative names DNSName:localhost"),
        ("x", (), {"allow_san_changes": "true"}, ""),
    ],
)
def test_names_of_a_replacement(name: str, names: tuple[str, ...], allowed: dict[str, str], message: str) -> None:
    old, new = loaded(AUTHORITY.issue("x")), loaded(AUTHORITY.issue(name, names=names), **allowed)
    if not message:
        check_replacement(old, new, is_between_nodes=False)
        return
    with pytest.raises(ConfigError, match=message):
        check_replacement(old, new, is_between_nodes=False)


def test_trust_cannot_be_added() -> None:
    own = AUTHORITY.issue("x")
    with pytest.raises(ConfigError, match="trust store cannot be added"):
        check_replacement(loaded(own), loaded(own, AUTHORITY.pem()), is_between_nodes=False)


def test_brokers_that_would_fall_apart() -> None:
    other = Authority("other")
    old = loaded(AUTHORITY.issue("x"), AUTHORITY.pem())
    new = loaded(other.issue("x"), other.pem())
    both = loaded(AUTHORITY.issue("x"), AUTHORITY.pem() + other.pem())
    with pytest.raises(ConfigError, match="do not trust each other"):
        check_replacement(old, new, is_between_nodes=True)
    check_replacement(old, both, is_between_nodes=True)
    check_replacement(both, loaded(other.issue("x"), AUTHORITY.pem() + other.pem()), is_between_nodes=True)


def test_brokers_get_out_of_an_expired_certificate() -> None:
    expired = AUTHORITY.issue("x", from_days=-9, to_days=-1)
    old = loaded(expired, AUTHORITY.pem(), now_ms=NOW_MS - 5 * MS_PER_DAY, client_auth="required")
    new = loaded(AUTHORITY.issue("x"), AUTHORITY.pem(), client_auth="required")
    check_replacement(old, new, is_between_nodes=True)
    stranger = Authority("stranger")
    other = loaded(stranger.issue("x"), stranger.pem(), client_auth="required")
    with pytest.raises(ConfigError, match="do not trust each other"):
        check_replacement(old, other, is_between_nodes=True)
    without_own_trust = loaded(AUTHORITY.issue("x"), stranger.pem(), client_auth="required")
    with pytest.raises(ConfigError, match="not trusted by the trust store"):
        check_replacement(old, without_own_trust, is_between_nodes=True)


def test_stamps_tell_a_changed_file(tmp_path: Path) -> None:
    path = AUTHORITY.issue("x").write_pem(tmp_path / "k.pem")
    settings = settings_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}, "L")
    before = stamps_of(settings)
    assert stamps_of(settings) == before
    path.write_text("shorter")
    assert stamps_of(settings) != before
    path.unlink()
    assert stamps_of(settings) == {str(path): None}
