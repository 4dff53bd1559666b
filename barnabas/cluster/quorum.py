"""Prepares the directories of several controllers of a local cluster, before they start.

Rules
1. All have one cluster id: in `meta.properties`, as `kafka-storage format` writes it.
2. A cluster that had one controller gives all of them the log of that one. Otherwise the new ones, which are a
   majority, would elect one of themselves, and the topics would be gone.
3. Only then is a log copied. A controller that has lost its disk starts with an empty one, and fetches from the others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.cluster.errors import ClusterError
from barnabas.common.ids import random_uuid, uuid_to_string

PROPERTIES: Final = "meta.properties"
LOG: Final = "__cluster_metadata-0"
#: What tells a start how much of the log was durable; it belongs to the log.
DURABLE_END: Final = "recovery-point-offset-checkpoint"
QUORUM_STATE: Final = "quorum-state"
_PART: Final = ".part"


def prepare_quorum(directories: Sequence[Path], first_id: int) -> None:
    """Format the directories of controllers with ids from `first_id` on; raises ClusterError if one cannot be used."""
    try:
        cluster_id = next(filter(None, map(_cluster_id, directories)), None) or uuid_to_string(random_uuid())
        first, *others = directories
        is_alone = (first / LOG).is_dir() and not (first / LOG / QUORUM_STATE).exists()
        # Why quorum-state: without it they have never taken part. Their copies of an earlier attempt may be old by now.
        if is_alone and not any((each / LOG / QUORUM_STATE).exists() for each in others):
            for each in others:
                _copy_log(first, each)
        for number, directory in enumerate(directories, first_id):
            _format(directory, cluster_id, number)
    except OSError as error:
        raise ClusterError(f"cannot use {error.filename or directories[0]}: {error.strerror or error}") from error


def _cluster_id(directory: Path) -> str | None:
    """Return the cluster id of a directory; None if it has none yet."""
    file = directory / PROPERTIES
    if not file.exists():
        return None
    for line in file.read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and key.strip() == "cluster.id":
            return value.strip().replace("\\", "")
    return None


def _copy_log(source: Path, target: Path) -> None:
    """Copy a log; it has its name once it is whole."""
    target.mkdir(parents=True, exist_ok=True)
    part = target / f"{LOG}{_PART}"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source / LOG, part)
    # Why not always: beside a broker, the file in the log is the log's, and the other one is the broker's.
    if (source / DURABLE_END).exists() and not (source / LOG / DURABLE_END).exists():
        shutil.copy2(source / DURABLE_END, target / DURABLE_END)
    for file in [*part.iterdir(), part, target]:
        _sync(file)
    shutil.rmtree(target / LOG, ignore_errors=True)  # of an attempt that was interrupted
    part.rename(target / LOG)


def _format(directory: Path, cluster_id: str, node_id: int) -> None:
    """Write meta.properties, the last step, unless it is there."""
    file = directory / PROPERTIES
    if file.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(_PART)
    directory_id = uuid_to_string(random_uuid())
    part.write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n")
    _sync(part)
    part.rename(file)
    _sync(directory)


def _sync(path: Path) -> None:
    """Make a file or a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
