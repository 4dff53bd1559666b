"""The picture of ratios."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report.figures import OURS, THEIRS, less, more
from benchmarks.report.plot import Mark, advantage, draw, mark
from benchmarks.report.table import Samples, Spread


def test_a_mark_on_the_right_is_better_in_either_direction() -> None:
    assert advantage(more("", ""), 1.25) == 1.25
    assert advantage(less("", ""), 0.25) == 4
    assert mark(more("", ""), Spread(1.5, 1.0, 2.0)) == Mark(1.5, 1.0, 2.0)
    assert mark(less("", ""), Spread(0.5, 0.25, 1.0)) == Mark(2.0, 1.0, 4.0)


def test_the_same_samples_give_the_same_picture(tmp_path: Path, samples: Samples) -> None:
    for name in ("a.svg", "b.svg"):
        draw({**samples, "small produce 32x2": {OURS: [1], THEIRS: [2], "3.14t": [3]}}, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    draw(samples, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
