"""The command that shows how the ratios changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from benchmarks.history import changes, main
from benchmarks.report.runs import Run, append


def test_the_table_has_a_column_for_each_run(ended: Run) -> None:
    later = replace(ended, commit="abc1234", ratios={"produce 1 KiB": 1.1})
    console = Console(width=120)
    with console.capture() as captured:
        console.print(changes([ended, later]))
    lines = {line.split("│")[1].strip(): line for line in captured.get().splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in lines["produce 1 KiB"].split("│")[2:-1]] == [">= 1.1", "1.45", "1.1"]
    assert [cell.strip() for cell in lines["start, 1 broker"].split("│")[2:-1]] == ["<= 0.3", "0.1", ""]
    assert "abc1234" in captured.get()


def test_the_command_prints_the_tables_and_draws_the_picture(ended: Run, tmp_path: Path) -> None:
    path, picture = tmp_path / "history.jsonl", tmp_path / "ratios.svg"
    assert CliRunner().invoke(main, ["--history", str(path)]).exit_code == 1
    append(ended, path)
    result = CliRunner().invoke(main, ["--history", str(path), "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "produce 1 KiB" in result.output
    assert picture.read_bytes().startswith(b"<?xml")
