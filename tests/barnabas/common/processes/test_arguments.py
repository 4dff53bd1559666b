"""Secrets among the arguments of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common.processes import arguments

CODE = """
import sys
from pathlib import Path
from barnabas.common.processes.arguments import hide
assert hide(["alice:sécret", ""])
print(sys.argv[1:])
print(Path("/proc/self/cmdline").read_bytes().split(b"\\0")[3:-1])
"""


def test_a_secret_is_overwritten_and_nothing_else() -> None:
    given = ["--users", "alice:sécret", "--users=alice:sécret", "--port", "0"]
    command = [sys.executable, "-c", CODE, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    own, shown = done.stdout.splitlines()
    assert own == str(given)
    hidden = b"*" * len("alice:sécret".encode())
    assert shown == str([b"--users", hidden, b"--users=" + hidden, b"--port", b"0"])


def test_a_process_without_proc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("/proc/self/stat")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert not arguments.hide(["secret"])
    assert arguments.hide([""])


def test_without_a_secret_nothing_changes() -> None:
    before = Path("/proc/self/cmdline").read_bytes()
    assert arguments.hide([])
    assert Path("/proc/self/cmdline").read_bytes() == before
