"""The history file, and the picture of ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from barnabas.common.clock import SystemClock
from benchmarks.figures import OURS, THEIRS, less, more
from benchmarks.history import Run, append, latest, load, main, moves
from benchmarks.plot import Mark, advantage, draw, mark
from benchmarks.report import Spread

SAMPLES = {
    "produce 1 KiB": {OURS: [150.123456, 140.0], THEIRS: [100.0, 100.0]},
    "start, 1 broker": {OURS: [0.25], THEIRS: [2.5]},
}


@pytest.fixture
def ended() -> Run:
    return Run.now(SystemClock(), 2, {OURS: "barnabas, version 1"}, {"produce 32x2": 90_000.4}, SAMPLES)


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


def test_one_sees_how_ratios_moved(ended: Run) -> None:
    later = replace(ended, commit="abc1234", ratios={"produce 1 KiB": 1.1})
    console = Console(width=120)
    with console.capture() as captured:
        console.print(moves([ended, later]))
    lines = {line.split("│")[1].strip(): line for line in captured.get().splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in lines["produce 1 KiB"].split("│")[2:-1]] == [">= 1.3", "1.45", "1.1"]
    assert [cell.strip() for cell in lines["start, 1 broker"].split("│")[2:-1]] == ["<= 0.3", "0.1", ""]
    assert "abc1234" in captured.get()


def test_the_command_shows_it_and_draws(ended: Run, tmp_path: Path) -> None:
    path, picture = tmp_path / "history.jsonl", tmp_path / "ratios.svg"
    assert CliRunner().invoke(main, ["--history", str(path)]).exit_code == 1
    append(ended, path)
    result = CliRunner().invoke(main, ["--history", str(path), "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "produce 1 KiB" in result.output
    assert picture.read_bytes().startswith(b"<?xml")


def test_right_is_better_whatever_the_direction() -> None:
    assert advantage(more("", ""), 1.25) == 1.25
    assert advantage(less("", ""), 0.25) == 4
    assert mark(more("", ""), Spread(1.5, 1.0, 2.0)) == Mark(1.5, 1.0, 2.0)
    assert mark(less("", ""), Spread(0.5, 0.25, 1.0)) == Mark(2.0, 1.0, 4.0)


def test_the_picture_says_the_same_of_the_same_samples(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw({**SAMPLES, "small produce 32x2": {OURS: [1], THEIRS: [2], "3.14t": [3]}}, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    draw(SAMPLES, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
