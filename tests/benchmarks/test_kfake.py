"""Tests benchmarks/load/kfake, the column of franz-go's kfake: a broker in Go that is built once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from benchmarks import __main__ as command
from benchmarks.bench import Bench, Measurement, admin_of, create_topic
from benchmarks.report.figures import KFAKE, OURS
from benchmarks.rounds import Results
from benchmarks.systems import SETTINGS, Kind, System, barnabas, kfake, running
from benchmarks.workloads import MEASUREMENTS


@pytest.mark.needs("go")
def test_kfake_serves_clients_until_it_is_stopped(tmp_path: Path) -> None:
    lines: list[str] = []
    found = command.kfake_command(lines.append)
    if not found:
        pytest.skip(lines[0])  # Why no failure: Debian's own Go is older, and the module needs its registry
    with running(kfake(found)(tmp_path, Kind(), SETTINGS)) as system:
        create_topic(admin_of(system), "bench-1", 6)
        assert list(system.pids) == ["broker 0"]


def test_kfake_is_left_out_without_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "path_of", lambda _: None)
    lines: list[str] = []
    assert command.kfake_command(lines.append) == []
    assert lines == ["kfake is left out: go is not installed"]


def test_kfake_is_measured_in_some_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, list[str]]] = []

    def measure(name: str, _: Measurement, __: Bench, systems: list[System], *___: object) -> Results:
        measured.append((name, [system.name for system in systems]))
        return {}

    monkeypatch.setattr(command, "measure", measure)
    rows = {name: MEASUREMENTS[name] for name in ("start", "restart")}
    makes = {OURS: barnabas(), KFAKE: kfake(["kfake"])}
    left = command.measure_all(cast(Bench, None), makes, rows, 1, tmp_path, lambda _: None, {})
    assert left == []
    assert measured == [("start", [OURS, KFAKE]), ("restart", [OURS])]
    assert all(row.kind == Kind() for row in MEASUREMENTS.values() if row.has_kfake)
