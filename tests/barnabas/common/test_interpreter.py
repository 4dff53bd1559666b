"""Which interpreter runs the processes of a cluster."""

from __future__ import annotations

import sys

import pytest

from barnabas.common import interpreter


def test_this_one_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    assert interpreter.command("broker.main") == [sys.executable, "-P", "-m", "broker.main"]


def test_a_free_threaded_one_keeps_its_lock_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: True)
    assert interpreter.command("broker.main") == [sys.executable, "-X", "gil=0", "-P", "-m", "broker.main"]


def test_another_one_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(interpreter.VARIABLE, "/opt/python3.13t -X gil=0")
    expected = ["/opt/python3.13t", "-X", "gil=0", "-P", "-m", "controller.main"]
    assert interpreter.command("controller.main") == expected
