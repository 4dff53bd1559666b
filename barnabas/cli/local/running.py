"""Finds the running local clusters: each supervisor leaves a pointer to its directory in the user's runtime directory.

The pointers are a convenience: without them, users must give `--data-dir` or `--bootstrap`. Errors about them are
therefore ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click

from barnabas.cli.errors import UserError
from barnabas.common.processes.cluster_file import ClusterFile, is_supervisor, read_cluster_file

T = TypeVar("T")
DIRECTORY_VARIABLE = "BARNABAS_DATA_DIR"


def _pointers(*, is_created: bool = False) -> Path | None:
    """The directory of the pointers, created on demand; None if it is not there or belongs to another user."""
    directory = Path(_runtime_directory()) / f"barnabas-clusters-{os.getuid()}"
    try:
        if is_created:
            directory.mkdir(mode=0o700, exist_ok=True)
        is_ours = directory.stat().st_uid == os.getuid()
    except OSError:
        return None
    return directory if is_ours else None


def _runtime_directory() -> str:
    """Return the user's runtime directory, or one for temporary files. It need not exist."""
    # Why not tempfile: a supervisor keeps what it imports, here a megabyte.
    runtime, *temporary = (os.environ.get(name, "") for name in ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"))
    usable = (each for each in temporary if os.path.isdir(each) and os.access(each, os.W_OK | os.X_OK))
    return runtime or next(usable, "/tmp")


@contextlib.contextmanager
def announced(directory: Path) -> Iterator[None]:
    """Leave a pointer to a cluster's directory while the block runs."""
    pointers = _pointers(is_created=True)
    if pointers is None:
        yield
        return
    pointer = pointers / str(os.getpid())
    with contextlib.suppress(OSError):
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(directory)  # Why a link: it is created atomically
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            pointer.unlink(missing_ok=True)


def running_directories() -> list[Path]:
    """The directories of the running clusters. Removes the pointers of dead supervisors."""
    pointers = _pointers()
    if pointers is None:
        return []
    directories = []
    for pointer in sorted(pointers.iterdir()):
        with contextlib.suppress(OSError):
            directory = pointer.readlink()
            content = read_cluster_file(directory)
            if content is not None and is_supervisor(content) and str(content["supervisor_pid"]) == pointer.name:
                directories.append(directory)
            else:
                pointer.unlink()
    return directories


def cluster_at(bootstrap: str) -> tuple[Path, ClusterFile] | None:
    """Return the directory and the file of the running local cluster that has one of these addresses.

    $BARNABAS_DATA_DIR counts too: an ephemeral cluster has no pointer, but its command has the variable.
    """
    wanted = {text.strip() for text in bootstrap.split(",")}
    named = os.environ.get(DIRECTORY_VARIABLE)
    for directory in [*([Path(named).absolute()] if named else []), *running_directories()]:
        content = read_cluster_file(directory)
        if content is not None and is_supervisor(content) and wanted & set(content["bootstrap"].split(",")):
            return directory, content
    return None


def named_directory(data_dir: Path | None) -> Path | None:
    """The given directory, else $BARNABAS_DATA_DIR; None if nothing names one."""
    if data_dir is None and os.environ.get(DIRECTORY_VARIABLE):
        data_dir = Path(os.environ[DIRECTORY_VARIABLE])
    return None if data_dir is None else data_dir.absolute()


def chosen_directory(data_dir: Path | None) -> Path:
    """The given directory, else $BARNABAS_DATA_DIR, else that of the one running cluster. Raises UserError."""
    if (named := named_directory(data_dir)) is not None:
        return named
    match running_directories():
        case []:
            raise UserError("no running local cluster was found: give its directory as --data-dir")
        case [directory]:
            return directory
        case several:
            raise UserError(f"several clusters run here: choose with --data-dir {' or '.join(map(str, several))}")


def directory_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--data-dir`, for each command that acts on a local cluster; pass its value to `chosen_directory`."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"The cluster's directory. Default: ${DIRECTORY_VARIABLE}, else that of the running cluster.",
    )(command)
