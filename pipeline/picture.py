"""The picture of the results: mean departure delay by hour of the day and carrier, as a PNG and an HTML page.

It is drawn from the audited figures, without Spark. Hours are New York time. A cell is the mean of all departures in
that hour, in minutes. A cell with fewer than DEPARTURES_MIN departures stays empty, since a few late aircraft would
dominate it; carriers with fewer are left out.

`delays.html` is self-contained: it has the picture, and a table whose cells show the number of departures.
"""

from __future__ import annotations

import base64
import csv
import html
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from pipeline.flights import DelayFigures, DelayKey, data_directory

NEW_YORK = ZoneInfo("America/New_York")
DEPARTURES_MIN = 5
#: From this delay on, all cells have the deepest colour.
DEEPEST_MIN = 40.0
COLOURS = "YlOrRd"
EMPTY_COLOUR = "#f2f2f2"


@dataclass(slots=True)
class Cell:
    """Departures, and the sum of their delays in minutes."""

    departed: int = 0
    minutes: float = 0.0

    def add(self, departed: int, minutes: float) -> None:
        """Count more departures."""
        self.departed += departed
        self.minutes += minutes

    @property
    def mean(self) -> float | None:
        """The mean delay; None for too few departures."""
        return self.minutes / self.departed if self.departed >= DEPARTURES_MIN else None


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells by carrier and hour; `carriers` by departures, most first; `hours` in order."""

    carriers: list[str]
    hours: list[int]
    cells: Mapping[tuple[str, int], Cell]
    by_carrier: Mapping[str, Cell]
    by_hour: Mapping[int, Cell]


def grid_of(figures: Mapping[DelayKey, DelayFigures]) -> Grid:
    """Sum the figures of all origins and days by carrier and hour of the day."""
    cells: dict[tuple[str, int], Cell] = defaultdict(Cell)
    by_carrier: dict[str, Cell] = defaultdict(Cell)
    by_hour: dict[int, Cell] = defaultdict(Cell)
    for (_, carrier, instant), found in figures.items():
        if found.mean is None:
            continue
        hour = datetime.fromisoformat(instant.replace("Z", "+00:00")).astimezone(NEW_YORK).hour
        for cell in (cells[carrier, hour], by_carrier[carrier], by_hour[hour]):
            cell.add(found.departed, found.mean * found.departed)
    shown = [carrier for carrier, cell in by_carrier.items() if cell.mean is not None]
    carriers = sorted(shown, key=lambda carrier: (-by_carrier[carrier].departed, carrier))
    return Grid(carriers, sorted(by_hour), cells, by_carrier, by_hour)


def carrier_names() -> dict[str, str]:
    """Code -> name of the airline."""
    with (data_directory() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def draw(figures: Mapping[DelayKey, DelayFigures], work_dir: Path, title: str) -> tuple[Path, Path]:
    """Write `delays.png` and `delays.html` into `work_dir`; return their paths."""
    grid, names = grid_of(figures), carrier_names()
    png, page = work_dir / "delays.png", work_dir / "delays.html"
    _draw_png(grid, names, png, title)
    page.write_text(_page(grid, names, png.read_bytes(), title), encoding="utf-8")
    return png, page


def _draw_png(grid: Grid, names: Mapping[str, str], path: Path, title: str) -> None:
    import matplotlib  # Why here: the other jobs do not need it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    means = [[grid.cells[carrier, hour].mean if (carrier, hour) in grid.cells else None for hour in grid.hours]
             for carrier in grid.carriers]  # fmt: skip
    colours = matplotlib.colormaps[COLOURS].with_extremes(bad=EMPTY_COLOUR)
    height = 2.6 + 0.36 * len(grid.carriers)
    figure, ((top, corner), (heat, side)) = pyplot.subplots(
        2, 2, figsize=(12, height), gridspec_kw={"width_ratios": (5, 1), "height_ratios": (1, 3.4)},
        layout="constrained",
    )  # fmt: skip
    corner.axis("off")
    values = [[float("nan") if mean is None else mean for mean in row] for row in means]
    image = heat.imshow(values, cmap=colours, vmin=0, vmax=DEEPEST_MIN, aspect="auto")
    for y, row in enumerate(means):
        for x, mean in enumerate(row):
            if mean is not None:
                heat.text(x, y, f"{round(mean)}", ha="center", va="center", fontsize=8,
                          color="white" if mean > 0.65 * DEEPEST_MIN else "#333333")  # fmt: skip
    heat.set_xticks(range(len(grid.hours)), [f"{hour}:00" for hour in grid.hours], rotation=45, fontsize=8)
    heat.set_yticks(range(len(grid.carriers)), [names.get(code, code) for code in grid.carriers], fontsize=9)
    heat.set_xlabel("scheduled departure, New York time")
    _bars(top, range(len(grid.hours)), [grid.by_hour[hour].mean or 0.0 for hour in grid.hours], horizontal=False)
    top.set_xlim(heat.get_xlim())
    top.set_title("mean of all carriers, by hour", fontsize=9, loc="left")
    _bars(side, range(len(grid.carriers)), [grid.by_carrier[c].mean or 0.0 for c in grid.carriers], horizontal=True)
    side.set_ylim(heat.get_ylim())
    side.set_title("mean of the day", fontsize=9, loc="left")
    figure.colorbar(image, ax=side, label="minutes", extend="both")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _bars(axes, places: range, values: list[float], *, horizontal: bool) -> None:  # type: ignore[no-untyped-def]
    bars = (axes.barh if horizontal else axes.bar)(places, values, 0.7, color="#d95f02")
    axes.bar_label(bars, [str(round(value)) for value in values], fontsize=8, padding=2)
    (axes.yaxis if horizontal else axes.xaxis).set_visible(False)
    (axes.xaxis if horizontal else axes.yaxis).set_visible(False)
    axes.margins(x=0.2 if horizontal else None, y=None if horizontal else 0.25)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _page(grid: Grid, names: Mapping[str, str], png: bytes, title: str) -> str:
    """The HTML page, self-contained."""
    heads = "".join(f"<th>{hour}</th>" for hour in grid.hours)
    rows = "".join(
        f"<tr><th>{html.escape(names.get(carrier, carrier))}</th>"
        + "".join(
            _table_cell(names.get(carrier, carrier), hour, grid.cells.get((carrier, hour))) for hour in grid.hours
        )
        + "</tr>\n"
        for carrier in grid.carriers
    )
    heading, picture = html.escape(title), base64.b64encode(png).decode()
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{heading}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222 }}
img {{ max-width: 100% }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
td, th {{ padding: .2em .5em; text-align: right; font-weight: normal }}
tr > th:first-child {{ text-align: left }}
</style>
<h1>{heading}</h1>
<img alt="Mean departure delay by hour of the day and carrier" src="data:image/png;base64,{picture}">
<h2>Mean delay in minutes, by hour of scheduled departure</h2>
<p>Point at a number to see how many departures it stands for. Cells with fewer than {DEPARTURES_MIN} are empty.</p>
<table><tr><th></th>{heads}</tr>
{rows}</table>
</html>
"""


def _table_cell(name: str, hour: int, cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return f'<td style="background:{EMPTY_COLOUR}"></td>'
    depth = min(max(cell.mean / DEEPEST_MIN, 0.0), 1.0)
    tip = f"{name}, {hour}:00: {cell.mean:.1f} minutes, {cell.departed:,} departures"
    return f'<td style="background:rgba(217,95,2,{depth:.2f})" title="{html.escape(tip)}">{round(cell.mean)}</td>'
