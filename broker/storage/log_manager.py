"""All logs of a broker: loading at start, creating, deleting, checkpoints, retention, flushing, clean stop.

Rules
1. A log directory whose disk failed goes offline as a whole: its logs refuse work, the others go on.
2. A recovery point is checkpointed only after what lies below it was flushed.
3. The clean-shutdown marker is written after every log of the directory was flushed and closed, and not at all if
   loading did not finish.

Threads: `open_directories`, `load_logs`, `start`, `shutdown` by the thread that starts and stops the broker; the rest
by any. `_lock` guards the map of logs and the making of new ones; a log's own lock is never taken while it is held,
except for a log that nobody else knows yet.

Source: Kafka's LogManager, 4.3.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from broker.storage.checkpoints import UNKNOWN_BROKER_EPOCH, CorruptCheckpointError, OffsetCheckpoint
from broker.storage.log import Log, LogConfig
from broker.storage.log_directory import LogDirectory, LogDirectoryError
from broker.storage.names import METADATA_LOG_DIR, is_delete_dir, parse_dir_name, partition_dir_name
from broker.storage.recovery import LogLoader
from broker.storage.retention import delete_old_segments
from broker.storage.scheduler import TaskScheduler

__all__ = ["LogDirectoryError", "LogManager"]

log = logging.getLogger("barnabas.storage.log_manager")

INITIAL_TASK_DELAY_MS = 30_000
PRODUCER_EXPIRATION_CHECK_MS = 600_000
LONG_MAX = 2**63 - 1

DirectoryFailureListener = Callable[[LogDirectory], None]


class LogManager:
    """The logs of one broker.

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
        self.directories = [LogDirectory(fs, os.path.abspath(path)) for path in log_dirs]  # fixed before start
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._fs = fs
        self._lock = threading.Lock()  # guards the map of logs and the making of new ones
        self._logs: dict[TopicPartition, Log] = {}  # guarded by: _lock; single look-ups without it
        self._to_delete: list[Log] = []  # guarded by: _lock
        self._node_id = -1  # fixed before start
        self._loaded = False  # owner: the starting thread

    # Starting

    def open_directories(self, node_id: int) -> str | None:
        """Lock every directory; returns the cluster id that they bear, None if they are new.

        Raises LogDirectoryError.
        """
        self._node_id = node_id
        for directory in self.directories:
            directory.open(node_id)
        known = {directory.cluster_id for directory in self.directories if directory.cluster_id is not None}
        if len(known) > 1:
            raise LogDirectoryError(f"the log directories belong to different clusters: {', '.join(sorted(known))}")
        return next(iter(known), None)

    def identify(self, cluster_id: str) -> None:
        """Record the cluster's id in every directory; raises LogDirectoryError if one has another."""
        for directory in self.directories:
            directory.identify(cluster_id, self._node_id)

    def load_logs(self, topic_config: Callable[[str], LogConfig] | None = None) -> int:
        """Open every partition found, recovering after a crash; returns how many.

        `topic_config(topic)` gives a topic's settings as far as they are known yet; the broker's defaults otherwise.
        """
        configs = topic_config if topic_config is not None else lambda _topic: self._default_config()
        for directory in self.directories:
            try:
                self._load_directory(directory, configs)
            except OSError as error:
                self._fail_directory(directory, error)
        self._loaded = True
        return len(self._logs)

    def _default_config(self) -> LogConfig:
        made: LogConfig = self._config.topic_config()
        return made

    def _load_directory(self, directory: LogDirectory, configs: Callable[[str], LogConfig]) -> None:
        clean = directory.take_clean_shutdown()
        recovery_points = _read_or_empty(directory.recovery_points)
        starts = _read_or_empty(directory.log_start_offsets)
        names = [name for name in directory.partition_names() if name != METADATA_LOG_DIR]
        log.info(
            "Loading %d logs of %s after %s stop", len(names), directory.path, "a clean" if clean else "an unclean"
        )

        def load(name: str) -> None:
            tp = parse_dir_name(name)
            if tp is None:
                log.warning("%s/%s is no partition's directory, it is left alone", directory.path, name)
                return
            opened = self._open(
                directory,
                name,
                tp,
                configs(tp.topic),
                log_start_offset=starts.get(tp, 0),
                recovery_point=recovery_points.get(tp, 0),
                clean=clean,
            )
            self._take_in(opened, name)

        self._in_threads(directory, names, load)

    def _take_in(self, opened: Log, name: str) -> None:
        if is_delete_dir(name):
            self._delete_later(opened)
            return
        with self._lock:
            other = self._logs.setdefault(opened.topic_partition, opened)
        if other is not opened:
            raise LogDirectoryError(
                f"{opened.topic_partition} is in two log directories: {other.directory} and {opened.directory}"
            )

    def _in_threads(self, directory: LogDirectory, names: list[str], load: Callable[[str], None]) -> None:
        """Load in `num.recovery.threads.per.data.dir` threads; the first error ends the directory's loading."""
        jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in names:
            jobs.put(name)
        errors: list[BaseException] = []

        def work() -> None:
            while not errors:
                try:
                    name = jobs.get_nowait()
                except queue.Empty:
                    return
                try:
                    load(name)
                except (OSError, ApiError, LogDirectoryError) as error:
                    errors.append(error)

        count = min(len(names) - 1, int(self._config.num_recovery_threads_per_data_dir) - 1)
        threads = [
            ServiceThread(f"log-recovery-{directory.path}-{number}", f"log-recovery-{number}", work)
            for number in range(1, count + 1)
        ]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _open(
        self,
        directory: LogDirectory,
        name: str,
        tp: TopicPartition,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
    ) -> Log:
        path = f"{directory.path}/{name}"
        loaded = LogLoader(
            self._fs,
            path,
            tp,
            config,
            self._clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        ).load()
        return Log(
            self._fs,
            path,
            tp,
            config,
            self._clock,
            self._scheduler,
            loaded,
            on_disk_failure=self._on_disk_failure,
            full_validation=self._config.barnabas_record_validation == "full",
        )

    def start(self) -> None:
        """Begin the periodic work: retention, flushing, checkpoints, expiry of producers."""
        config, every = self._config, self._every
        every("kafka-log-retention", self.delete_old_segments, config.log_retention_check_interval_ms)
        every("kafka-log-flusher", self.flush_dirty_logs, config.log_flush_scheduler_interval_ms)
        every(
            "kafka-recovery-point-checkpoint",
            self.checkpoint_recovery_points,
            config.log_flush_offset_checkpoint_interval_ms,
        )
        every(
            "kafka-log-start-offset-checkpoint",
            self.checkpoint_log_start_offsets,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        every("producer-expiration", self.remove_expired_producers, PRODUCER_EXPIRATION_CHECK_MS)

    def _every(self, name: str, job: Callable[[], object], period_ms: int) -> None:
        if 0 < period_ms < LONG_MAX:
            self._scheduler.schedule(name, job, period_ms, min(INITIAL_TASK_DELAY_MS, period_ms))

    # The logs

    def get_log(self, tp: TopicPartition) -> Log | None:
        """Return a partition's log, None if there is none."""
        return self._logs.get(tp)

    def all_logs(self) -> list[Log]:
        """Return every log that is not being deleted."""
        with self._lock:
            return list(self._logs.values())

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """Return the logs of one directory."""
        return [found for found in self.all_logs() if os.path.dirname(found.directory) == directory.path]

    def get_or_create_log(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, is_new: bool = False
    ) -> Log:
        """Return a partition's log with these settings, making it in the directory that has the fewest.

        Raises ApiError: KAFKA_STORAGE_ERROR where the disk fails or the log may lie on a failed one;
        INCONSISTENT_TOPIC_ID.
        """
        with self._lock:
            found = self._logs.get(tp)
            if found is None:
                found = self._logs[tp] = self._create_locked(tp, config, is_new)
        if topic_id is not None and any(topic_id):
            found.assign_topic_id(topic_id)
        if found.config is not config:
            found.update_config(config)
        return found

    def _create_locked(self, tp: TopicPartition, config: LogConfig, is_new: bool) -> Log:
        offline = [directory.path for directory in self.directories if directory.is_offline]
        if offline and not is_new:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can't create log for {tp} because log directories {', '.join(offline)} are offline",
            )
        for directory in self._by_load_locked():
            name = partition_dir_name(tp)
            try:
                self._fs.mkdir(f"{directory.path}/{name}")
                self._fs.fsync_dir(directory.path)
                return self._open(directory, name, tp, config, log_start_offset=0, recovery_point=0, clean=True)
            except OSError as error:
                self._fail_directory(directory, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory is usable for {tp}")

    def _by_load_locked(self) -> list[LogDirectory]:
        """Return the usable directories, the one with the fewest partitions first."""
        counts = {directory.path: 0 for directory in self.directories}
        for found in self._logs.values():
            path = os.path.dirname(found.directory)
            counts[path] = counts.get(path, 0) + 1
        usable = [directory for directory in self.directories if not directory.is_offline]
        return sorted(usable, key=lambda directory: counts[directory.path])

    def delete_log(self, tp: TopicPartition) -> None:
        """Forget a partition's log now and remove its files after file.delete.delay.ms.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        with self._lock:
            found = self._logs.pop(tp, None)
        if found is None:
            return
        if not found.is_offline:
            found.rename_for_delete()
            self._delete_later(found)
        # Why now: a log made anew under this name must not inherit the recovery point.
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()

    def _delete_later(self, doomed: Log) -> None:
        with self._lock:
            self._to_delete.append(doomed)

        def delete() -> None:
            with self._lock:
                if doomed not in self._to_delete:
                    return
                self._to_delete.remove(doomed)
            doomed.delete()
            log.info("Deleted the log of %s in %s", doomed.topic_partition, doomed.directory)

        self._scheduler.schedule_once("kafka-delete-logs", delete, doomed.config.file_delete_delay_ms)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Give all logs of a topic new settings."""
        for found in self.all_logs():
            if found.topic_partition.topic == topic:
                found.update_config(config)

    # Periodic work

    def delete_old_segments(self) -> int:
        """Apply retention to every log; returns how many segments were deleted."""
        now_ms = self._clock.wall_ms()
        return sum(
            self._quietly(found, lambda target: delete_old_segments(target, now_ms)) for found in self.all_logs()
        )

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose flush.ms has passed since their last flush."""
        now_ms = self._clock.wall_ms()
        for found in self.all_logs():
            if now_ms - found.last_flushed_ms >= found.config.flush_ms and found.unflushed_messages:
                self._quietly(found, _flush)

    def remove_expired_producers(self) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        for found in self.all_logs():
            found.remove_expired_producers()

    def _quietly(self, target: Log, job: Callable[[Log], int]) -> int:
        """Run a job on one log; its failure must not keep the others from their turn."""
        try:
            return job(target)
        except ApiError as error:
            if not target.is_offline:
                log.warning("background work on %s failed: %s", target.topic_partition, error)
            return 0

    def checkpoint_recovery_points(self) -> None:
        """Write every directory's recovery points."""
        for directory in self._online():
            points = {found.topic_partition: found.recovery_point for found in self.logs_in(directory)}
            self._checkpoint(directory, directory.recovery_points, points)

    def checkpoint_log_start_offsets(self) -> None:
        """Write every directory's log start offsets, of those logs whose start is not that of their first segment."""
        for directory in self._online():
            starts = {
                found.topic_partition: found.log_start_offset
                for found in self.logs_in(directory)
                if found.log_start_offset > found.segments.first.base_offset
            }
            self._checkpoint(directory, directory.log_start_offsets, starts)

    def _checkpoint(
        self, directory: LogDirectory, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> None:
        try:
            checkpoint.write(offsets)
        except OSError as error:
            self._fail_directory(directory, error)

    def _online(self) -> Iterable[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    # Failing and stopping

    def _on_disk_failure(self, partition_directory: str, error: OSError) -> None:
        path = os.path.dirname(partition_directory)
        for directory in self.directories:
            if directory.path == path:
                self._fail_directory(directory, error)

    def _fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline (rule 1). Takes no lock: it is called with a log's or with `_lock` held."""
        if directory.is_offline:
            return
        directory.failure = error
        log.error("Log directory %s goes offline: %s", directory.path, error)
        for found in list(self._logs.values()):
            if os.path.dirname(found.directory) == directory.path:
                found.mark_offline(error)
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)

    def shutdown(self, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Flush and close every log, write the checkpoints and, where all went well, the clean-shutdown marker."""
        for found in self.all_logs():
            self._quietly(found, _flush_and_close)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        for directory in self.directories:
            if self._loaded and not directory.is_offline:
                try:
                    directory.mark_clean_shutdown(broker_epoch)
                except OSError as error:
                    self._fail_directory(directory, error)
            directory.close()


def _flush(target: Log) -> int:
    target.flush()
    return 0


def _flush_and_close(target: Log) -> int:
    target.flush()
    target.close()
    return 0


def _read_or_empty(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """Read a checkpoint; a damaged one means that everything is checked anew."""
    try:
        return checkpoint.read()
    except CorruptCheckpointError as error:
        log.warning("%s; starting without it", error)
        return {}
