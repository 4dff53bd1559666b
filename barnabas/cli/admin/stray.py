"""`barnabas stray`: lists, restores and deletes logs that a broker set aside because metadata did not know them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from barnabas.broker.storage.directories.strays import Stray, StrayError, delete, find, list_strays, restore
from barnabas.cli.errors import UserError
from barnabas.cli.output import Row, json_option, show
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_to_string

COLUMNS = ("partition", "topic_id", "bytes", "hours_set_aside", "reason", "path")
MS_PER_HOUR = 3_600_000

_directory = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def stray() -> None:
    """List, restore and delete logs that a broker set aside because metadata did not know them.

    The broker deletes them after barnabas.stray.retention.ms (default: 7 days).
    """


@stray.command("list")
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=_directory)
@json_option
def list_(log_dirs: tuple[Path, ...], as_json: bool) -> None:
    """List the logs that were set aside. LOG_DIR is a directory in a broker's log.dirs."""
    show(rows_of(log_dirs), COLUMNS, as_json=as_json)


@stray.command("restore")
@click.argument("path", metavar="STRAY_DIR", type=_directory)
def restore_(path: Path) -> None:
    """Make a log that was set aside its partition's log again. The broker must be stopped.

    If the partition already has a log with records, the command fails and changes nothing. When the broker starts, its
    controller must know the topic under the log's topic id. Otherwise the broker sets the log aside again.
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
    """Delete a log that was set aside, for good. The broker may be running."""
    fs = OsFileSystem()
    try:
        delete(fs, find(fs, os.path.abspath(path)))
    except StrayError as error:
        raise UserError(str(error)) from error
    print(f"deleted {path}")


def rows_of(log_dirs: Iterable[Path]) -> list[Row]:
    """The logs that were set aside in these directories, as rows of COLUMNS."""
    fs = OsFileSystem()
    return [_row(found) for log_dir in log_dirs for found in list_strays(fs, os.path.abspath(log_dir))]


def _row(found: Stray) -> Row:
    note = found.note
    aside_ms = None if note is None else SystemClock().wall_ms() - note.set_aside_ms
    return {
        "partition": str(found.tp),
        "topic_id": None if note is None or note.topic_id is None else uuid_to_string(note.topic_id),
        "bytes": found.size_bytes,
        "hours_set_aside": None if aside_ms is None else round(aside_ms / MS_PER_HOUR, 1),
        "reason": None if note is None else note.reason,
        "path": found.path,
    }
