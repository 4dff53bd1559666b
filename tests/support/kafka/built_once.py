"""Directories that are built once, kept under the user's cache directory, and shared by all runs of tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory for what is built; it may not exist yet."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "barnabas"


def built_once(directory: Path, build: Callable[[Path], object]) -> Path:
    """Return a directory; if it does not exist, `build` fills another one, which is then renamed.

    So an interrupted build leaves no partial result. The directory's name must change with the sources of the build.
    """
    if not directory.exists():
        unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        try:
            build(unfinished)
            _put_in_place(unfinished, directory)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return directory


def _put_in_place(unfinished: Path, directory: Path) -> None:
    try:
        unfinished.replace(directory)
    except OSError:
        if not directory.exists():  # else another process was faster, with the same result
            raise
