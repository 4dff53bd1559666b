"""What is noted of lines and cells, and the report of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import greenlet
import pytest

from tests.simulation.coverage.cells import MACHINES, Cells, Machine
from tests.simulation.coverage.explained import EXPLAINED, PACKAGES, reason_of, reason_of_package
from tests.simulation.coverage.lines import Lines, lines_of
from tests.simulation.coverage.report import report, report_lines

ROOT = Path(__file__).resolve().parents[3]
SOURCE = """\
import greenlet

def waits(found):
    if found:
        greenlet.getcurrent().parent.switch()
        return 1
    return 2

class Group:
    def never(self):
        return 3
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "waits.py"
    path.write_text(SOURCE)
    return path


def test_lines_that_run_in_greenlets_are_noted(source: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), names)
    lines = Lines((f"{tmp_path}/",))
    before = sys.gettrace()

    def body() -> None:
        lines.start()
        names["waits"](True)  # type: ignore[operator]

    try:
        child = greenlet.greenlet(body)
        child.switch()
        child.switch()
    finally:
        sys.settrace(before)
    assert lines_of(source) >= {4, 5, 6, 7, 11}
    assert lines.ran[str(source)] >= {4, 5, 6}
    assert not lines.ran[str(source)] & {7, 11}


def test_the_report_of_lines(source: Path, tmp_path: Path) -> None:
    every = lines_of(source)
    assert report_lines(tmp_path, ["code"], {str(source): every - {6, 7, 11}}) == "code/waits.py: 6-7, 11\n"
    text = report(tmp_path, ["code"], {str(source): every - {7}}, set(), "seed 1")
    assert f"| `code` | {len(every)} | {100 * (len(every) - 1) // len(every)} % |  |" in text


def test_cells_are_noted_before_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    class Door:
        state = "open"

        def close(self) -> None:
            self.state = "closed"

    module = ModuleType("doors")
    module.Door = Door  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "doors", module)
    machine = Machine("door", "doors", "Door", ("open", "closed"), ("close",), lambda door: str(door.state))
    cells = Cells()
    cells.watch((machine,))
    Door().close()
    assert cells.reached == {("door", "open", "close")}
    assert machine.cells() == [("door", "open", "close"), ("door", "closed", "close")]


def test_the_report_of_cells(tmp_path: Path) -> None:
    every = {cell for machine in MACHINES for cell in machine.cells()}
    assert "0 cells have no explanation." in report(tmp_path, [], {}, every, "seed 1")
    text = report(tmp_path, [], {}, every - {("purgatory", "DelayedFetch", "run")}, "seed 1")
    assert "| DelayedFetch | `run` |" in text


def test_every_explanation_fits_a_cell() -> None:
    reasons = {reason_of(cell) for machine in MACHINES for cell in machine.cells()}
    for patterns, reason in EXPLAINED:
        assert reason in reasons, patterns


def test_every_explained_package_is_there() -> None:
    folders = [str(path.relative_to(ROOT)) for name in ("broker", "controller") for path in (ROOT / name).rglob("*")]
    reasons = {reason_of_package(folder) for folder in folders}
    for pattern, reason in PACKAGES:
        assert reason in reasons, pattern
    assert reason_of_package("broker/storage") == ""


def test_machines_fit_the_source() -> None:
    for machine in MACHINES:
        source = (ROOT / (machine.module.replace(".", "/") + ".py")).read_text()
        for name in (machine.method,) if machine.event_of is not None else machine.events:
            assert f"    def {name}(" in source, (machine.name, name)
