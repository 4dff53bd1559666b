"""`barnabas user`, against a real cluster. Also tests answers.py."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from barnabas.cli.security.user import user
from tests.barnabas.cli.conftest import Barnabas


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Give the next command this standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def users(barnabas: Barnabas, *names: str) -> list[list[str]]:
    """The rows of `barnabas user list`."""
    return barnabas("user", "list", *names).rows


def test_a_user_is_added_listed_and_deleted(
    barnabas: Barnabas, secured: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed(monkeypatch, "secret\n")
    assert barnabas("user", "add", "alice") == (0, "alice can log in by SCRAM-SHA-512\n", "")
    (tmp_path / "password").write_text("geheim\nmore\n")
    both = ["--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096"]
    added = barnabas("user", "add", "bob", "--password-file", str(tmp_path / "password"), *both)
    assert added.out == "bob can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert users(barnabas) == [
        ["alice", "SCRAM-SHA-512", "8192"],
        ["bob", "SCRAM-SHA-256", "4096"],
        ["bob", "SCRAM-SHA-512", "4096"],
    ]
    assert barnabas("user", "delete", "bob", "--mechanism", "SCRAM-SHA-256").out == "deleted bob\n"
    assert users(barnabas, "bob") == [["bob", "SCRAM-SHA-512", "4096"]]
    assert barnabas("user", "delete", "bob", "--mechanism", "SCRAM-SHA-256").err == (
        "barnabas: bob has no credential for SCRAM-SHA-256\n"
    )
    assert barnabas("user", "delete", "alice", "bob").out == "deleted alice, bob\n"
    assert users(barnabas) == []


def test_an_unknown_user_suggests_the_closest_one(
    barnabas: Barnabas, secured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "secret\n")
    barnabas("user", "add", "carol")
    for command in ("list", "delete"):
        assert barnabas("user", command, "carl") == (1, "", "barnabas: there is no user carl; did you mean carol?\n")


def test_a_refusal_names_the_user_and_the_code(
    barnabas: Barnabas, secured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "secret\n")
    refused = barnabas("user", "add", "")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "barnabas: Username must not be empty (UNACCEPTABLE_CREDENTIAL)\n"


def test_no_option_takes_a_password() -> None:
    for command in user.commands.values():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--password" not in options
