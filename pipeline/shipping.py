"""Ships this package to the executors of a Spark cluster, and checks that they share the work directory.

The executors import this module too, so it needs only Python.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

#: Tasks that check the directory: more than the executors of a small cluster, so that each executor gets one.
TASKS = 8


def ship(context: Any) -> None:
    """Send this package to the executors of a SparkContext."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-pipeline-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    context.addPyFile(str(archive(directory)))


def archive(directory: Path) -> Path:
    """Write the sources of this package as `pipeline.zip`."""
    path = directory / "pipeline.zip"
    package = Path(__file__).resolve().parent
    with zipfile.ZipFile(path, "w") as files:
        for source in sorted(package.glob("*.py")):
            files.write(source, f"{package.name}/{source.name}")
    return path


def blind_hosts(context: Any, work_dir: Path) -> list[str]:
    """Write a file into the work directory; return the hosts of executors that do not see it."""
    work_dir.mkdir(parents=True, exist_ok=True)
    token = work_dir / f".shared-{uuid.uuid4()}"
    token.touch()
    try:
        seen = context.parallelize(range(TASKS), TASKS).mapPartitions(partial(look, str(token))).collect()
    finally:
        token.unlink()
    return sorted({host for host, found in seen if not found})


def look(token: str, _: Iterable[int]) -> Iterator[tuple[str, bool]]:
    """Runs on an executor: yield its host and whether it sees the file."""
    yield socket.gethostname(), Path(token).exists()
