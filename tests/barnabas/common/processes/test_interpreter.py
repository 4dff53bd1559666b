"""The interpreter of a cluster's processes: interpreter.py and start.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common.processes import interpreter


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Barnabas is in site-packages."""
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "site-packages" / "barnabas").mkdir(parents=True)
    (tmp_path / "site-packages" / "barnabas" / "__init__.py").touch()
    monkeypatch.setattr(interpreter.site, "getsitepackages", lambda: [str(tmp_path / "site-packages")])


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not."""
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(interpreter.site, "getsitepackages", list)
    monkeypatch.setattr(interpreter.site, "ENABLE_USER_SITE", False)


@pytest.mark.usefixtures("installed")
def test_the_default_is_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    assert interpreter.command("barnabas.broker.main") == [sys.executable, "-E", "-P", "-m", "barnabas.broker.main"]


@pytest.mark.usefixtures("installed")
def test_a_free_threaded_interpreter_keeps_its_lock_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: True)
    expected = [sys.executable, "-X", "gil=0", "-E", "-P", "-m", "barnabas.broker.main"]
    assert interpreter.command("barnabas.broker.main") == expected


def test_barnabas_python_may_have_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(interpreter.VARIABLE, "/opt/python3.13t -X gil=0")
    expected = ["/opt/python3.13t", "-X", "gil=0", "-E", "-P", "-m", "barnabas.controller.main"]
    assert interpreter.command("barnabas.controller.main") == expected


def test_a_server_ignores_the_callers_pythonpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue", "broker", "crc32c"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the caller has a module of this name')")
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "usage" in _usage(tmp_path).lower()


@pytest.mark.usefixtures("installed")
def test_a_barnabas_on_pythonpath_is_used_by_its_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one is installed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(interpreter.HOME)]))
    assert interpreter.command("barnabas.broker.main")[-2:] == [str(interpreter.START), "barnabas.broker.main"]
    _usage(tmp_path)


@pytest.mark.usefixtures("not_installed")
def test_a_barnabas_outside_sys_path_is_found_by_its_servers(tmp_path: Path) -> None:
    """`pip install --target` and a line that changes sys.path, an archive that was unpacked, a checkout."""
    _usage(tmp_path)


@pytest.mark.usefixtures("not_installed")
def test_modules_beside_a_barnabas_are_searched_last(tmp_path: Path) -> None:
    (tmp_path / "barnabas").symlink_to(interpreter.HOME / "barnabas")
    for name in ("queue", "crc32c"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another module of this name')")
    start = tmp_path / "barnabas" / interpreter.START.relative_to(interpreter.HOME / "barnabas")
    done = subprocess.run([sys.executable, "-E", "-P", start, "barnabas.broker.main", "--help"], cwd=tmp_path)
    assert done.returncode == 0


def test_of_two_packages_the_callers_one_runs(tmp_path: Path) -> None:
    start = tmp_path / interpreter.START.relative_to(interpreter.HOME)
    start.parent.mkdir(parents=True)
    for directory in (start.parent, start.parent.parent, tmp_path / "barnabas"):
        (directory / "__init__.py").touch()
    start.write_text(interpreter.START.read_text())
    who = tmp_path / "barnabas" / "who.py"
    who.write_text("import sys; print(__name__, __file__, *sys.argv[1:])")
    command = [sys.executable, "-E", "-P", start, "barnabas.who", "a", "b"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == f"__main__ {who} a b\n"


def _usage(directory: Path) -> str:
    """The output of `broker --help` started from a directory; the broker's modules must load for that."""
    command = [*interpreter.command("barnabas.broker.main"), "--help"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
