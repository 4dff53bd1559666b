"""The command as a whole, where no JVM is needed."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.systems import own_executable


def test_a_measurement_of_two_barnabas_ends_in_a_table(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    options = ["--quick", "--rounds", "1", "--systems", "barnabas", "--only", "start"]
    result = CliRunner().invoke(main, [*options, "--also", f"twin={own_executable()}", "--history", str(history)])
    assert result.exit_code == 0, result.output
    (header,) = [line for line in result.output.splitlines() if line.startswith("┃")]
    assert [cell.strip() for cell in header.strip("┃").split("┃")] == ["", "unit", "Barnabas", "twin", "target"]
    assert [line for line in result.output.splitlines() if "start, 1 broker" in line and line.startswith("│")]
    assert not history.exists()  # a quick run proves nothing


def test_another_barnabas_needs_a_name_and_an_executable() -> None:
    for also in (str(own_executable()), "twin=/none", f"Barnabas={own_executable()}"):
        result = CliRunner().invoke(main, ["--also", also])
        assert result.exit_code == 2
        assert "--also" in result.output
