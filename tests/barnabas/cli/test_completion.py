"""Shell completion: complete.py and completion.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.address import VARIABLE
from tests.barnabas.cli.conftest import Barnabas


@pytest.fixture
def environment(tmp_path: Path, bootstrap: str) -> dict[str, str]:
    """An environment with `barnabas` on PATH, whose default cluster is that of the tests."""
    program = tmp_path / "barnabas"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m barnabas.cli "$@"\n')
    program.chmod(0o755)
    return {**os.environ, VARIABLE: bootstrap, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def complete(environment: dict[str, str], *words: str) -> list[str]:
    """The completions that bash offers for the last of these words."""
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        'eval "$(barnabas completion bash)"; '
        f"COMP_WORDS=({' '.join(words) or ''}); COMP_CWORD={len(words) - 1}; "
        '_barnabas_completion barnabas; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_subcommands_and_options(environment: dict[str, str]) -> None:
    assert complete(environment, "barnabas", "con") == ["controller", "consume", "config"]
    assert complete(environment, "barnabas", "node", "p") == ["pause"]
    assert complete(environment, "barnabas", "up", "--b") == ["--brokers"]


def test_bash_completes_the_topics_of_the_cluster(environment: dict[str, str], topic: str) -> None:
    assert complete(environment, "barnabas", "consume", topic[:-3]) == [topic]


def test_bash_completes_groups_keys_and_drills(environment: dict[str, str], topic: str, barnabas: Barnabas) -> None:
    group = f"completed-{topic}"
    barnabas("group", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    assert complete(environment, "barnabas", "group", "describe", "completed-") == [group]
    assert complete(environment, "barnabas", "explain", "partition", topic) == [f"{topic}-0", f"{topic}-1"]
    assert complete(environment, "barnabas", "config", "unset", "--topic", topic, "retention.") == [
        "retention.bytes",
        "retention.ms",
    ]
    assert complete(environment, "barnabas", "config", "set", "--broker", "0", "num.io.") == ["num.io.threads="]
    assert complete(environment, "barnabas", "drill", "l") == ["list"]
    assert len(complete(environment, "barnabas", "drill", "''")) > 5


def test_bash_is_offered_no_group_whose_name_it_would_execute(
    environment: dict[str, str], topic: str, barnabas: Barnabas
) -> None:
    for end in ("fine", "$(touch x)", "a;ls", "*", "b c", "new\nline", "\x1b[31m"):
        barnabas("group", "reset-offsets", f"hostile-{end}", "--topic", topic, "--to-latest", "--execute")
    assert complete(environment, "barnabas", "group", "describe", "hostile-") == ["hostile-fine"]


def test_without_a_cluster_no_topics_are_offered(environment: dict[str, str]) -> None:
    environment[VARIABLE] = "127.0.0.1:1"
    assert complete(environment, "barnabas", "consume", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(barnabas: Barnabas, shell: str) -> None:
    outcome = barnabas("completion", shell)
    assert outcome.code == 0
    assert f"_BARNABAS_COMPLETE={shell}_complete" in outcome.out
