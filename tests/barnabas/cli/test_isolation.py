"""No command starts one of our processes with the caller's PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_only_the_module_that_isolates_processes_names_the_interpreter() -> None:
    users = [
        str(path.relative_to(ROOT))
        for package in ("barnabas", "broker", "controller", "metrics")
        for path in (ROOT / package).rglob("*.py")
        if "sys.executable" in path.read_text()
    ]
    assert set(users) == {"barnabas/common/processes/interpreter.py"}
