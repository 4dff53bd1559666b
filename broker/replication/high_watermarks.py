"""The high watermarks that survive a restart: `replication-offset-checkpoint`, one file in each log directory.

Written every replica.high.watermark.checkpoint.interval.ms and at shutdown. Read once at start; a log that is opened
later takes its watermark from what was read, and lags behind the truth by at most one interval: that is safe, for a
leader moves it up again from its followers' fetches.

Threads: one scheduler thread writes; the handler of a push reads `restored`.
"""

from __future__ import annotations

import logging
import os.path
from typing import TYPE_CHECKING

from barnabas.broker.storage.checkpoints import OffsetCheckpoint

if TYPE_CHECKING:
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log import Log
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.files import FileSystem
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")

FILE_NAME = "replication-offset-checkpoint"


class HighWatermarks:
    """The checkpoint files of all log directories."""

    def __init__(self, log_manager: LogManager, fs: FileSystem) -> None:
        self._log_manager = log_manager  # fixed before start
        self._files = {  # fixed before start
            directory.path: OffsetCheckpoint(fs, f"{directory.path}/{FILE_NAME}")
            for directory in log_manager.online_directories()
        }
        self._restored = {path: _read_or_empty(file) for path, file in self._files.items()}  # fixed before start

    def restored(self, opened: Log, tp: TopicPartition) -> int:
        """What the file of the log's directory said at start; 0 if nothing."""
        return self._restored.get(os.path.dirname(opened.directory), {}).get(tp, 0)

    def write(self, manager: ReplicaManager) -> None:
        """Write the watermarks of now."""
        by_directory: dict[str, dict[TopicPartition, int]] = {path: {} for path in self._files}
        for partition in manager.partitions():
            held = partition.log
            directory = "" if held is None else os.path.dirname(held.directory)
            if held is not None and directory in by_directory:
                by_directory[directory][partition.tp] = held.high_watermark
        for online in self._log_manager.online_directories():
            if online.path in self._files:
                try:
                    self._files[online.path].write(by_directory[online.path])
                except OSError as error:
                    self._log_manager.fail_directory(online, error)


def _read_or_empty(file: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """Read a file; without one that can be read, watermarks are learnt anew from followers and leaders."""
    try:
        return file.read()
    except OSError as error:
        log.warning("%s; starting without it", error)
        return {}
