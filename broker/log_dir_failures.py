"""LogDirFailures: takes a failed log directory out of service.

Any thread may notice the failure, often with a log's lock held; it only queues the directory. The handler thread holds
no lock. It takes the directory's partitions offline (clients get KAFKA_STORAGE_ERROR, fetchers drop them), forgets
their logs, and reports the directory to the controller, which moves their leadership to other brokers. When no
directory is left, the broker stops.

Threads: `LogDirFailureHandler` handles; any thread queues.
Source: Kafka's ReplicaManager.LogDirFailureHandler, handleLogDirFailure (4.3).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.replication.leadership import Leadership
    from barnabas.broker.storage.directories.log_directory import LogDirectory
    from barnabas.broker.storage.log_manager import LogManager

log = logging.getLogger("barnabas.replication")


class LogDirFailures:
    """Handles failed directories on a thread of its own; see the module."""

    def __init__(
        self,
        log_manager: LogManager,
        leadership: Leadership,
        report: Callable[[bytes], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._log_manager = log_manager  # fixed before start
        self._leadership = leadership  # fixed before start
        self._report = report  # fixed before start; sends a directory id to the controller, must not block
        self._on_fatal = on_fatal  # fixed before start
        self._failed: queue.SimpleQueue[LogDirectory | None] = queue.SimpleQueue()
        self._thread = ServiceThread("LogDirFailureHandler", "log-dir-failure", self._run)
        log_manager.on_directory_failure = self._failed.put

    def start(self) -> None:
        """Start the thread; it first handles earlier failures."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread; failures that are still queued stay unhandled."""
        self._failed.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (directory := self._failed.get()) is not None:
            self.handle(directory)

    def handle(self, directory: LogDirectory) -> None:
        """Take one directory out of service; called on the thread."""
        if not self._log_manager.online_directories():
            self._on_fatal(f"all log directories have failed, the last was {directory.path}: {directory.failure}")
            return
        lost = self._log_manager.forget_directory(directory)
        self._leadership.take_offline(lost)
        log.error("%d partitions are offline with %s", len(lost), directory.path)
        if directory.directory_id:  # else it never held anything
            self._report(directory.directory_id)
