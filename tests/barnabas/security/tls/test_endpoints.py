"""TlsEndpoints: new certificates by settings and by files, and the log of what expires."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from barnabas.config.errors import ConfigError
from barnabas.security.tls.endpoints import TlsEndpoints
from tests.barnabas.security.tls.test_session import connect, pair
from tests.support.certificates import Authority

AUTHORITY = Authority()
DAY_S = 86_400
DAY_MS = 1000 * DAY_S


class Wall:
    """A wall clock that begins now."""

    def __init__(self) -> None:
        self.ms = SystemClock().wall_ms()

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return AUTHORITY.issue("one", to_days=100).write_pem(tmp_path / "key.pem")


def originals(path: Path, **more: str) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), **more}


def trusting(authority: Authority, path: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.write_pem(path))}


def replace(path: Path, text: str) -> None:
    """Replace a file as tools do, by a rename."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_listener_is_loaded_once(path: Path, wall: Wall) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    one = endpoints.listener("SSL", "SSL")
    assert endpoints.listener("ssl", "SSL") is one
    assert endpoints.peer("SSL", "SSL") is one
    assert one.server_context is not None
    assert 99 * DAY_S < endpoints.seconds_left("SSL") < 101 * DAY_S


def test_an_error_names_the_listener(path: Path, wall: Wall) -> None:
    path.unlink()
    with pytest.raises(ConfigError, match=r"listener SSL: ssl\.keystore\.location: cannot read .*: No such file"):
        TlsEndpoints(originals(path), wall).listener("SSL", "SSL")


def test_a_connection_needs_no_key(wall: Wall) -> None:
    endpoint = TlsEndpoints({}, wall).peer("SSL", "SSL")
    assert endpoint.loaded.server is None
    assert endpoint.client_context.check_hostname


def test_a_changed_file_is_used_once_it_can_be(path: Path, wall: Wall, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    endpoints.review()
    assert endpoint.server_context is old
    replace(path, "half a file")
    endpoints.review()
    endpoints.review()
    assert endpoint.server_context is old
    assert caplog.text.count("new certificates are not used: listener SSL: ") == 1
    replace(path, AUTHORITY.issue("one", to_days=300).pem())
    endpoints.review()
    assert endpoint.server_context is not old
    assert "listener SSL uses new certificates: O=Barnabas,CN=one" in caplog.text
    assert endpoints.seconds_left("SSL") > 299 * DAY_S


def test_a_file_that_could_not_be_read_is_used_once_its_rights_have_changed(
    path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    replace(path, AUTHORITY.issue("one").pem())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", _refuse)  # Why not the rights: they do not bind root
        endpoints.review()
    before_ns = os.stat(path).st_ctime_ns
    while os.stat(path).st_ctime_ns == before_ns:  # the kernel's clock ticks every few ms
        path.chmod(0o640)
    assert endpoint.server_context is old
    endpoints.review()
    assert endpoint.server_context is not old


def _refuse(_: Path) -> bytes:
    raise PermissionError(13, "Permission denied")


def test_settings_change_under_the_rules(path: Path, tmp_path: Path, wall: Wall) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    other = AUTHORITY.issue("other").write_pem(tmp_path / "other.pem")
    key = "listener.name.ssl.ssl.keystore.location"
    with pytest.raises(ConfigError, match="listener SSL: the distinguished name would change"):
        endpoints.check(originals(path, **{key: str(other)}))
    endpoints.reconfigure(originals(path, **{key: str(other)}))
    assert endpoint.server_context is old
    same = AUTHORITY.issue("one").write_pem(tmp_path / "same.pem")
    endpoints.check(originals(path, **{key: str(same)}))
    assert endpoint.server_context is old
    endpoints.reconfigure(originals(path, **{key: str(same)}))
    assert endpoint.server_context is not old


def test_what_was_set_before_a_restart_is_not_compared_with_the_file(path: Path, tmp_path: Path, wall: Wall) -> None:
    file = originals(path, **trusting(AUTHORITY, tmp_path / "old.pem"))
    endpoints = TlsEndpoints(file, wall, awaits_settings=True)
    endpoint = endpoints.listener("SSL", "SSL", is_between_nodes=True)
    authority = Authority("new")
    later = authority.issue("later").write_pem(tmp_path / "later.pem")
    changed = {**file, **originals(later), **trusting(authority, tmp_path / "new.pem")}
    with pytest.raises(ConfigError):
        endpoints.check(changed)
    endpoints.reconfigure(changed)
    assert endpoint.loaded.subject() == "O=Barnabas,CN=later"
    assert endpoint.loaded.trusted == (authority.certificate,)
    endpoints.settle()
    endpoints.reconfigure(file)
    assert endpoint.loaded.subject() == "O=Barnabas,CN=later", "from here on the rules hold"


def test_a_file_that_is_gone_is_not_needed_if_another_was_set_at_run_time(
    path: Path, tmp_path: Path, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    later = AUTHORITY.issue("later", to_days=50).write_pem(tmp_path / "later.pem")

    def made(**set_before: str) -> TlsEndpoints:
        return TlsEndpoints(originals(path), wall, awaits_settings=True, set_before=lambda: set_before)

    known = {"ssl.keystore.location": str(later)}
    assert made(**known).listener("SSL", "SSL").loaded.subject() == "O=Barnabas,CN=one", (
        "what the file says can be used"
    )
    path.unlink()
    endpoints = made(**known)
    endpoint = endpoints.listener("SSL", "SSL")
    assert endpoint.loaded.subject() == "O=Barnabas,CN=later"
    assert "it starts with what was set at run time" in caplog.text
    endpoints.reconfigure(originals(later))
    endpoints.settle()
    assert endpoint.loaded.subject() == "O=Barnabas,CN=later"
    for unusable in ({}, {"ssl.keystore.location": str(tmp_path / "nothing.pem")}):
        with pytest.raises(ConfigError, match=f"^listener SSL: .*cannot read {path}"):
            made(**unusable).listener("SSL", "SSL")


def test_what_nobody_foresaw_changes_nothing(
    path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    replace(path, AUTHORITY.issue("one").pem())
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.security.tls.endpoints.load", lambda *_, **__: 1 // 0)
        endpoints.reconfigure(originals(path))
        endpoints.review()
    assert endpoint.server_context is old
    assert caplog.text.count("ZeroDivisionError") == 1


def test_the_file_of_refused_settings_is_used_once_it_is_mended(path: Path, tmp_path: Path, wall: Wall) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    moved = tmp_path / "moved.pem"
    endpoints.reconfigure(originals(moved))
    endpoints.review()
    assert endpoint.server_context is old
    replace(path, AUTHORITY.issue("one").pem())
    endpoints.review()
    assert endpoint.server_context is old, "the former file is of no interest"
    AUTHORITY.issue("one").write_pem(moved)
    endpoints.review()
    assert endpoint.server_context is not old
    assert endpoint.loaded.settings.keystore_location == str(moved)


def test_refused_settings_can_be_taken_back(path: Path, tmp_path: Path, wall: Wall) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoint = endpoints.listener("SSL", "SSL")
    old = endpoint.server_context
    endpoints.reconfigure(originals(tmp_path / "moved.pem"))
    endpoints.reconfigure(originals(path, **{"ssl.protocol": "SSLv3"}))
    endpoints.reconfigure(originals(path))
    endpoints.review()
    assert endpoint.server_context is old
    replace(path, AUTHORITY.issue("one").pem())
    endpoints.review()
    assert endpoint.server_context is not old


def test_what_expires_is_logged_once_a_day(path: Path, wall: Wall, caplog: pytest.LogCaptureFixture) -> None:
    endpoints = TlsEndpoints(originals(path), wall)
    endpoints.listener("SSL", "SSL")
    assert caplog.text == ""
    wall.ms += 80 * DAY_MS
    endpoints.review()
    endpoints.review()
    wall.ms += DAY_MS
    endpoints.review()
    wall.ms += 30 * DAY_MS
    endpoints.review()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "the certificate of listener SSL expires in 19 days",
        "the certificate of listener SSL expires in 18 days",
        "the certificate of listener SSL has expired: no client accepts it",
    ]


def test_principals(path: Path, wall: Wall) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:.*CN=([a-z]*).*/$1/"}
    endpoint = TlsEndpoints(originals(path, **rules), wall).listener("SSL", "SSL")
    for identity, principal in ((None, "User:ANONYMOUS"), (pair_identity("alice"), "User:alice")):
        client, server = pair(client=identity, client_auth="requested")
        connect(client, server)
        assert endpoint.principal(server) == principal
    client, server = pair(client=pair_identity("7"), client_auth="requested")
    connect(client, server)
    assert endpoint.principal(server) == "User:"


def test_no_rule_for_a_name(path: Path, wall: Wall) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:CN=([a-z]*)/$1/"}
    endpoint = TlsEndpoints(originals(path, **rules), wall).listener("SSL", "SSL")
    client, server = pair(client=pair_identity("alice"), client_auth="requested")
    connect(client, server)
    with pytest.raises(ValueError, match="no rule"):
        endpoint.principal(server)


def pair_identity(name: str):
    from tests.barnabas.security.tls import test_session

    return test_session.AUTHORITY.issue(name)
