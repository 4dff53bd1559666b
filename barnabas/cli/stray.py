"""`barnabas stray`: logs that a broker set aside since metadata did not know them; list, restore, delete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from barnabas.broker.storage.strays import Stray, StrayError, delete, find, list_strays, restore
from barnabas.cli.errors import UserError
from barnabas.cli.output import Row, json_option, show
from barnabas.common.clock import SystemClock
from barnabas.common.files import OsFileSystem
from barnabas.common.ids import uuid_to_string

COLUMNS = ("partition", "topic_id", "bytes", "aside_for_hours", "reason", "path")
MS_PER_HOUR = 3_600_000

_directory = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def stray() -> None:
    """Logs that a broker set aside because metadata did not know them. They are deleted after
    barnabas.stray.retention.ms (7 days), never at once.
    """


@stray.command("list")
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=_directory)
@json_option
def list_(log_dirs: tuple[Path, ...], as_json: bool) -> None:
    """List what was set aside in log directories (log.dirs of a broker)."""
    show(rows_of(log_dirs), COLUMNS, as_json=as_json)


@stray.command("restore")
@click.argument("path", metavar="STRAY_DIR", type=_directory)
def restore_(path: Path) -> None:
    """Make what was set aside its partition's log again. The broker must be stopped.

    Refused, with nothing changed, if there is a log of that partition with records. When the broker starts, its
    controller must know the topic under the id that the log has: else the log is set aside again.
    """
    fs = OsFileSystem()
    try:
        target = restore(fs, find(fs, os.path.abspath(path)))
    except StrayError as error:
        raise UserError(str(error)) from error
    print(f"restored {target}; start the broker")


@stray.command("delete")
@click.argument("path", metavar="STRAY_DIR", type=_directory)
def delete_(path: Path) -> None:
    """Delete what was set aside, for good. The broker may run."""
    fs = OsFileSystem()
    try:
        delete(fs, find(fs, os.path.abspath(path)))
    except StrayError as error:
        raise UserError(str(error)) from error
    print(f"deleted {path}")


def rows_of(log_dirs: Iterable[Path]) -> list[Row]:
    """What was set aside in these directories, as rows of COLUMNS."""
    fs = OsFileSystem()
    return [_row(found) for log_dir in log_dirs for found in list_strays(fs, os.path.abspath(log_dir))]


def _row(found: Stray) -> Row:
    note = found.note
    aside_ms = None if note is None else SystemClock().wall_ms() - note.set_aside_ms
    return {
        "partition": str(found.tp),
        "topic_id": None if note is None or note.topic_id is None else uuid_to_string(note.topic_id),
        "bytes": found.size_bytes,
        "aside_for_hours": None if aside_ms is None else round(aside_ms / MS_PER_HOUR, 1),
        "reason": None if note is None else note.reason,
        "path": found.path,
    }
