"""The ratios as a picture: a mark for each figure, to the right of 1 where Barnabas is better, and its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report.figures import THEIRS, Figure
from benchmarks.report.table import Row, Samples, Spread, rows, systems_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f6fb4", "#d9822b", "#3d9950", "#8856a7")
MET, MISSED = "#2e8b57", "#c0392b"
LOWER = 0.22  # of a line
ROW_INCHES, MARGIN_INCHES, WIDTH_INCHES = 0.32, 1.4, 10


@dataclass(frozen=True, slots=True)
class Mark:
    """How many times better than Apache Kafka a system is, with the spread."""

    at: float
    least: float
    most: float


def advantage(figure: Figure, ratio: float) -> float:
    """Return how many times better a ratio is: itself where more is better, else its inverse."""
    return ratio if figure.more_is_better else 1 / ratio


def mark(figure: Figure, ratio: Spread) -> Mark:
    """Return the place of a ratio in the picture."""
    least, most = sorted((advantage(figure, ratio.least), advantage(figure, ratio.most)))
    return Mark(advantage(figure, ratio.median), least, most)


def draw(samples: Samples, path: Path) -> None:
    """Write the picture. The path's suffix selects the format."""
    # Imported here because it is slow and only needed at the end of a run.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    compared = [system for system in systems_in(samples) if system != THEIRS]
    shown = [row for row in rows(samples) if any(_is_drawable(row, system) for system in compared)]
    picture = Picture(figsize=(WIDTH_INCHES, MARGIN_INCHES + ROW_INCHES * len(shown)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    _lay_out(axes, [_label(row, compared[0]) for row in shown])
    for index, system in enumerate(compared):
        _draw_system(axes, index, system, shown)
    _draw_targets(axes, shown)
    picture.legend(loc="outside upper center", ncols=len(compared) + 2, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "barnabas"}):  # otherwise ids in the file are random
        picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _lay_out(axes: Axes, labels: Sequence[str]) -> None:
    """Lay out one line for each figure, the first on top, over an axis of "times better"."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"times better than {THEIRS}; bars from least to most")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _draw_system(axes: Axes, index: int, system: str, shown: Sequence[Row]) -> None:
    """Draw a system's marks. Those of the second system are slightly lower."""
    found = [(line, mark(row.figure, ratio)) for line, row in enumerate(shown) if (ratio := row.ratio(system))]
    axes.errorbar(
        [made.at for _, made in found],
        [line + LOWER * index for line, _ in found],
        xerr=[[made.at - made.least for _, made in found], [made.most - made.at for _, made in found]],
        fmt="o",
        color=COLOURS[index % len(COLOURS)],
        markersize=5,
        label=system,
    )


def _draw_targets(axes: Axes, shown: Sequence[Row]) -> None:
    """Draw the targets of the ratios; own bounds are not drawn."""
    targets = [
        (line, row) for line, row in enumerate(shown) if row.figure.ratio is not None and row.ratio() is not None
    ]
    for is_met, colour, label in ((True, MET, "target, met"), (False, MISSED, "target, missed")):
        places = [
            (advantage(row.figure, row.figure.ratio or 1), line)
            for line, row in targets
            if row.targets[0].is_met is is_met  # the ratio's comes first
        ]
        across, down = [at for at, _ in places], [line for _, line in places]
        axes.plot(across, down, "|", color=colour, markersize=14, markeredgewidth=2.5, label=label)


def _is_drawable(row: Row, system: str) -> bool:
    ratio = row.ratio(system)
    return row.figure.is_drawn and ratio is not None and ratio.least > 0


def _label(row: Row, system: str) -> str:
    ratio = row.ratio(system)
    return row.figure.name if ratio is None else f"{row.figure.name}   {ratio.median:.2f}"
