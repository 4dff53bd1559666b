"""Tables that people like to read, and the same rows as JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

T = TypeVar("T")
Rows = Sequence[dict[str, Any]]


def json_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--json`, for every command that prints rows."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def show(rows: Rows, columns: Sequence[str], *, as_json: bool, title: str | None = None) -> None:
    """Print the rows: as one JSON array, as a table on a terminal, as tab-separated lines into a pipe."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        _show_table(rows, columns, title)
    else:
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_cell(row.get(column)) for column in columns))


def _show_table(rows: Rows, columns: Sequence[str], title: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
