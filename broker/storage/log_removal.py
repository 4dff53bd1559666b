"""Removes logs that are no longer registered: deletes them after a delay, or sets them aside as strays (`strays.py`).

Threads: any. A log that is given here has been taken out of the registry, so no other thread finds it.
Source: Kafka's LogManager.asyncDelete, addLogToBeDeleted, deleteLogs, 4.3.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from barnabas.broker.storage import log_upkeep
from barnabas.broker.storage.directories.log_directories import LogDirectories
from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.directories.strays import Note, Stray, expire, list_strays
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError

log = logging.getLogger("barnabas.storage.log_manager")


class LogRemover:
    """Deletes logs and sets them aside.

    `write_checkpoints` writes the offset checkpoints of all directories. `on_removed` is called with each partition and
    the log directory that it left; it may raise OSError.
    """

    def __init__(
        self,
        directories: LogDirectories,
        clock: Clock,
        scheduler: TaskScheduler,
        fs: FileSystem,
        *,
        write_checkpoints: Callable[[], None],
        on_removed: Callable[[TopicPartition, str], None],
    ) -> None:
        self.strays: list[Stray] = []  # replaced whole
        self._directories = directories
        self._clock = clock
        self._scheduler = scheduler
        self._fs = fs
        self._write_checkpoints = write_checkpoints
        self._on_removed = on_removed

    def discard(self, gone: Sequence[Log]) -> dict[TopicPartition, ApiError]:
        """Rename the directories of logs now and delete them after file.delete.delay.ms; returns the failures."""
        refused: dict[TopicPartition, ApiError] = {}
        where = self._where(gone)
        for found in gone:
            if not found.is_offline:
                try:
                    found.rename_for_delete()
                    self.delete_later(found)
                except ApiError as error:
                    refused[found.topic_partition] = error
        self._finish(gone, where)
        return refused

    def delete_later(self, doomed: Log) -> None:
        """Delete a log, whose directory is renamed already, after file.delete.delay.ms."""

        def delete() -> None:
            doomed.delete()
            log.info("Deleted the log of %s in %s", doomed.topic_partition, doomed.directory)

        self._scheduler.schedule_once("kafka-delete-logs", delete, doomed.config.file_delete_delay_ms)

    def delete_found(self, directory: LogDirectory, name: str, delay_ms: int) -> None:
        """Delete what a start found marked for deletion, after a delay.

        Why it is not loaded: nobody needs what it holds, and it may be torn, since it was perhaps never flushed.
        """
        path = f"{directory.path}/{name}"

        def delete() -> None:
            self._fs.remove_tree(path)
            log.info("Deleted %s", path)

        job = partial(self._directories.attempt, directory, delete)
        self._scheduler.schedule_once("kafka-delete-logs", job, delay_ms)

    def set_aside(self, gone: Sequence[Log], reason: str) -> dict[TopicPartition, ApiError]:
        """Close logs and rename their directories so that they are strays; returns the failures."""
        refused: dict[TopicPartition, ApiError] = {}
        where = self._where(gone)
        for found in gone:
            tp = found.topic_partition
            note = Note(tp, found.topic_id, self._clock.wall_ms(), found.log_start_offset, reason)
            if found.is_offline:
                continue
            try:
                log_upkeep.flush_and_close(found)
                log.warning("%s is set aside as %s: %s", tp, found.set_aside(note), reason)
            except ApiError as error:
                refused[tp] = error
        self._finish(gone, where)
        if gone:
            self.find_strays()
        return refused

    def _where(self, gone: Sequence[Log]) -> dict[int, LogDirectory]:
        return {id(found): self._directories.of(found.directory) for found in gone}

    def _finish(self, gone: Sequence[Log], where: Mapping[int, LogDirectory]) -> None:
        """Make the renames durable, with one fsync for each log directory, and drop the logs from all notes."""
        attempt = self._directories.attempt
        for directory in {directory.path: directory for directory in where.values()}.values():
            attempt(directory, partial(self._fs.fsync_dir, directory.path))
        if gone:
            # Why now: a new log of this name must not inherit the recovery point.
            self._write_checkpoints()
        for found in gone:
            tp, directory = found.topic_partition, where[id(found)]
            attempt(directory, partial(self._on_removed, tp, directory.path))

    # Strays

    def find_strays(self) -> None:
        """List the stray logs of all directories again."""
        found: list[Stray] = []
        for directory in self._directories.online():
            self._directories.attempt(directory, partial(self._list_strays, directory.path, found))
        self.strays = found

    def _list_strays(self, path: str, found: list[Stray]) -> None:
        found.extend(list_strays(self._fs, path))

    def expire_strays(self, retention_ms: int) -> None:
        """Delete the logs that were set aside for longer than `retention_ms`."""
        self.find_strays()
        now_ms = self._clock.wall_ms()
        for stray in self.strays:
            directory = self._directories.at(os.path.dirname(stray.path))
            if directory is not None:
                self._directories.attempt(directory, partial(expire, self._fs, [stray], now_ms, retention_ms))
        self.find_strays()
