"""The history file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.report.figures import OURS
from benchmarks.report.runs import Run, append, latest, load


def test_a_run_is_a_line(ended: Run, tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"
    append(ended, path)
    append(ended, path)
    assert len(path.read_text().splitlines()) == 2
    assert load(path) == [ended, ended]
    assert ended.ratios == {"produce 1 KiB": 1.451, "start, 1 broker": 0.1}
    assert ended.samples["produce 1 KiB"][OURS] == [150.1, 140.0]
    assert load(tmp_path / "none") == []


def test_the_last_samples_of_each_figure_count(ended: Run) -> None:
    later = replace(ended, samples={"start, 1 broker": {OURS: [9.0]}})
    assert latest([ended, later]) == {"produce 1 KiB": ended.samples["produce 1 KiB"], "start, 1 broker": {OURS: [9.0]}}
