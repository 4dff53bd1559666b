"""`python -m benchmarks` as a whole, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main, measure_all
from benchmarks.bench import Bench, Measurement, Round, Samples
from benchmarks.report.figures import OURS
from benchmarks.rounds import Results
from benchmarks.systems import System, barnabas, own_executable


@pytest.mark.needs("gcc")
def test_a_measurement_of_two_barnabas_ends_in_a_table(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    options = ["--quick", "--rounds", "1", "--systems", "barnabas", "--only", "start"]
    result = CliRunner().invoke(main, [*options, "--also", f"second={own_executable()}", "--history", str(history)])
    assert result.exit_code == 0, result.output
    (header,) = [line for line in result.output.splitlines() if line.startswith("┃")]
    assert [cell.strip() for cell in header.strip("┃").split("┃")] == ["", "unit", "Barnabas", "second", "target"]
    assert [line for line in result.output.splitlines() if "start, 1 broker" in line and line.startswith("│")]
    assert not history.exists()  # quick runs are not kept


def test_another_barnabas_needs_a_name_and_an_executable() -> None:
    for also in (str(own_executable()), "second=/none", f"Barnabas={own_executable()}"):
        result = CliRunner().invoke(main, ["--also", also])
        assert result.exit_code == 2
        assert "--also" in result.output


def test_a_failed_measurement_does_not_stop_the_others(tmp_path: Path) -> None:
    @contextmanager
    def measure(_: Bench, system: System) -> Iterator[Round]:
        def once() -> Samples:
            if system.directory.name.startswith("1"):
                raise AssertionError("it broke")
            return {"start, 1 broker": 1.0}

        yield once

    lines: list[str] = []
    results: Results = {}
    row = Measurement(measure, starts_it=True)
    good, bad = barnabas(), barnabas()
    left = measure_all(cast(Bench, None), {"a": good}, {"fine": row}, 1, tmp_path, lines.append, results)
    assert (left, results) == ([], {"start, 1 broker": {OURS: [1.0]}})
    left = measure_all(cast(Bench, None), {"a": good, "b": bad}, {"it": row}, 1, tmp_path, lines.append, results)
    assert left == ["it"]
    assert [line for line in lines if "it broke" in line]
