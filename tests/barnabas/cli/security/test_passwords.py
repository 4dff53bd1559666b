"""Passwords come from a prompt, standard input or a file."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.security.passwords import read_password


class Terminal(io.StringIO):
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def prompt(text: str, **how: object) -> str:
        asked.append((text, how["hide_input"], how["confirmation_prompt"]))
        return "typed"

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(click, "prompt", prompt)
    assert read_password(None, "alice") == "typed"
    assert asked == [("Password of alice", True, True)]


@pytest.mark.parametrize("password_file", [None, "-"])
def test_the_first_line_of_standard_input(monkeypatch: pytest.MonkeyPatch, password_file: str | None) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" two words \r\nrest")))
    assert read_password(password_file, "alice") == " two words "


def test_the_first_line_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p\u00e4ss")
    assert read_password(str(tmp_path / "password"), "alice") == "p\u00e4ss"


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (b"\nx", "is empty"), (b"\xff", "is not UTF-8")])
def test_what_is_no_password_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "password").write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_password(str(tmp_path / "password"), "alice")
