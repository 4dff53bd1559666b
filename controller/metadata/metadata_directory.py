"""The controller's directory: its lock, and the cluster and node that it belongs to.

    DIR/.lock                    held while a process uses it; if it is also a log directory of a broker, by that
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
from barnabas.common.ids import random_uuid, uuid_from_string, uuid_to_string

LOCK_FILE: Final = ".lock"
META_PROPERTIES_FILE: Final = "meta.properties"
FORMATTING_FILE: Final = ".formatting"
"""It is there while `format` has not come to its end."""
FIRST_VOTERS_FILE: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
"""The first voters, from a command that formats; it names their directory ids."""
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
    directory_id: bytes
    is_formatted: bool  # it had its identity before this start
    lock: DirectoryLock | None  # None: the broker of the same process holds it

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        node_id: int,
        cluster_id: str | None,
        *,
        is_alone: bool = True,
        is_locked: bool = False,
    ) -> MetadataDirectory:
        """Lock the directory and check its identity, which the first start writes; raises DirectoryError.

        A controller that is alone may invent the cluster id; several must be given the same. `is_locked`: the broker of
        the same process has locked the directory.
        """
        try:
            fs.mkdir(path)
            lock = None if is_locked else fs.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise DirectoryError(f"{path} is in use by another process") from None
        except OSError as error:
            raise DirectoryError(f"cannot use {path}: {error.strerror or error}") from error
        try:
            return cls(path, *_identity(fs, path, node_id, cluster_id, is_alone=is_alone), lock)
        except OSError as error:
            _release(lock)
            raise DirectoryError(f"cannot use {path}: {error.strerror or error}") from error
        except BaseException:
            _release(lock)
            raise

    def close(self) -> None:
        """Release the lock."""
        _release(self.lock)


def _release(lock: DirectoryLock | None) -> None:
    if lock is not None:
        lock.release()


def _identity(
    fs: FileSystem, path: str, node_id: int, wanted: str | None, *, is_alone: bool
) -> tuple[str, bytes, bool]:
    """Return the ids of cluster and directory, and whether they were there already.

    Raises DirectoryError if the directory names another cluster or node.
    """
    file = f"{path}/{META_PROPERTIES_FILE}"
    try:
        found = read_meta_properties(fs, file)
    except CorruptCheckpointError as error:
        raise DirectoryError(str(error)) from error
    if found is None:
        _check_not_half_formatted(fs, path)
        if not wanted and not is_alone:
            raise DirectoryError(
                f"{path} is new and does not say which cluster it belongs to: start all controllers with the same "
                "CLUSTER_ID in their environment, or format their directories (kafka-storage format)"
            )
        cluster_id, directory_id = wanted or uuid_to_string(random_uuid()), random_uuid()
        write_meta_properties(
            fs, file, cluster_id=cluster_id, node_id=node_id, directory_id=uuid_to_string(directory_id)
        )
        return cluster_id, directory_id, False
    if found.get("node.id", str(node_id)) != str(node_id):
        raise DirectoryError(f"{path} belongs to node {found['node.id']}, but node.id is {node_id}")
    cluster_id = found.get("cluster.id", "")
    if not cluster_id or (wanted and wanted != cluster_id):
        raise DirectoryError(f"{path} belongs to cluster {cluster_id!r}, not {wanted!r}")
    try:
        return cluster_id, uuid_from_string(found["directory.id"]) if "directory.id" in found else bytes(16), True
    except ValueError as error:
        raise DirectoryError(f"{file}: directory.id={found['directory.id']} is not an id") from error


def _check_not_half_formatted(fs: FileSystem, path: str) -> None:
    """Refuse what a crash of `format` left: with invented ids, the controller would be another one."""
    written = next(filter(fs.exists, (f"{path}/{name}" for name in (FIRST_VOTERS_FILE, FORMATTING_FILE))), None)
    if written is not None:
        raise DirectoryError(
            f"{path} has no {META_PROPERTIES_FILE}, but {written}: it was not formatted to the end. Format it again "
            f"(barnabas controller format, kafka-storage format), or restore {META_PROPERTIES_FILE} from a copy"
        )
