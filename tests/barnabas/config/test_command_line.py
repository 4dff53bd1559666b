"""The command line of the server processes: a file, and properties that override it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.config.command_line import Arguments, parse_arguments
from barnabas.config.errors import ConfigError


def test_options_stand_before_and_after_the_file() -> None:
    read = parse_arguments("broker", ["--override", "a.b = c=d", "file", "--override=e=", "--override", "e=2"])
    assert read == Arguments("file", {"a.b": "c=d", "e": "2"})
    assert parse_arguments("broker", ["--", "-file"]) == Arguments("-file", {})


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSIXLY_CORRECT", "1")
    assert parse_arguments("broker", ["file", "--override", "a=b"]) == Arguments("file", {"a": "b"})


def test_an_override_without_a_key_is_an_error_of_the_operator() -> None:
    with pytest.raises(ConfigError, match="--override wants KEY=VALUE, not 'a'"):
        parse_arguments("broker", ["file", "--override", "a"])


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ([], "one file is needed, not 0"),
        (["one", "two"], "one file is needed, not 2"),
        (["file", "--override"], "option --override requires argument"),
        (["file", "--overide", "a=b"], "option --overide not recognized"),
    ],
)
def test_wrong_usage_ends_with_the_usage(capsys: pytest.CaptureFixture[str], words: list[str], mistake: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments("broker", words)
    usage = "usage: barnabas broker [-h] [--override KEY=VALUE] file\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{usage}barnabas broker: error: {mistake}\n")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_ends_with_success(capsys: pytest.CaptureFixture[str], word: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments("controller", [word])
    assert not ended.value.code
    assert "Run one Barnabas controller." in capsys.readouterr().out


def test_argparse_and_locale_are_not_loaded() -> None:
    code = "import sys; from barnabas.config.command_line import parse_arguments as parse; parse('broker', ['file']); "
    code += "print(*{'argparse', 'locale'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []
