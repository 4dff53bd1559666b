"""The high watermarks that survive a restart: `replication-offset-checkpoint`, one file in each log directory.

Written every replica.high.watermark.checkpoint.interval.ms and at shutdown, read once at start. A log that is opened
takes its watermark from that read, which is at most one interval old. Why that is safe: a leader raises the watermark
again from its followers' fetches. Until then the log has what was read in the file that is written, too: a broker may
wait for its first push for long.

Threads: one scheduler thread writes; the handler of a push reads `restored`.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.storage.directories.checkpoints import OffsetCheckpoint
from barnabas.broker.storage.directories.names import HIGH_WATERMARK_FILE

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.disk.files import FileSystem
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")


class HighWatermarks:
    """The checkpoint files of all log directories."""

    def __init__(self, log_manager: LogManager, fs: FileSystem) -> None:
        self._log_manager = log_manager  # fixed before start
        self._files = {  # fixed before start
            directory.path: OffsetCheckpoint(fs, f"{directory.path}/{HIGH_WATERMARK_FILE}")
            for directory in log_manager.online_directories()
        }
        self._restored = {path: _read_or_empty(file) for path, file in self._files.items()}  # fixed before start

    def restored(self, opened: Log, tp: TopicPartition) -> int:
        """The high watermark that the log's directory had for `tp` at start; 0 if none."""
        return self._restored.get(os.path.dirname(opened.directory), {}).get(tp, 0)

    def write(self, partitions: Iterable[Partition]) -> None:
        """Write the high watermark of each log into the file of its directory.

        Those of these partitions are current; the others, which no push has named, are as they were at start.
        """
        hosted = {partition.tp for partition in partitions if partition.log is not None}
        by_directory: dict[str, dict[TopicPartition, int]] = {path: {} for path in self._files}
        for held in self._log_manager.all_logs():
            tp, directory = held.topic_partition, os.path.dirname(held.directory)
            if directory in by_directory:
                by_directory[directory][tp] = held.high_watermark if tp in hosted else self.restored(held, tp)
        for online in self._log_manager.online_directories():
            if online.path in self._files:
                try:
                    self._files[online.path].write(by_directory[online.path])
                except OSError as error:
                    self._log_manager.fail_directory(online, error)


def _read_or_empty(file: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """Read a file. If it cannot be read, followers and leaders provide the watermarks again."""
    try:
        return file.read()
    except OSError as error:
        log.warning("%s; starting without it", error)
        return {}
