"""Tests benchmarks/load/peers.py: brokers of package registries, which are built or installed once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.bench import Bench, Measurement, admin_of, create_topic
from benchmarks.load import peers
from benchmarks.load.peers import commands
from benchmarks.report.figures import KFAKE, OURS, TANSU
from benchmarks.rounds import Results
from benchmarks.systems import SETTINGS, Kind, System, barnabas, peer, running
from benchmarks.workloads import MEASUREMENTS


@pytest.mark.parametrize("name", [pytest.param(KFAKE, marks=pytest.mark.needs("go")), TANSU])
def test_a_peer_serves_clients_until_it_is_stopped(name: str, tmp_path: Path) -> None:
    lines: list[str] = []
    found = commands([name], lines.append)
    if not found:
        pytest.skip(lines[0])  # Why no failure: Debian's own Go is older, and each needs its registry
    with running(peer(name, found[name])(tmp_path, Kind(), SETTINGS)) as system:
        create_topic(admin_of(system), "bench-1", 6)
        assert list(system.pids) == ["broker 0"]


def test_what_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "more\nERROR: No matching distribution found\n")

    monkeypatch.setattr(peers, "path_of", lambda _: None)
    monkeypatch.setattr(peers, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    lines: list[str] = []
    assert commands([KFAKE, TANSU], lines.append) == {}
    assert lines == [
        "kfake is left out: go is not installed",
        "Tansu is left out: ERROR: No matching distribution found",
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], [KFAKE]),
        (["--peer", TANSU], [TANSU]),
        (["--no-peers"], None),
        (["--systems", "barnabas"], []),
        (["--only", "restart"], None),
    ],
)
def test_kfake_has_a_column_unless_it_is_left_out(
    options: list[str], wanted: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def stop(names: list[str], _: object) -> dict[str, list[str]]:
        asked.append(list(names))
        return {}

    monkeypatch.setattr(peers, "commands", stop)
    for name in ("chosen", "kafka_runtime", "LoadGenerator"):
        monkeypatch.setattr(command, name, lambda *_: {})
    monkeypatch.setattr(command, "measure_all", lambda *_: [])
    monkeypatch.setattr(command, "own_limits", lambda *_: {})
    result = CliRunner().invoke(command.main, ["--quick", *options])
    assert result.exit_code == 0, result.output
    assert asked == ([] if wanted is None else [wanted])


def test_peers_are_measured_in_some_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, list[str]]] = []

    def measure(name: str, _: Measurement, __: Bench, systems: list[System], *___: object) -> Results:
        measured.append((name, [system.name for system in systems]))
        return {}

    monkeypatch.setattr(command, "measure", measure)
    rows = {name: MEASUREMENTS[name] for name in ("start", "restart")}
    makes = {OURS: barnabas(), KFAKE: peer(KFAKE, ["kfake"])}
    left = command.measure_all(cast(Bench, None), makes, rows, 1, tmp_path, lambda _: None, {})
    assert left == []
    assert measured == [("start", [OURS, KFAKE]), ("restart", [OURS])]
    assert all(row.kind == Kind() for row in MEASUREMENTS.values() if row.has_peers)
