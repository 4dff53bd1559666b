"""Opens the log of a partition's directory, and creates logs in the first directory that can take them.

Threads: any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.storage.directories.log_directories import LogDirectories
from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.directories.names import shared
from barnabas.broker.storage.log.log import Log, LogConfig, TruncationListener
from barnabas.broker.storage.log.recovery import LogLoader
from barnabas.broker.storage.log_loading import Found
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.config import Config
from barnabas.protocol.errors import ApiError, ErrorCode


class LogOpener:
    """Opens and creates the logs of one broker."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        scheduler: TaskScheduler,
        fs: FileSystem,
        directories: LogDirectories,
        *,
        on_truncated: TruncationListener,
        on_flush: Callable[[float], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._fs = fs
        self._directories = directories
        self._on_truncated = on_truncated
        self._on_flush = on_flush
        self._on_disk_failure = self._fail  # Why here: one object for all logs

    def _fail(self, partition_directory: str, error: OSError) -> None:
        self._directories.fail(self._directories.of(partition_directory), error)

    def open(self, found: Found, config: LogConfig, *, is_new: bool = False) -> Log:
        """Load a partition's directory, which may have been made just now, and open its log; raises OSError."""
        path = shared(f"{found.directory.path}/{found.name}")
        loaded = LogLoader(
            self._fs,
            path,
            found.tp,
            config,
            self._clock,
            log_start_offset=found.log_start_offset,
            recovery_point=found.recovery_point,
            clean_shutdown=found.is_clean,
            may_have_holes=found.may_have_holes,
            is_new=is_new,
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
        opened.on_flush = self._on_flush
        if found.may_have_gaps:
            opened.note_gaps()
        opened.flush_recovered()
        return opened

    def create(self, tp: TopicPartition, config: LogConfig, name: str, candidates: Sequence[LogDirectory]) -> Log:
        """Create a log in the first candidate whose disk allows it; raises ApiError(KAFKA_STORAGE_ERROR)."""
        for directory in candidates:
            if directory.is_offline:
                continue
            try:
                is_new = self._fs.mkdir(f"{directory.path}/{name}")
                return self.open(Found(directory, name, tp), config, is_new=is_new)
            except OSError as error:
                self._directories.fail(directory, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory is usable for {tp}")
