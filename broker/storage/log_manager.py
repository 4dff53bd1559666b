"""All logs of a broker: loading at start, creating, deleting, moving to another directory, checkpoints, clean stop.

Rules
1. A log directory whose disk failed goes offline as a whole: its logs refuse work, the others go on.
2. A recovery point is checkpointed only after what lies below it was flushed.
3. The clean-shutdown marker is written after every log of the directory was flushed and closed, and not at all if
   loading did not finish.
4. A log on its way to another directory has a copy there, its *future log* (`…-future`, KIP-113), which nobody reads.
   When it has caught up it takes the name and the place of the current one, which is then deleted. Two current logs
   of a partition hold the same records (a crash between these two renames), or one is empty (its disk failed while
   it was made): the longer one stays, and the other is set aside unless it is empty.
5. A log is deleted only for a topic id that somebody named. What metadata does not know is set aside (strays.py).

Threads: `open_directories`, `load_logs`, `start`, `shutdown` by the thread that starts and stops the broker; the rest
by any. `_lock` guards the maps of logs and the making of new ones; a log's own lock is never taken while it is held,
except for a log that nobody else knows yet.

Source: Kafka's LogManager, 4.3.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.broker.storage import log_upkeep
from barnabas.broker.storage.checkpoints import UNKNOWN_BROKER_EPOCH, OffsetCheckpoint
from barnabas.broker.storage.log import Log, LogConfig
from barnabas.broker.storage.log_directory import LogDirectory, LogDirectoryError
from barnabas.broker.storage.log_loading import Found, in_threads, load_directory
from barnabas.broker.storage.log_registry import LogRegistry
from barnabas.broker.storage.names import future_dir_name, is_delete_dir, is_future_dir, partition_dir_name
from barnabas.broker.storage.strays import Note, expire, list_strays
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

__all__ = ["LogDirectoryError", "LogManager"]

log = logging.getLogger("barnabas.storage.log_manager")

INITIAL_TASK_DELAY_MS = 30_000
PRODUCER_EXPIRATION_CHECK_MS = 600_000
LONG_MAX = 2**63 - 1
PREFERRED_MAX = 100_000  # partitions to come of which a directory is remembered; anybody may name any


class LogManager(LogRegistry):
    """The logs of one broker through their life; see the module."""

    # Starting

    def open_directories(self, node_id: int) -> str | None:
        """Lock every directory; returns the cluster id that they bear, None if they are new.

        One whose disk fails is offline from the start. Raises LogDirectoryError if none is left, or for one that
        belongs to somebody else.
        """
        self._node_id = node_id
        paths = [directory.path for directory in self.directories]
        if len(set(paths)) < len(paths):
            raise LogDirectoryError(f"a log directory is named twice: {', '.join(sorted(paths))}")
        for directory in self.directories:
            directory.open(node_id)
        self._check_some_online()
        known = {directory.cluster_id for directory in self.directories if directory.cluster_id is not None}
        if len(known) > 1:
            raise LogDirectoryError(f"the log directories belong to different clusters: {', '.join(sorted(known))}")
        return next(iter(known), None)

    def identify(self, cluster_id: str) -> None:
        """Record the cluster's id in every directory; raises LogDirectoryError if one has another."""
        for directory in self.online_directories():
            try:
                directory.identify(cluster_id, self._node_id)
            except OSError as error:
                self.fail_directory(directory, error)
        self._check_some_online()

    def load_logs(self, topic_config: Callable[[str], LogConfig] | None = None) -> int:
        """Open every partition found, recovering after a crash; returns how many.

        `topic_config(topic)` gives a topic's settings as far as they are known yet; the broker's defaults otherwise.
        Raises LogDirectoryError where a person must help.
        """
        configs = topic_config if topic_config is not None else lambda _topic: self._config.topic_config()

        def load(found: Found) -> None:
            opened = self._open(found, configs(found.tp.topic))
            opened.is_configured = topic_config is not None
            self._take_in(opened, found.name)

        for directory in self.online_directories():
            try:
                load_directory(directory, load, int(self._config.num_recovery_threads_per_data_dir))
            except OSError as error:
                self.fail_directory(directory, error)
        # Why now: a log that was deleted, or set aside, just before a crash is in the checkpoints still. One made anew
        # under its name would begin, after the next crash, at the start offset of the former, and lose its records.
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self._check_some_online()
        self.find_strays()
        self._has_loaded = True
        return len(self._logs)

    def _check_some_online(self) -> None:
        if not self.online_directories():
            reasons = "; ".join(f"{directory.path}: {directory.failure}" for directory in self.directories)
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    def _take_in(self, opened: Log, name: str) -> None:
        if is_delete_dir(name):
            self._delete_later(opened)
            return
        with self._lock:
            logs = self._future if is_future_dir(name) else self._logs
            other = logs.setdefault(opened.topic_partition, opened)
            if other is opened:
                return
            if None not in (other.topic_id, opened.topic_id) and other.topic_id != opened.topic_id:
                raise LogDirectoryError(
                    f"{opened.topic_partition} is in two log directories: {other.directory} and {opened.directory}"
                )
            kept, spare = sorted((other, opened), key=_how_far, reverse=True)
            logs[opened.topic_partition] = kept
        log.warning("%s is in two log directories: %s is kept, not %s", kept.topic_partition, kept, spare.directory)
        if spare.log_end_offset > spare.log_start_offset:
            self._set_aside([spare], f"{kept.directory} is the same partition's")
        else:
            self._discard([spare])

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
        every("producer-expiration", self.remove_expired_producers, PRODUCER_EXPIRATION_CHECK_MS)

    def _every(self, name: str, job: Callable[[], object], period_ms: int) -> None:
        if 0 < period_ms < LONG_MAX:
            self._scheduler.schedule(name, job, period_ms, min(INITIAL_TASK_DELAY_MS, period_ms))

    # Moving between directories

    def prefer_directory(self, tp: TopicPartition, directory: LogDirectory) -> None:
        """Make the partition's log there if it is made later on; forgotten if it lies, or goes, there already.

        Raises ApiError(INVALID_REQUEST) if that would be remembered of too many partitions.
        """
        with self._lock:
            logs = [found for found in (self._logs.get(tp), self._future.get(tp)) if found is not None]
            if any(self.directory_of(found) is directory for found in logs):
                self._preferred.pop(tp, None)
                return
            if tp not in self._preferred and len(self._preferred) >= PREFERRED_MAX:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"More than {PREFERRED_MAX} partitions to come have a directory"
                )
            self._preferred[tp] = directory

    def create_future_log(self, tp: TopicPartition, directory: LogDirectory) -> Log:
        """Return the partition's future log, made in `directory` unless there is one.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        with self._lock:
            current = self._logs[tp]
            found = self._future.get(tp)
            if found is None:
                self._check_all_online(tp)
                found = self._future[tp] = self._create(tp, current.config, future_dir_name(tp), [directory])
            self._preferred.pop(tp, None)
        if current.topic_id is not None:
            found.assign_topic_id(current.topic_id)
        return found

    def drop_future_log(self, tp: TopicPartition) -> None:
        """Give a move up: the copy is deleted."""
        with self._lock:
            found = self._future.pop(tp, None)
        if found is not None:
            self._discard([found])

    def swap_in_future(self, tp: TopicPartition) -> Log | None:
        """Make the future log, which has all records, the current one, and delete that; returns the new current log.

        None if the move, or the partition, was given up meanwhile. The caller holds the partition's lock, so nothing
        is appended. Raises ApiError(KAFKA_STORAGE_ERROR): then the current log is what it was.
        """
        with self._lock:
            old, new = self._logs.get(tp), self._future.get(tp)
        if old is None or new is None:
            return None
        for epoch, start_offset in old.leader_epoch_cache.entries:
            if epoch > new.latest_epoch:  # a leader's, of which nothing was written yet
                new.assign_epoch_start_offset(epoch, start_offset)
        new.rename(partition_dir_name(tp))
        new.update_high_watermark(old.high_watermark)
        new.update_config(old.config)
        with self._lock:
            if self._logs.get(tp) is not old or self._future.get(tp) is not new:
                return None  # whoever took them out of the maps deletes them, under any name
            self._logs[tp] = new
            del self._future[tp]
        self._discard([old])
        return new

    # Deleting

    def delete_logs(self, doomed: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, ApiError]:
        """Forget the logs of partitions, given with the topic ids that are deleted, now, and remove their files after
        file.delete.delay.ms. What turns out to be of another topic id is kept, aside. Returns what was refused.
        """
        gone = self._forget(doomed)
        ids = {found.topic_partition: found.topic_id for found in gone if found.topic_id is not None}
        named = [f for f in gone if (f.topic_id or ids.get(f.topic_partition)) == doomed[f.topic_partition]]
        refused = self._discard(named)
        others = [found for found in gone if found not in named]
        return refused | self._set_aside(others, "its topic was deleted, as far as anybody can tell")

    def set_aside(self, strays: Mapping[TopicPartition, bytes | None], reason: str) -> dict[TopicPartition, ApiError]:
        """Forget the logs of partitions now, and keep them aside (strays.py), but for those of the topic id given
        (None: all go). Returns what was refused.
        """
        with self._lock:
            gone = [
                logs.pop(tp)
                for tp, topic_id in strays.items()
                for logs in (self._future, self._logs)
                if tp in logs and (topic_id is None or logs[tp].topic_id not in (None, topic_id))
            ]
        return self._set_aside(gone, reason)

    def _forget(self, tps: Iterable[TopicPartition]) -> list[Log]:
        """Take the logs of partitions, future ones first, out of the maps."""
        with self._lock:
            gone = [logs.pop(tp) for tp in tps for logs in (self._future, self._logs) if tp in logs]
            for tp in tps:
                self._preferred.pop(tp, None)
        return gone

    def _set_aside(self, gone: Sequence[Log], reason: str) -> dict[TopicPartition, ApiError]:
        """Close logs that nobody finds any more, and rename their directories."""
        refused: dict[TopicPartition, ApiError] = {}
        where = {id(found): self.directory_of(found) for found in gone}
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
        self._note_gone(gone, where)
        if gone:
            self.find_strays()
        return refused

    def find_strays(self) -> None:
        """Look which logs were set aside."""
        found = []
        for directory in self.online_directories():
            try:
                found += list_strays(self._fs, directory.path)
            except OSError as error:
                self.fail_directory(directory, error)
        self.strays = found

    def expire_strays(self) -> None:
        """Delete the logs that were set aside for longer than barnabas.stray.retention.ms."""
        self.find_strays()
        now_ms, retention_ms = self._clock.wall_ms(), int(self._config.barnabas_stray_retention_ms)
        for stray in self.strays:
            directory = self.directory_at(os.path.dirname(stray.path))
            if directory is not None:
                self._try(directory, lambda stray=stray: expire(self._fs, [stray], now_ms, retention_ms))  # type: ignore[misc]
        self.find_strays()

    def _discard(self, gone: Sequence[Log]) -> dict[TopicPartition, ApiError]:
        """Mark the directories of logs for deletion, which follows; nobody finds the logs any more."""
        refused: dict[TopicPartition, ApiError] = {}
        where = {id(found): self.directory_of(found) for found in gone}
        for found in gone:
            if not found.is_offline:
                try:
                    found.rename_for_delete()
                    self._delete_later(found)
                except ApiError as error:
                    refused[found.topic_partition] = error
        self._note_gone(gone, where)
        return refused

    def _note_gone(self, gone: Sequence[Log], where: Mapping[int, LogDirectory]) -> None:
        """Make what was renamed durable, once for each log directory, and forget what was noted of it."""
        for directory in {directory.path: directory for directory in where.values()}.values():
            self._try(directory, lambda at=directory: self._fs.fsync_dir(at.path))  # type: ignore[misc]
        if gone:
            # Why now: a log made anew under this name must not inherit the recovery point.
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
        watcher = self.watcher
        if watcher is not None:
            for found in gone:
                tp, directory = found.topic_partition, where[id(found)]
                self._try(directory, lambda tp=tp, at=directory: watcher.on_removed(tp, at.path))  # type: ignore[misc]

    def _try(self, directory: LogDirectory, job: Callable[[], object]) -> None:
        """Do something in a log directory that is online; it is not if that fails."""
        if not directory.is_offline:
            try:
                job()
            except OSError as error:
                self.fail_directory(directory, error)

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
        for found in (*self.all_logs(), *self.future_logs()):
            if found.topic_partition.topic == topic:
                found.update_config(config)

    # Periodic work

    def delete_old_segments(self) -> int:
        """Apply retention to every log; returns how many segments were deleted."""
        return log_upkeep.delete_old_segments([*self.all_logs(), *self.future_logs()], self._clock.wall_ms())

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose flush.ms has passed since their last flush."""
        log_upkeep.flush_dirty_logs([*self.all_logs(), *self.future_logs()], self._clock.wall_ms())

    def remove_expired_producers(self) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        for found in self.all_logs():
            found.remove_expired_producers()

    def checkpoint_recovery_points(self) -> None:
        """Write every directory's recovery points."""
        for directory in self.online_directories():
            points = {found.topic_partition: found.recovery_point for found in self.logs_in(directory)}
            self._checkpoint(directory, directory.recovery_points, points)

    def checkpoint_log_start_offsets(self) -> None:
        """Write every directory's log start offsets, of those logs whose start is not that of their first segment."""
        for directory in self.online_directories():
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
            self.fail_directory(directory, error)

    # Stopping

    def shutdown(self, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Flush and close every log, write the checkpoints and, where all went well, the clean-shutdown marker."""
        thread_count = int(self._config.num_recovery_threads_per_data_dir)
        for directory in self.online_directories():
            # Why in threads: the fsyncs of two logs cost the disk little more than those of one.
            in_threads(
                f"log-closing-{directory.path}",
                self.logs_in(directory),
                lambda found: log_upkeep.quietly(found, log_upkeep.flush_and_close),
                thread_count,
            )
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        for directory in self.directories:
            if self._has_loaded and not directory.is_offline:
                try:
                    directory.mark_clean_shutdown(broker_epoch)
                except OSError as error:
                    self.fail_directory(directory, error)
            directory.close()


def _how_far(found: Log) -> tuple[bool, int, int]:
    """Order the logs of one partition as Raft orders logs; one without a topic id was never made whole."""
    return found.topic_id is not None, found.latest_epoch, found.log_end_offset
