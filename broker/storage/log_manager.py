"""All logs of a broker: loading at start, creating, deleting, moving to another directory, checkpoints, clean stop.

The manager owns the log directories (`log_directories.py`), the registry of logs (`log_registry.py`), the opener
(`log_opener.py`) and the remover (`log_removal.py`).

Rules
1. A log directory whose disk failed goes offline as a whole: its logs refuse work, other directories are not affected.
2. A recovery point is checkpointed only after everything below it was flushed.
3. The clean-shutdown marker is written after every log of the directory was flushed and closed. It is not written if
   loading did not finish.
4. A log that moves to another directory has a copy there, its *future log* (`…-future`, KIP-113), which has no readers.
   When the copy has caught up, it takes the name and the place of the current log, which is then deleted. If a
   partition has two current logs, they hold the same records (after a crash between these two renames), or one is
   empty (its disk failed during its creation). The longer one stays. The other is set aside unless it is empty.
5. A log is deleted only for a topic id that a record or a request names. A log that metadata does not know is set aside
   (`strays.py`).

Threads: `open_directories`, `load_logs`, `start`, `shutdown` by the thread that starts and stops the broker; the rest
by any.

Source: Kafka's LogManager, 4.3.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from barnabas.broker.storage import log_upkeep
from barnabas.broker.storage.directories.checkpoints import UNKNOWN_BROKER_EPOCH, OffsetCheckpoint
from barnabas.broker.storage.directories.log_directories import LogDirectories
from barnabas.broker.storage.directories.log_directory import LogDirectory, LogDirectoryError
from barnabas.broker.storage.directories.names import future_dir_name, is_delete_dir, is_future_dir, partition_dir_name
from barnabas.broker.storage.directories.strays import Stray
from barnabas.broker.storage.invariants import violations
from barnabas.broker.storage.log.log import Log, LogConfig
from barnabas.broker.storage.log_loading import Found, in_threads, load_directory
from barnabas.broker.storage.log_opener import LogOpener
from barnabas.broker.storage.log_registry import LogRegistry
from barnabas.broker.storage.log_removal import LogRemover
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.config import Config
from barnabas.protocol.errors import ApiError, ErrorCode

__all__ = ["LogDirectoryError", "LogManager"]

log = logging.getLogger("barnabas.storage.log_manager")

INVARIANTS_CHECK_MS = 10_000
LONG_MAX = 2**63 - 1

DirectoryFailureListener = Callable[[LogDirectory], None]
"""Called with a directory that went offline, by the thread that noticed. That thread may hold the log's lock, so the
listener must only pass the directory on."""


class LogWatcher(Protocol):
    """The cleaner, as the log manager sees it: it keeps notes that must follow truncations and removals."""

    def on_truncated(self, target: Log, offset: int) -> None:
        """Take in that a log was truncated to `offset`."""

    def on_removed(self, tp: TopicPartition, directory: str) -> None:
        """Take in that a partition left a log directory."""


class LogManager:
    """The logs of one broker and what happens to them; see the module."""

    def __init__(
        self,
        config: Config,
        log_dirs: Sequence[str | os.PathLike[str]],
        clock: Clock,
        scheduler: TaskScheduler,
        fs: FileSystem,
        *,
        checks_invariants: bool = sys.flags.dev_mode,
    ) -> None:
        """`config` is the broker's; its values may change at run time.

        `checks_invariants`: check the invariants of every log from time to time and log what is broken. This is the
        default in Python's development mode (`python -X dev`).
        """
        # Fixed before start
        self._checks_invariants = checks_invariants
        self.on_directory_failure: DirectoryFailureListener | None = None
        self.watcher: LogWatcher | None = None
        self.on_flush: Callable[[float], None] | None = None  # called with the ms of each flush
        self._node_id = -1
        self._config = config
        self.clock = self._clock = clock  # fixed before start; of the logs, which may be moved
        self._scheduler = scheduler
        self._directories = LogDirectories(config, log_dirs, fs, self.fail_directory)
        self._registry = LogRegistry()
        self._opener = LogOpener(
            config,
            clock,
            scheduler,
            fs,
            self._directories,
            on_truncated=self._on_truncated,
            on_flush=self._on_flush,
        )
        self._remover = LogRemover(
            self._directories,
            clock,
            scheduler,
            fs,
            write_checkpoints=self._write_checkpoints,
            on_removed=self._on_removed,
        )
        self._has_loaded = False  # set once by the starting thread; checkpoints are written from then on
        self._checkpoints_truncations = False  # a job for it is scheduled; set by any thread, and races do not matter

    # Events of logs

    def _on_truncated(self, target: Log, offset: int) -> None:
        if self.watcher is not None:
            self.watcher.on_truncated(target, offset)
        # Why now: after a loss of power, a point above the new end would exempt what is written there from the check.
        # Why as a job: a follower truncates many logs in turn, and one checkpoint has the logs of a directory.
        if not self._checkpoints_truncations:
            self._checkpoints_truncations = True
            self._scheduler.schedule_once("truncation-checkpoint", self._checkpoint_truncations)

    def _checkpoint_truncations(self) -> None:
        self._checkpoints_truncations = False
        if self._has_loaded:
            self.checkpoint_recovery_points()

    def _on_flush(self, elapsed_ms: float) -> None:
        if self.on_flush is not None:
            self.on_flush(elapsed_ms)

    def _on_removed(self, tp: TopicPartition, directory: str) -> None:
        if self.watcher is not None:
            self.watcher.on_removed(tp, directory)

    # Lookups

    @property
    def directories(self) -> list[LogDirectory]:
        """Every log directory; fixed before start."""
        return self._directories.all

    def online_directories(self) -> list[LogDirectory]:
        """Return the directories that can be used."""
        return self._directories.online()

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the log directory with this path; None if `log.dirs` does not have it."""
        return self._directories.at(path)

    def directory_of(self, found: Log) -> LogDirectory:
        """Return the log directory of a log."""
        return self._directories.of(found.directory)

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Return whether a log directory gets no new replicas (cordoned.log.dirs, KIP-1066)."""
        return self._directories.is_cordoned(directory)

    def get_log(self, tp: TopicPartition) -> Log | None:
        """Return a partition's log; None if there is none."""
        return self._registry.get(tp)

    def future_log(self, tp: TopicPartition) -> Log | None:
        """Return a partition's future log; None if it does not move."""
        return self._registry.get_future(tp)

    def all_logs(self) -> list[Log]:
        """Return every current log that is not being deleted."""
        return self._registry.all_current()

    def future_logs(self) -> list[Log]:
        """Return every future log."""
        return self._registry.all_future()

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """Return the logs in one directory, future ones too."""
        return self._registry.in_directory(directory)

    @property
    def strays(self) -> list[Stray]:
        """The stray logs that were found last."""
        return self._remover.strays

    def violations(self) -> list[str]:
        """Check the invariants of every log; returns one line for each log that breaks one."""
        return violations(self._registry.all())

    def report_violations(self) -> None:
        """Check the invariants of every log; logs an error for each log that breaks one."""
        for line in self.violations():
            log.error("An invariant is broken: %s", line)

    # Starting

    def open_directories(self, node_id: int) -> str | None:
        """Lock every directory; returns the cluster id that they record, None if they are new.

        A directory whose disk fails goes offline. Raises LogDirectoryError if none is left, or for a directory of
        another node or cluster.
        """
        self._node_id = node_id
        return self._directories.open(node_id)

    def identify(self, cluster_id: str) -> None:
        """Record the cluster's id in every directory; raises LogDirectoryError if one has another."""
        for directory in self.online_directories():
            self._directories.attempt(directory, partial(directory.identify, cluster_id, self._node_id))
        self._directories.check_some_online()

    def load_logs(self, topic_config: Callable[[str], LogConfig] | None = None) -> int:
        """Open every partition's log, recovering after a crash; returns how many there are.

        `topic_config(topic)` returns a topic's settings as far as they are known; without it the broker's defaults
        hold. Raises LogDirectoryError if a person must fix the cause.
        """
        configs = topic_config if topic_config is not None else lambda _topic: self._config.topic_config()

        def load(found: Found) -> None:
            config = configs(found.tp.topic)
            if is_delete_dir(found.name):
                self._remover.delete_found(found.directory, found.name, config.file_delete_delay_ms)
                return
            opened = self._opener.open(found, config)
            opened.is_configured = topic_config is not None
            self._add_loaded(opened, found.name)

        thread_count = int(self._config.num_recovery_threads_per_data_dir)
        for directory in self.online_directories():
            self._directories.attempt(directory, partial(load_directory, directory, load, thread_count))
        # Why now: a log that was deleted, or set aside, just before a crash is still in the checkpoints. A new log of
        # its name would begin, after the next crash, at the start offset of the old one, and lose its records.
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        for directory in self.online_directories():
            self._directories.attempt(directory, directory.note_boot)
        self._directories.check_some_online()
        self.find_strays()
        self._has_loaded = True
        return len(self._registry.current)

    def _add_loaded(self, opened: Log, name: str) -> None:
        registry = self._registry
        with registry.lock:
            logs = registry.future if is_future_dir(name) else registry.current
            other = logs.setdefault(opened.topic_partition, opened)
            if other is opened:
                return
            if None not in (other.topic_id, opened.topic_id) and other.topic_id != opened.topic_id:
                raise LogDirectoryError(
                    f"{opened.topic_partition} is in two log directories: {other.directory} and {opened.directory}"
                )
            kept, spare = sorted((other, opened), key=_completeness, reverse=True)
            logs[opened.topic_partition] = kept
        log.warning(
            "%s is in two log directories: %s is kept, not %s", kept.topic_partition, kept.directory, spare.directory
        )
        if spare.log_end_offset > spare.log_start_offset:
            self._remover.set_aside([spare], f"{kept.directory} holds the same partition")
        else:
            self._remover.discard([spare])

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
        every("stray-retention", self.expire_strays, config.log_retention_check_interval_ms)
        every("producer-expiration", self.remove_expired_producers, config.producer_id_expiration_check_interval_ms)
        if self._checks_invariants:
            every("invariants-check", self.report_violations, INVARIANTS_CHECK_MS)

    def _every(self, name: str, job: Callable[[], object], period_ms: int) -> None:
        if 0 < period_ms < LONG_MAX:
            self._scheduler.schedule(name, job, period_ms, min(self._config.log_initial_task_delay_ms, period_ms))

    # Creating

    def get_or_create_log(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, is_new: bool = False
    ) -> Log:
        """Return a partition's log with these settings; creates it if there is none.

        A new log goes to its preferred directory, or to the one with the fewest logs (a cordoned one only if all are).
        Raises ApiError: KAFKA_STORAGE_ERROR if the disk fails, or if the log may lie in an offline directory (unless
        `is_new`); INCONSISTENT_TOPIC_ID.
        """
        registry = self._registry
        if not is_new:
            self._adopt_copy(tp, topic_id)
        with registry.lock:
            found = registry.current.get(tp)
            if found is None:
                if not is_new:
                    self._check_all_online(tp)
                preferred = registry.take_preferred_locked(tp)
                candidates = self._by_load() if preferred is None else [preferred]
                found = self._opener.create(tp, config, partition_dir_name(tp), candidates)
                registry.current[tp] = found
        if topic_id is not None and any(topic_id):
            found.assign_topic_id(topic_id)
        if found.config is not config:
            found.update_config(config)
        return found

    def _adopt_copy(self, tp: TopicPartition, topic_id: bytes | None) -> None:
        """Make a future log the current one if there is no other: its move was cut short, and its source is gone.

        Source: LogManager.recoverAbandonedFutureLogs (Kafka 4.3).
        """
        registry = self._registry
        with registry.lock:
            copy = registry.future.get(tp)
            if copy is None or tp in registry.current or copy.topic_id != topic_id:
                return
        self._check_all_online(tp)
        log.warning("The log that %s was copied from is gone: the copy takes its place", copy.directory)
        copy.rename(partition_dir_name(tp))
        registry.adopt_future(tp, copy)

    def _check_all_online(self, tp: TopicPartition) -> None:
        offline = self._directories.offline()
        if offline:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can't create log for {tp} because log directories "
                f"{', '.join(directory.path for directory in offline)} are offline",
            )

    def _by_load(self) -> list[LogDirectory]:
        """Return the usable directories, the one with the fewest logs first, cordoned ones last."""
        online = self.online_directories()
        if len(self.directories) == 1:
            return online
        counts = dict.fromkeys((directory.path for directory in self.directories), 0)
        for found in self._registry.all_unlocked():
            counts[os.path.dirname(found.directory)] += 1
        return sorted(online, key=lambda directory: (self.is_cordoned(directory), counts[directory.path]))

    # Moving between directories

    def prefer_directory(self, tp: TopicPartition, directory: LogDirectory) -> None:
        """Create the partition's log in `directory` if it is created later; forgotten if it is, or moves, there.

        Raises ApiError(INVALID_REQUEST) for too many partitions.
        """
        self._registry.prefer(tp, directory)

    def create_future_log(self, tp: TopicPartition, directory: LogDirectory) -> Log:
        """Return the partition's future log; creates it in `directory` if there is none.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        registry = self._registry
        with registry.lock:
            current = registry.current[tp]
            found = registry.future.get(tp)
            if found is None:
                self._check_all_online(tp)
                found = self._opener.create(tp, current.config, future_dir_name(tp), [directory])
                registry.future[tp] = found
            registry.take_preferred_locked(tp)
        if current.topic_id is not None:
            found.assign_topic_id(current.topic_id)
        return found

    def drop_future_log(self, tp: TopicPartition) -> None:
        """Cancel a move: the future log is deleted."""
        registry = self._registry
        with registry.lock:
            found = registry.future.pop(tp, None)
        if found is not None:
            self._remover.discard([found])

    def swap_in_future(self, tp: TopicPartition) -> Log | None:
        """Make the future log, which has all records, the current one, and delete that; returns the new current log.

        None if the move, or the partition, was cancelled meanwhile. The caller holds the partition's lock, so nothing
        is appended. Raises ApiError(KAFKA_STORAGE_ERROR) and then keeps the current log.
        """
        registry = self._registry
        with registry.lock:
            old, new = registry.current.get(tp), registry.future.get(tp)
        if old is None or new is None:
            return None
        for epoch, start_offset in old.leader_epoch_cache.entries:
            if epoch > new.latest_epoch:  # of a leader that has written nothing yet
                new.assign_epoch_start_offset(epoch, start_offset)
        new.rename(partition_dir_name(tp))
        new.update_high_watermark(old.high_watermark)
        new.update_config(old.config)
        if not registry.swap_in_future(tp, old, new):
            return None  # the thread that removed a log from the registry deletes it, under any name
        self._remover.discard([old])
        return new

    # Deleting

    def delete_logs(self, doomed: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, ApiError]:
        """Forget the logs of deleted partitions, given with their topic ids; their files go after a delay.

        The delay is file.delete.delay.ms. A log of another topic id is set aside instead. Returns the failures.
        """
        gone = self._registry.remove(doomed)
        ids = {found.topic_partition: found.topic_id for found in gone if found.topic_id is not None}
        named: list[Log] = []
        others: list[Log] = []
        for found in gone:
            tp = found.topic_partition
            is_named = (found.topic_id or ids.get(tp)) == doomed[tp]
            (named if is_named else others).append(found)
        refused = self._remover.discard(named)
        return refused | self._remover.set_aside(others, "its topic was deleted, but the log has another id or none")

    def set_aside(self, strays: Mapping[TopicPartition, bytes | None], reason: str) -> dict[TopicPartition, ApiError]:
        """Forget the logs of partitions now and set them aside (`strays.py`); returns the failures.

        A log of the topic id given is not touched; None: all are set aside.
        """
        return self._remover.set_aside(self._registry.remove_strays(strays), reason)

    def find_strays(self) -> None:
        """List the stray logs of all directories again."""
        self._remover.find_strays()

    def expire_strays(self) -> None:
        """Delete the logs that were set aside for longer than barnabas.stray.retention.ms."""
        self._remover.expire_strays(int(self._config.barnabas_stray_retention_ms))

    # Failing

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline (rule 1). Takes no lock: the caller may hold a log's, or the registry's."""
        if directory.is_offline:
            return
        directory.failure = error
        log.error("Log directory %s goes offline: %s", directory.path, error)
        for found in self._registry.all_unlocked():
            if os.path.dirname(found.directory) == directory.path:
                found.mark_offline(error)
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)

    def forget_directory(self, directory: LogDirectory) -> list[TopicPartition]:
        """Forget the logs of an offline directory and close their files; returns the partitions that lost their log.

        Moves into the directory, or out of it, are cancelled.
        """
        lost, forgotten = self._registry.remove_directory(directory.path)
        for found in forgotten:
            log_upkeep.quietly(found, Log.close)
        return lost

    # Periodic work

    def delete_old_segments(self) -> int:
        """Apply retention to every log; returns how many segments were deleted."""
        return log_upkeep.delete_old_segments(self._registry.all(), self._clock.wall_ms())

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose flush.ms has passed since their last flush."""
        log_upkeep.flush_dirty_logs(self._registry.all(), self._clock.wall_ms())

    def remove_expired_producers(self) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        for found in self.all_logs():
            found.remove_expired_producers()

    def _write_checkpoints(self) -> None:
        """Write all checkpoints, unless loading did not finish: a log that is not loaded yet would be missing there."""
        if self._has_loaded:
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()

    def checkpoint_recovery_points(self) -> None:
        """Write every directory's recovery points."""
        for directory in self.online_directories():
            with directory.checkpointing:
                logs = self.logs_in(directory)
                points = {found.topic_partition: found.point_to_checkpoint() for found in logs}
                self._checkpoint(directory, directory.recovery_points, points)
                for found in logs:
                    found.note_checkpointed(points[found.topic_partition])

    def checkpoint_log_start_offsets(self) -> None:
        """Write every directory's log start offsets, without those that equal the base of the first segment."""
        for directory in self.online_directories():
            with directory.checkpointing:
                starts = {
                    found.topic_partition: found.log_start_offset
                    for found in self.logs_in(directory)
                    if found.log_start_offset > found.segments.first.base_offset
                }
                self._checkpoint(directory, directory.log_start_offsets, starts)

    def _checkpoint(
        self, directory: LogDirectory, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> None:
        self._directories.attempt(directory, partial(checkpoint.write, offsets))

    # Stopping

    def previous_broker_epoch(self) -> int:
        """Return the broker epoch of the last stop, if it was clean in every log directory; else -1.

        Source: LogManager.readBrokerEpochFromCleanShutdownFiles (Kafka 4.3).
        """
        epochs = {None if d.is_offline else d.clean_shutdown_epoch for d in self.directories}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return UNKNOWN_BROKER_EPOCH if epoch is None else epoch

    def shutdown(self, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Flush and close every log, write the checkpoints and, if all succeeded, the clean-shutdown marker."""
        thread_count = int(self._config.num_recovery_threads_per_data_dir)
        for directory in self.online_directories():
            # Why in threads: the fsyncs of two logs cost the disk little more than those of one.
            in_threads(
                f"log-closing-{directory.path}",
                self.logs_in(directory),
                lambda found: log_upkeep.quietly(found, log_upkeep.flush_and_close),
                thread_count,
            )
        self._write_checkpoints()
        for directory in self.directories:
            if self._has_loaded:
                self._directories.attempt(directory, partial(directory.mark_clean_shutdown, broker_epoch))
            directory.close()


def _completeness(found: Log) -> tuple[bool, int, int]:
    """Order the logs of one partition as Raft orders logs; one without a topic id was not created completely."""
    return found.topic_id is not None, found.latest_epoch, found.log_end_offset
