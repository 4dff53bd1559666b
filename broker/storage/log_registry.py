"""Which logs a broker has, in which directories: looking, making, failing.

The lower of two layers: `LogRegistry` (what there is), `LogManager` (its life). Rules and threads stand in
`broker/storage/log_manager.py`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas.broker.storage import log_upkeep
from barnabas.broker.storage.log import Log, LogConfig
from barnabas.broker.storage.log_base import LogBase
from barnabas.broker.storage.log_directory import LogDirectory
from barnabas.broker.storage.log_loading import Found
from barnabas.broker.storage.names import partition_dir_name
from barnabas.broker.storage.recovery import LogLoader
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.broker.storage.strays import Stray
from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.checks import ALL_DIRECTORIES
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.storage.log_manager")

DirectoryFailureListener = Callable[[LogDirectory], None]


class LogWatcher(Protocol):
    """Who keeps notes of logs that must follow what happens to them: the cleaner."""

    def on_truncated(self, target: LogBase, offset: int) -> None:
        """A log was cut off at an offset."""

    def on_removed(self, tp: TopicPartition, directory: str) -> None:
        """A partition lies in this log directory no more."""


class LogRegistry:
    """The logs of one broker, by partition.

    `config` is the broker's; `on_directory_failure`, if set before `start`, is told of a directory that went offline,
    on the thread that noticed, which may hold that log's lock: it must only pass the news on.
    """

    def __init__(
        self,
        config: Any,
        log_dirs: Sequence[str | os.PathLike[str]],
        clock: Clock,
        scheduler: TaskScheduler,
        fs: FileSystem,
    ) -> None:
        self.on_directory_failure: DirectoryFailureListener | None = None  # fixed before start
        self.watcher: LogWatcher | None = None  # fixed before start
        self.directories = [LogDirectory(fs, os.path.abspath(path)) for path in log_dirs]  # fixed before start
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._fs = fs
        self._lock = threading.Lock()  # guards the maps of logs and the making of new ones
        self._logs: dict[TopicPartition, Log] = {}  # guarded by: _lock; single look-ups without it
        self._future: dict[TopicPartition, Log] = {}  # guarded by: _lock; single look-ups without it
        self._preferred: dict[TopicPartition, LogDirectory] = {}  # guarded by: _lock; where to make a log to come
        self._to_delete: list[Log] = []  # guarded by: _lock
        self.strays: list[Stray] = []  # what was set aside; replaced whole
        self._node_id = -1  # fixed before start
        self.on_flush: Callable[[float], None] | None = None  # fixed before start; told the ms of each flush
        self._has_loaded = False  # owner: the starting thread

    # Looking

    def get_log(self, tp: TopicPartition) -> Log | None:
        """Return a partition's log, None if there is none."""
        return self._logs.get(tp)

    def future_log(self, tp: TopicPartition) -> Log | None:
        """Return a partition's log on its way to another directory, None if it does not move."""
        return self._future.get(tp)

    def all_logs(self) -> list[Log]:
        """Return every current log that is not being deleted."""
        with self._lock:
            return list(self._logs.values())

    def future_logs(self) -> list[Log]:
        """Return every future log."""
        with self._lock:
            return list(self._future.values())

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """Return the logs of one directory, future ones too."""
        with self._lock:
            logs = [*self._logs.values(), *self._future.values()]
        return [found for found in logs if os.path.dirname(found.directory) == directory.path]

    def directory_of(self, found: Log) -> LogDirectory:
        """Return the log directory that a log lies in."""
        path = os.path.dirname(found.directory)
        return next(directory for directory in self.directories if directory.path == path)

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the log directory of this path, None if `log.dirs` does not have it."""
        wanted = os.path.abspath(path)
        return next((directory for directory in self.directories if directory.path == wanted), None)

    def online_directories(self) -> list[LogDirectory]:
        """Return the directories that can be used."""
        return [directory for directory in self.directories if not directory.is_offline]

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Whether a log directory gets no new replicas (cordoned.log.dirs, KIP-1066)."""
        named = self._config.cordoned_log_dirs
        return bool(named) and (ALL_DIRECTORIES in named or directory.path in map(os.path.abspath, named))

    # Creating

    def get_or_create_log(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, is_new: bool = False
    ) -> Log:
        """Return a partition's log with these settings, making it in the directory that has the fewest, one that is
        not cordoned if there is one.

        Raises ApiError: KAFKA_STORAGE_ERROR where the disk fails or the log may lie on a failed one;
        INCONSISTENT_TOPIC_ID.
        """
        with self._lock:
            found = self._logs.get(tp)
            if found is None:
                if not is_new:
                    self._check_all_online(tp)
                preferred = self._preferred.pop(tp, None)
                candidates = self._by_load_locked() if preferred is None else [preferred]
                found = self._logs[tp] = self._create(tp, config, partition_dir_name(tp), candidates)
        if topic_id is not None and any(topic_id):
            found.assign_topic_id(topic_id)
        if found.config is not config:
            found.update_config(config)
        return found

    def _check_all_online(self, tp: TopicPartition) -> None:
        offline = [directory.path for directory in self.directories if directory.is_offline]
        if offline:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can't create log for {tp} because log directories {', '.join(offline)} are offline",
            )

    def _create(self, tp: TopicPartition, config: LogConfig, name: str, candidates: list[LogDirectory]) -> Log:
        """Make a log in the first of these directories whose disk allows it."""
        for directory in candidates:
            if directory.is_offline:
                continue
            try:
                self._fs.mkdir(f"{directory.path}/{name}")
                return self._open(Found(directory, name, tp), config)
            except OSError as error:
                self.fail_directory(directory, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory is usable for {tp}")

    def _by_load_locked(self) -> list[LogDirectory]:
        """Return the usable directories, the one with the fewest partitions first, cordoned ones after all others."""
        if len(self.directories) == 1:
            return self.online_directories()
        counts = dict.fromkeys((directory.path for directory in self.directories), 0)
        for found in (*self._logs.values(), *self._future.values()):
            counts[found.directory.rpartition("/")[0]] += 1
        return sorted(self.online_directories(), key=lambda found: (self.is_cordoned(found), counts[found.path]))

    def _open(self, found: Found, config: LogConfig) -> Log:
        path = f"{found.directory.path}/{found.name}"
        loaded = LogLoader(
            self._fs,
            path,
            found.tp,
            config,
            self._clock,
            log_start_offset=found.log_start_offset,
            recovery_point=found.recovery_point,
            clean_shutdown=found.is_clean,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        ).load()
        loaded.producer_state.verifies = self._config.transaction_partition_verification_enable
        opened = Log(
            self._fs,
            path,
            found.tp,
            config,
            self._clock,
            self._scheduler,
            loaded,
            on_disk_failure=self._on_disk_failure,
            on_truncated=self._on_truncated,
            full_validation=self._config.barnabas_record_validation == "full",
            decompressed_max=self._config.barnabas_record_decompressed_max_bytes,
        )
        opened.on_flush = self.on_flush
        return opened

    def _on_truncated(self, target: LogBase, offset: int) -> None:
        if self.watcher is not None:
            self.watcher.on_truncated(target, offset)

    # Failing

    def _on_disk_failure(self, partition_directory: str, error: OSError) -> None:
        directory = self.directory_at(os.path.dirname(partition_directory))
        assert directory is not None, partition_directory
        self.fail_directory(directory, error)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline (rule 1). Takes no lock: it is called with a log's or with `_lock` held."""
        if directory.is_offline:
            return
        directory.failure = error
        log.error("Log directory %s goes offline: %s", directory.path, error)
        for found in (*self._logs.copy().values(), *self._future.copy().values()):
            if os.path.dirname(found.directory) == directory.path:
                found.mark_offline(error)
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)

    def forget_directory(self, directory: LogDirectory) -> list[TopicPartition]:
        """Forget the logs of a directory that is offline, give their files up; returns whose logs these were.

        Moves into it, or out of it, are over.
        """
        with self._lock:
            lost = {tp: found for tp, found in self._logs.items() if os.path.dirname(found.directory) == directory.path}
            copies = {
                tp: found
                for tp, found in self._future.items()
                if tp in lost or os.path.dirname(found.directory) == directory.path
            }
            for tp in lost:
                del self._logs[tp]
            for tp in copies:
                del self._future[tp]
        for found in (*lost.values(), *copies.values()):
            log_upkeep.quietly(found, log_upkeep.close)
        return list(lost)
