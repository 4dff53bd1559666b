"""Which local clusters run now: each supervisor leaves a pointer to its directory in the user's runtime directory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from barnabas.cluster import is_supervisor, read_cluster_file


def _pointers() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"barnabas-clusters-{os.getuid()}"


def announce(directory: Path) -> Path:
    """Leave the pointer; return it so that the caller can take it away again."""
    _pointers().mkdir(mode=0o700, parents=True, exist_ok=True)
    pointer = _pointers() / str(os.getpid())
    pointer.write_text(str(directory))
    return pointer


def running_directories() -> list[Path]:
    """The directories of the clusters that run now; pointers of dead supervisors are removed on the way."""
    directories = []
    for pointer in sorted(_pointers().glob("*")):
        directory = Path(pointer.read_text())
        content = read_cluster_file(directory)
        if content is not None and is_supervisor(content) and str(content["supervisor_pid"]) == pointer.name:
            directories.append(directory)
        else:
            pointer.unlink(missing_ok=True)
    return directories
