"""The ratios as a picture: a mark a figure, to the right of 1 where Barnabas is ahead, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import THEIRS, Figure
from benchmarks.report import Row, Samples, Spread, rows, short, systems_in

COLOURS = ("#1f6fb4", "#d9822b", "#3d9950", "#8856a7")
MET, MISSED = "#2e8b57", "#c0392b"
ROW_INCHES, MARGIN_INCHES, WIDTH_INCHES = 0.32, 1.4, 10


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a system stands: how many times better than Apache Kafka, with its spread."""

    label: str
    at: float
    least: float
    most: float


def advantage(figure: Figure, ratio: float) -> float:
    """How many times better a ratio is: itself where more is better, else its inverse."""
    return ratio if figure.more_is_better else 1 / ratio


def mark(figure: Figure, ratio: Spread) -> Mark:
    """Where to draw a ratio."""
    least, most = sorted((advantage(figure, ratio.least), advantage(figure, ratio.most)))
    return Mark(short(ratio.median), advantage(figure, ratio.median), least, most)


def draw(samples: Samples, path: Path) -> None:
    """Write the picture, in the format that the path's suffix says."""
    # Why here: it takes a while, and only the end of a run needs it.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import FuncFormatter, NullFormatter

    compared = [system for system in systems_in(samples) if system != THEIRS]
    shown = [row for row in rows(samples) if any(_is_drawable(row, system) for system in compared)]
    picture = Picture(figsize=(WIDTH_INCHES, MARGIN_INCHES + ROW_INCHES * len(shown)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    axes.set_xscale("log", base=2)
    axes.axvline(1, color="black", linewidth=0.8)
    for index, system in enumerate(compared):
        found = [(line, mark(row.figure, ratio)) for line, row in enumerate(shown) if (ratio := row.ratio(system))]
        colour, height = COLOURS[index % len(COLOURS)], 0.22 * index
        axes.errorbar(
            [made.at for _, made in found],
            [line + height for line, _ in found],
            xerr=[[made.at - made.least for _, made in found], [made.most - made.at for _, made in found]],
            fmt="o",
            color=colour,
            markersize=5,
            label=system,
        )
    for line, row in enumerate(shown):
        _draw_target(axes, line, row)
    axes.set_yticks(range(len(shown)), [_label(row, compared[0]) for row in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel(f"times better than {THEIRS} (right: Barnabas is ahead); bars: least to most; |: asked for")
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "barnabas"}):  # else names in the file are drawn by lot
        picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _is_drawable(row: Row, system: str) -> bool:
    ratio = row.ratio(system)
    return ratio is not None and ratio.least > 0


def _draw_target(axes: object, line: int, row: Row) -> None:
    if row.figure.ratio is not None:
        is_met = all(target.is_met for target in row.targets)
        at = advantage(row.figure, row.figure.ratio)
        axes.plot([at], [line], marker="|", markersize=14, markeredgewidth=2.5, color=MET if is_met else MISSED)  # type: ignore[attr-defined]


def _label(row: Row, system: str) -> str:
    ratio = row.ratio(system)
    return row.figure.name if ratio is None else f"{row.figure.name}   {short(ratio.median)}"
