"""Tables for people, the same rows as JSON for scripts, and progress bars."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

T = TypeVar("T")
Row = dict[str, Any]
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
TABLE_ROWS_MAX = 500  # a longer table is split: computing the widths needs all rows of a part in memory


def json_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--json`, for each command that prints rows."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def show(rows: Iterable[Row], columns: Sequence[str], *, as_json: bool, title: str | None = None) -> None:
    """Print the rows: as one JSON array, as a table on a terminal, or as tab-separated lines into a pipe.

    Rows are printed as they arrive, since all of them may not fit into memory.
    """
    if as_json:
        show_json(rows)
    elif sys.stdout.isatty():
        _show_tables(iter(rows), columns, title)
    else:
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_cell(row.get(column)).translate(_ESCAPES) for column in columns))


def show_json(rows: Iterable[Row]) -> None:
    """Print the rows as one JSON array, one row a line."""
    separator = "["
    for row in rows:
        print(separator + json.dumps(row, ensure_ascii=False), end="")
        separator = ",\n "
    print("[]" if separator == "[" else "]")


def _show_tables(rows: Iterator[Row], columns: Sequence[str], title: str | None) -> None:
    piece = list(itertools.islice(rows, TABLE_ROWS_MAX))
    while True:
        _show_table(piece, columns, title)
        piece, title = list(itertools.islice(rows, TABLE_ROWS_MAX)), None
        if not piece:
            return


def _show_table(rows: Sequence[Row], columns: Sequence[str], title: str | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))  # Text: [brackets] are not markup
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


@contextlib.contextmanager
def progress(label: str, total: int, *, minimum: int = 2) -> Iterator[Callable[[int], None]]:
    """A progress bar for work of at least `minimum` steps, if stderr is a terminal; yields `advance(steps)`."""
    if total < minimum or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total)
        yield lambda steps: bars.advance(task, steps)
