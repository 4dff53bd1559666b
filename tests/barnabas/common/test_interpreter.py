"""Which interpreter runs the processes of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common import interpreter


def test_this_one_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    assert interpreter.command("barnabas.broker.main") == [sys.executable, "-E", "-P", "-m", "barnabas.broker.main"]


def test_a_free_threaded_one_keeps_its_lock_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: True)
    expected = [sys.executable, "-X", "gil=0", "-E", "-P", "-m", "barnabas.broker.main"]
    assert interpreter.command("barnabas.broker.main") == expected


def test_another_one_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(interpreter.VARIABLE, "/opt/python3.13t -X gil=0")
    expected = ["/opt/python3.13t", "-X", "gil=0", "-E", "-P", "-m", "barnabas.controller.main"]
    assert interpreter.command("barnabas.controller.main") == expected


def test_the_caller_s_path_does_not_reach_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue", "broker", "crc32c"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the caller has a module of this name')")
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "usage" in _usage(tmp_path).lower()


def test_a_barnabas_that_was_found_by_pythonpath_is_found_by_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(interpreter.HOME)]))
    assert str(interpreter.HOME) in interpreter.command("barnabas.broker.main")[-1]
    _usage(tmp_path)


def _usage(directory: Path) -> str:
    """What a broker that is asked for help says, started from a directory; it must start for that."""
    command = [*interpreter.command("barnabas.broker.main"), "--help"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
