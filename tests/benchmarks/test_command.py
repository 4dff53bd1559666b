"""The command as a whole, where no JVM is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from click.testing import CliRunner

from benchmarks.__main__ import main, measure_all
from benchmarks.bench import Bench, Measurement, Round, Samples
from benchmarks.figures import OURS
from benchmarks.rounds import Results
from benchmarks.systems import System, barnabas, own_executable


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


def test_a_measurement_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    @contextmanager
    def measure(_: Bench, system: System) -> Iterator[Round]:
        def once() -> Samples:
            if system.directory.name.startswith("1"):
                raise AssertionError("no luck")
            return {"start, 1 broker": 1.0}

        yield once

    told: list[str] = []
    results: Results = {}
    row = Measurement(measure, starts_it=True)
    good, bad = barnabas(), barnabas()
    left = measure_all(cast(Bench, None), {"a": good}, {"fine": row}, 1, tmp_path, told.append, results)
    assert (left, results) == ([], {"start, 1 broker": {OURS: [1.0]}})
    left = measure_all(cast(Bench, None), {"a": good, "b": bad}, {"it": row}, 1, tmp_path, told.append, results)
    assert left == ["it"]
    assert [line for line in told if "no luck" in line]
