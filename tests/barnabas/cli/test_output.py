from __future__ import annotations

import json
import sys

import pytest

from barnabas.cli import output
from barnabas.cli.output import Row, progress, show

ROWS: list[Row] = [
    {"topic": "a\tb", "replicas": [1, 2], "leader": None, "is_up": True},
    {"topic": "[bold]", "replicas": [], "leader": 7, "is_up": False},
]
COLUMNS = ("topic", "replicas", "leader", "is_up")


def test_a_pipe_gets_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, as_json=False)
    lines = ["topic\treplicas\tleader\tis_up", "a\\tb\t1,2\t-\tyes", "[bold]\t\t7\tno"]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "none"])
def test_json_is_one_array(capsys: pytest.CaptureFixture[str], rows: list[Row]) -> None:
    show(iter(rows), COLUMNS, as_json=True)
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_a_terminal_gets_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(output, "TABLE_ROWS_MAX", 2)
    show(iter([ROWS[1]] * count), COLUMNS, as_json=False, title="topics")
    out = capsys.readouterr().out
    assert out.count("topics") == 1
    assert out.count("is up") == max(1, (count + 1) // 2)
    assert out.count("[bold]") == count


def test_a_progress_bar_appears_on_a_terminal_for_long_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("deleting", 20) as advance:
        advance(20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("deleting", 20, minimum=30) as advance:
        advance(20)
    assert capsys.readouterr().err == ""
    with progress("deleting", 20) as advance:
        advance(20)
    assert "deleting" in capsys.readouterr().err
