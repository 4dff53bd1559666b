"""Credentials for the pages."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from barnabas.common.pages.page_access import (
    CHANGE_FILE,
    FILE,
    OPEN,
    Access,
    access_of,
    credentials,
    of_directory,
    of_environment,
    of_text,
    write_access,
)


def decoded(credential: str) -> str:
    scheme, _, rest = credential.partition(" ")
    return rest if scheme == "Bearer" else base64.b64decode(rest).decode()


def test_a_token_is_a_bearers_and_a_browsers() -> None:
    assert [decoded(each) for each in credentials("abc123", None)] == ["abc123", "token:abc123"]


def test_users_have_names_and_passwords() -> None:
    assert [decoded(each) for each in credentials(None, "alice:s3:cret, bob:é,")] == ["alice:s3:cret", "bob:é"]
    assert credentials("", "") == ()


@pytest.mark.parametrize(
    ("token", "users"),
    [
        ("s3 cret", ""),
        ("s3cret\n", ""),
        ("s3crét", ""),
        ("", "s3cret"),
        ("", "alice:"),
        ("", ":s3cret"),
        ("=s3cret", ""),
    ],
)
def test_what_no_request_can_carry_is_refused_without_showing_it(token: str, users: str) -> None:
    with pytest.raises(ValueError, match=r"barnabas\.pages\.auth\.(token|users)") as caught:
        credentials(token, users)
    assert "s3cr" not in str(caught.value)


def test_a_text_has_a_token_or_a_user() -> None:
    assert of_text("abc\n") == "Bearer abc"
    assert decoded(of_text("alice:secret\n")) == "alice:secret"
    for text in ("", "a:", ":b", "two words"):
        with pytest.raises(ValueError, match=r"token"):
            of_text(text)


def test_commands_take_the_servers_variables() -> None:
    assert of_environment({}) == OPEN
    assert of_environment({"BARNABAS_PAGES_AUTH_TOKEN": "abc"}).credential == "Bearer abc"
    assert decoded(of_environment({"BARNABAS_PAGES_AUTH_USERS": "alice:secret,bob:x"}).credential) == "alice:secret"
    both = {"BARNABAS_PAGES_AUTH_TOKEN": "abc", "BARNABAS_PAGES_CHANGE_TOKEN": "def"}
    assert of_environment(both).credential == "Bearer abc", "another process's pages may be asked for"
    assert of_environment(both, can_change=True).credential == "Bearer def"
    ephemeral = {**both, "BARNABAS_FAULTS_TOKEN": "ghi"}
    assert of_environment(ephemeral).credential == "Bearer abc"
    assert of_environment(ephemeral, can_change=True).credential == "Bearer ghi"


def test_the_file_of_a_cluster_is_its_users_alone(tmp_path: Path) -> None:
    access = Access("Bearer s3cret", "https", "/ca.pem")
    (tmp_path / f"{FILE}.tmp").write_text("left by a crash")
    write_access(tmp_path, access)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert of_directory(tmp_path) == access
    write_access(tmp_path, Access("Bearer ch4nge"), "ch4nge")
    assert (tmp_path / CHANGE_FILE).read_text() == "ch4nge\n"
    assert stat.S_IMODE((tmp_path / CHANGE_FILE).stat().st_mode) == 0o600
    write_access(tmp_path, OPEN)
    assert list(tmp_path.iterdir()) == []
    assert of_directory(tmp_path) == OPEN


@pytest.mark.parametrize("content", ["", "[]", "1", '{"other": 1}'])
def test_a_broken_file_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert of_directory(tmp_path) == OPEN


def test_an_access_does_not_show_its_credential() -> None:
    assert "s3cret" not in repr(Access("Bearer s3cret"))


def test_pages_with_a_key_are_asked_over_tls() -> None:
    location = {"barnabas.pages.ssl.keystore.location": "/k.p12"}
    assert access_of({}, "Bearer x") == Access("Bearer x")
    assert access_of({"ssl.keystore.location": "/k"}) == OPEN
    assert access_of(location) == Access(scheme="https")
    trusted = {"barnabas.pages.ssl.truststore.type": "PEM", "barnabas.pages.ssl.truststore.location": "/ca.pem"}
    assert access_of({**location, **trusted}) == Access(scheme="https", ca="/ca.pem")
    assert access_of({"barnabas.pages.ssl.keystore.key": "PEM"}).scheme == "https"
