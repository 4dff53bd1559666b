"""The picture: the values of its cells, and both files."""

from __future__ import annotations

from pathlib import Path

from pipeline.flights import DelayFigures
from pipeline.picture import draw, grid_of

#: Six departures at noon in New York (17:00 UTC in winter, 16:00 in summer), one at 13:00, one that never left.
FIGURES = {
    ("EWR", "UA", "2013-01-01T17:00:00Z"): DelayFigures(4, 10.0, 20.0),
    ("JFK", "UA", "2013-07-01T16:00:00Z"): DelayFigures(2, -2.0, 0.0),
    ("JFK", "UA", "2013-07-01T17:00:00Z"): DelayFigures(1, 600.0, 600.0),
    ("LGA", "DL", "2013-07-01T17:00:00Z"): DelayFigures(0, None, None),
}


def test_cells_are_means_over_departures_by_new_york_time() -> None:
    grid = grid_of(FIGURES)
    assert (grid.carriers, grid.hours) == (["UA"], [12, 13])
    assert (grid.cells["UA", 12].departed, grid.cells["UA", 12].mean) == (6, 6.0)
    assert grid.cells["UA", 13].mean is None  # too few
    assert grid.by_carrier["UA"].departed == 7


def test_both_files_are_drawn_and_the_page_is_self_contained(tmp_path: Path) -> None:
    png, page = draw(FIGURES, tmp_path, "Delays <2013>")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "Delays &lt;2013&gt;" in text
    assert 'title="United Air Lines Inc., 12:00: 6.0 minutes, 6 departures">6</td>' in text
    assert "http" not in text
