"""The controller's directory: its lock, and the cluster and node that it belongs to.

    DIR/.lock                    held while a process uses the directory
    DIR/meta.properties          version, cluster.id, node.id, directory.id
    DIR/__cluster_metadata-0/    the metadata log

Threads: main only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.broker.storage.directories.checkpoints import (
    CorruptCheckpointError,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.common.disk.files import DirectoryLock, FileSystem
from barnabas.common.ids import random_uuid, uuid_to_string

LOCK_FILE: Final = ".lock"
META_PROPERTIES_FILE: Final = "meta.properties"
REBUILD: Final = (
    "move it away (do not delete it) and rebuild it: barnabas controller recover FILE --from-brokers HOST:PORT,..."
)


class DirectoryError(Exception):
    """The directory cannot be used until an operator repairs it; the message is one line."""


@dataclass(slots=True)
class MetadataDirectory:
    """A locked directory."""

    path: str
    cluster_id: str
    lock: DirectoryLock

    @classmethod
    def open(cls, fs: FileSystem, path: str, node_id: int, cluster_id: str | None) -> MetadataDirectory:
        """Lock the directory and check its identity, which the first start writes; raises DirectoryError."""
        try:
            fs.mkdir(path)
            lock = fs.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise DirectoryError(f"{path} is in use by another process") from None
        except OSError as error:
            raise DirectoryError(f"cannot use {path}: {error.strerror or error}") from error
        try:
            return cls(path, _identity(fs, path, node_id, cluster_id), lock)
        except OSError as error:
            lock.release()
            raise DirectoryError(f"cannot use {path}: {error.strerror or error}") from error
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Release the lock."""
        self.lock.release()


def _identity(fs: FileSystem, path: str, node_id: int, wanted: str | None) -> str:
    """Return the cluster id; raises DirectoryError if the directory names another cluster or node."""
    file = f"{path}/{META_PROPERTIES_FILE}"
    try:
        found = read_meta_properties(fs, file)
    except CorruptCheckpointError as error:
        raise DirectoryError(str(error)) from error
    if found is None:
        cluster_id = wanted or uuid_to_string(random_uuid())
        write_meta_properties(
            fs, file, cluster_id=cluster_id, node_id=node_id, directory_id=uuid_to_string(random_uuid())
        )
        return cluster_id
    if found.get("node.id", str(node_id)) != str(node_id):
        raise DirectoryError(f"{path} belongs to node {found['node.id']}, but node.id is {node_id}")
    cluster_id = found.get("cluster.id", "")
    if not cluster_id or (wanted and wanted != cluster_id):
        raise DirectoryError(f"{path} belongs to cluster {cluster_id!r}, not {wanted!r}")
    return cluster_id
