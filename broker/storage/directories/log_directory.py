"""One log directory (an entry of `log.dirs`): its lock, its identity, its checkpoint files.

Rules
1. `.lock` is held from opening to closing, so two processes never share a directory.
2. `meta.properties` names its cluster and node; a directory of another cluster or node is refused.
3. The clean-shutdown marker is read and removed at the start and written last at the stop.

Threads: opened and closed by the thread that starts and stops the broker; checkpoints written by scheduler threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from barnabas.broker.storage.directories.checkpoints import (
    MirroredCheckpoint,
    OffsetCheckpoint,
    read_clean_shutdown,
    read_meta_properties,
    write_clean_shutdown,
    write_meta_properties,
)
from barnabas.broker.storage.directories.names import (
    BOOT_ID_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_COPY,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
)
from barnabas.common.disk.files import DirectoryLock, FileSystem
from barnabas.common.ids import random_uuid, uuid_from_string, uuid_to_string
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.storage.log_manager")


class LogDirectoryError(Exception):
    """A directory that cannot be used until a person fixes the cause; the message is one line."""


class LogDirectory:
    """One directory of partitions."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path  # fixed before start
        self.cluster_id: str | None = None  # fixed before start
        self.directory_id = b""  # 16 bytes; fixed before start
        self.clean_shutdown_epoch: int | None = None  # of the last stop, None if unclean; fixed before start
        self.failure: OSError | None = None  # set once, when the directory goes offline
        self.recovery_points = OffsetCheckpoint(fs, f"{path}/{RECOVERY_POINT_FILE}")
        self.clean_offsets = OffsetCheckpoint(fs, f"{path}/{CLEANER_OFFSET_FILE}")  # only read here
        # Why a copy: which records were deleted is recorded nowhere else; recovery finds everything else in the log.
        self.log_start_offsets = MirroredCheckpoint(
            fs, f"{path}/{LOG_START_OFFSET_FILE}", f"{path}/{LOG_START_OFFSET_COPY}"
        )
        # From collecting the offsets of a checkpoint to its writing: an older collection must not be written last.
        self.checkpointing = threading.Lock()  # before the registry's lock, and those of logs
        self._fs = fs
        self._lock: DirectoryLock | None = None

    @property
    def is_offline(self) -> bool:
        """Whether its disk failed."""
        return self.failure is not None

    def open(self, node_id: int) -> None:
        """Create the directory if needed, lock it and read its identity; it goes offline if its disk fails.

        Raises LogDirectoryError if another process uses it, or if it belongs to another node.
        """
        try:
            self._fs.mkdir(self.path)
            self._lock = self._fs.lock(f"{self.path}/{LOCK_FILE}")
            properties = read_meta_properties(self._fs, f"{self.path}/{META_PROPERTIES_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(
                f"the log directory {self.path} is in use by another process (its {LOCK_FILE} is locked)"
            ) from None
        except OSError as error:
            self.close()
            self.failure = error
            log.error("cannot use the log directory %s: %s", self.path, error)
            return
        if properties is not None:
            self._adopt(properties, node_id)

    def _adopt(self, properties: Mapping[str, str], node_id: int) -> None:
        owner = properties.get("node.id", properties.get("broker.id"))
        if owner is not None and owner != str(node_id):
            self.close()
            raise LogDirectoryError(
                f"the log directory {self.path} belongs to node {owner}, but this is node {node_id} "
                f"(see its {META_PROPERTIES_FILE})"
            )
        self.cluster_id = properties.get("cluster.id")
        directory_id = properties.get("directory.id")
        if directory_id is not None:
            try:
                self.directory_id = uuid_from_string(directory_id)
            except ValueError as error:
                self.close()
                raise LogDirectoryError(f"{self.path}/{META_PROPERTIES_FILE} is malformed: {error}") from None

    def identify(self, cluster_id: str, node_id: int) -> None:
        """Record cluster, node and a directory id, unless they are recorded; raises LogDirectoryError or OSError."""
        if self.cluster_id is None:  # Why again: a controller of the same process may have written it meanwhile
            properties = read_meta_properties(self._fs, f"{self.path}/{META_PROPERTIES_FILE}")
            if properties is not None:
                self._adopt(properties, node_id)
        if self.cluster_id == cluster_id and self.directory_id:
            return
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"the log directory {self.path} belongs to cluster {self.cluster_id}, but this is cluster {cluster_id}"
            )
        self.directory_id = self.directory_id or random_uuid()
        self.cluster_id = cluster_id
        write_meta_properties(
            self._fs,
            f"{self.path}/{META_PROPERTIES_FILE}",
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=uuid_to_string(self.directory_id),
        )

    def take_clean_shutdown(self) -> bool:
        """Return whether the last stop was clean, and remove the marker."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.clean_shutdown_epoch = read_clean_shutdown(self._fs, marker)
        if self.clean_shutdown_epoch is not None:
            self._fs.unlink(marker)
            self._fs.fsync_dir(self.path)
        return self.clean_shutdown_epoch is not None

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the marker; the caller has written everything else of the directory."""
        write_clean_shutdown(self._fs, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", broker_epoch)

    def may_have_lost_power(self) -> bool:
        """Return whether the machine may have started anew since `note_boot`: what was not flushed may be lost."""
        path = f"{self.path}/{BOOT_ID_FILE}"
        boot_id = self._fs.boot_id().encode()
        return not boot_id or not self._fs.exists(path) or self._fs.read_bytes(path) != boot_id

    def note_boot(self) -> None:
        """Note on which start of the machine the directory is used; all of its logs are recovered."""
        # Why no fsync: if a loss of power takes the file, the machine has started anew.
        self._fs.write_bytes(f"{self.path}/{BOOT_ID_FILE}", self._fs.boot_id().encode(), sync=False)

    def partition_names(self) -> list[str]:
        """Return the names of the subdirectories."""
        return [entry.name for entry in self._fs.listdir(self.path) if entry.is_dir]

    def usage(self) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume."""
        return self._fs.usage(self.path)

    def checkpoint(self, recovery_points: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
        """Write both checkpoint files."""
        self.recovery_points.write(recovery_points)
        self.log_start_offsets.write(starts)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
