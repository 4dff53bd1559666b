"""Which local clusters run now: each supervisor leaves a pointer to its directory in the user's runtime directory.

The pointers are a convenience: without them `--data-dir` and `--bootstrap` must be given, so what goes wrong with them
is passed over.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from barnabas.common.cluster_file import is_supervisor, read_cluster_file


def _pointers() -> Path | None:
    """The directory of the pointers, made if need be; None if there is none that is ours alone."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    directory = Path(base) / f"barnabas-clusters-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        is_ours = directory.stat().st_uid == os.getuid()
    except OSError:
        return None
    return directory if is_ours else None


@contextlib.contextmanager
def announced(directory: Path) -> Iterator[None]:
    """Leave the pointer to a cluster's directory for as long as the block runs."""
    pointers = _pointers()
    if pointers is None:
        yield
        return
    pointer = pointers / str(os.getpid())
    with contextlib.suppress(OSError):
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(directory)  # Why a link: it is there whole or not at all
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            pointer.unlink(missing_ok=True)


def running_directories() -> list[Path]:
    """The directories of the clusters that run now; pointers of dead supervisors are removed on the way."""
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
