"""No command starts a process of ours that listens to the caller's PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_process_is_started_by_the_one_module_that_isolates() -> None:
    users = [
        str(path.relative_to(ROOT))
        for package in ("barnabas", "broker", "controller", "metrics")
        for path in (ROOT / package).rglob("*.py")
        if "sys.executable" in path.read_text()
    ]
    assert set(users) == {"barnabas/common/interpreter.py"}
