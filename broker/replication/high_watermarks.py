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

from broker.storage.checkpoints import OffsetCheckpoint

if TYPE_CHECKING:
    from barnabas.common.files import FileSystem
    from barnabas.common.topic_partition import TopicPartition
    from broker.replication.replica_manager import ReplicaManager
    from broker.storage.log import Log

log = logging.getLogger("barnabas.replication")

FILE_NAME = "replication-offset-checkpoint"


class HighWatermarks:
    """The checkpoint files of all log directories."""

    def __init__(self, directories: list[str], fs: FileSystem) -> None:
        self._files = {directory: OffsetCheckpoint(fs, f"{directory}/{FILE_NAME}") for directory in directories}
        self._restored = {directory: file.read() for directory, file in self._files.items()}  # fixed before start

    def restored(self, opened: Log, tp: TopicPartition) -> int:
        """What the file of the log's directory said at start; 0 if nothing."""
        return self._restored.get(os.path.dirname(opened.directory), {}).get(tp, 0)

    def write(self, manager: ReplicaManager) -> None:
        """Write the watermarks of now."""
        by_directory: dict[str, dict[TopicPartition, int]] = {directory: {} for directory in self._files}
        for partition in manager.partitions():
            held = partition.log
            directory = "" if held is None else os.path.dirname(held.directory)
            if held is not None and directory in by_directory:
                by_directory[directory][partition.tp] = held.high_watermark
        for directory, offsets in by_directory.items():
            try:
                self._files[directory].write(offsets)
            except OSError as error:
                log.error("cannot write %s: %s", self._files[directory].path, error)
