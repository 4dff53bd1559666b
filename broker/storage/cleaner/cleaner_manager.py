"""Chooses the log to clean next, and records how far each log was cleaned.

A log needs cleaning if the dirty share of its cleanable bytes is above min.cleanable.dirty.ratio, or if a record has
been dirty for longer than max.compaction.lag.ms. The filthiest log comes first (Kafka's term for the highest dirty
share). Cleanable are the segments below the active one, the last stable offset, and the first segment younger than
min.compaction.lag.ms.

`cleaner-offset-checkpoint` in each log directory holds how far its logs were cleaned. A log that cannot be cleaned (for
example because of a damaged batch) is skipped until the next start, and counted.

Different from Apache Kafka: nothing waits for a cleaner. Kafka stops the cleaning of a partition before it truncates,
deletes or moves the log. Here the log refuses to swap in a result of an older state, and the cleaner abandons the
round. So there are no paused partitions.

Threads: any; `_lock` guards everything. Source: Kafka's LogCleanerManager, 4.3.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence

from barnabas.broker.storage.cleaner.cleaner import LogToClean
from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, OffsetCheckpoint
from barnabas.broker.storage.directories.names import CLEANER_OFFSET_FILE
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.storage.cleaner")

LONG_MAX = 2**63 - 1


class LogCleanerManager:
    """The cleaning state of all logs."""

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], logs: Callable[[], Iterable[Log]], clock: Clock
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()  # guards all below; the log manager's may be taken while it is held, no log's
        self._checkpoints = {path: OffsetCheckpoint(fs, f"{path}/{CLEANER_OFFSET_FILE}") for path in directories}
        self._clean_up_to: dict[str, dict[TopicPartition, int]] = {}  # by directory; read at first use
        self._in_progress: set[TopicPartition] = set()
        self._uncleanable: dict[str, set[TopicPartition]] = {path: set() for path in directories}
        # Replaced whole, read by the metrics
        self.dirtiest_ratio = 0.0
        self.last_run_ms = clock.monotonic_ms()
        self.max_compaction_delay_ms = 0

    # Choosing

    def grab_filthiest(self) -> LogToClean | None:
        """Choose the log to clean next and reserve it until `done`; None if no log needs cleaning."""
        now_ms = self._clock.wall_ms()
        self.last_run_ms = self._clock.monotonic_ms()
        candidates: list[LogToClean] = []
        longest_delay_ms = 0
        for target in self._logs():
            if not target.config.compact or target.is_offline or target.is_closed or self._is_taken(target):
                continue
            found, delay_ms = self._examine(target, now_ms)
            longest_delay_ms = max(longest_delay_ms, delay_ms)
            if found.total_bytes:
                candidates.append(found)
        self.max_compaction_delay_ms = longest_delay_ms
        self.dirtiest_ratio = max((each.cleanable_ratio for each in candidates), default=0.0)
        return self._grab([each for each in candidates if _is_worth_it(each)])

    def _grab(self, candidates: list[LogToClean]) -> LogToClean | None:
        for chosen in sorted(candidates, key=lambda each: each.cleanable_ratio, reverse=True):
            with self._lock:
                if chosen.log.topic_partition not in self._in_progress:
                    self._in_progress.add(chosen.log.topic_partition)
                    return chosen
        return None

    def _is_taken(self, target: Log) -> bool:
        tp = target.topic_partition
        with self._lock:
            return tp in self._in_progress or tp in self._uncleanable[_parent(target)]

    def _examine(self, target: Log, now_ms: int) -> tuple[LogToClean, int]:
        """Return the work of a round on a log, and for how many ms it has been overdue."""
        truncations = target.truncation_count  # Why first: a truncation from here on makes the offsets wrong
        checkpoint = self.clean_up_to(target)
        first_dirty, first_uncleanable = cleanable_offsets(target, checkpoint, now_ms)
        if checkpoint is not None and checkpoint != first_dirty:
            self._store(target, first_dirty)
        delay_ms = compaction_delay_ms(target, first_dirty, now_ms)
        work = log_to_clean(target, first_dirty, first_uncleanable, truncations, must_clean_now=delay_ms > 0)
        return work, delay_ms

    # Results

    def begin(self, work: LogToClean) -> None:
        """Have the log in the file before its first round: recovery asks there which logs may have gaps."""
        if self.clean_up_to(work.log) is None:
            self._store(work.log, work.first_dirty_offset)

    def done(self, work: LogToClean, end_offset: int) -> None:
        """Release the log; it is clean up to `end_offset`."""
        target = work.log
        try:
            if not target.is_closed and not target.is_offline:
                self._store(target, end_offset)
        finally:
            self.release(work)

    def release(self, work: LogToClean) -> None:
        """Release the log; nothing was done."""
        with self._lock:
            self._in_progress.discard(work.log.topic_partition)

    def mark_uncleanable(self, target: Log) -> None:
        """Skip a log from now on."""
        with self._lock:
            self._uncleanable[_parent(target)].add(target.topic_partition)

    # Checkpoints

    def clean_up_to(self, target: Log) -> int | None:
        """Return the offset up to which a log was cleaned; None if it never was."""
        with self._lock:
            return self._offsets_locked(_parent(target)).get(target.topic_partition)

    def _offsets_locked(self, directory: str) -> dict[TopicPartition, int]:
        offsets = self._clean_up_to.get(directory)
        if offsets is None:
            try:
                offsets = self._checkpoints[directory].read()
            except CorruptCheckpointError as error:
                log.warning("%s; its logs are cleaned from their beginnings", error)
                offsets = {}
            # Why: a partition that was deleted just before a crash, and created again, must not inherit its offset.
            existing = {target.topic_partition for target in self._logs()}
            offsets = {tp: offset for tp, offset in offsets.items() if tp in existing}
            self._clean_up_to[directory] = offsets
        return offsets

    def _store(self, target: Log, offset: int) -> None:
        self._change(_parent(target), target.topic_partition, offset)

    def _change(self, directory: str, tp: TopicPartition, offset: int | None) -> None:
        with self._lock:
            offsets = dict(self._offsets_locked(directory))
            if offset is None:
                offsets.pop(tp, None)
            else:
                offsets[tp] = offset
            self._checkpoints[directory].write(offsets)
            self._clean_up_to[directory] = offsets

    # Events of logs

    def check_ends(self) -> None:
        """Take in what a crash cut from the ends of logs; called before the first round."""
        for target in self._logs():
            self.on_truncated(target, target.log_end_offset)

    def on_truncated(self, target: Log, offset: int) -> None:
        """Take in a truncation: records at `offset` and above are dirty again."""
        known = self.clean_up_to(target)
        if known is not None and known > offset:
            self._store(target, offset)

    def on_removed(self, tp: TopicPartition, directory: str) -> None:
        """Forget a partition that left a log directory, deleted or moved (its copy may be older than the cleaning)."""
        with self._lock:
            self._uncleanable[directory].discard(tp)
            is_known = tp in self._offsets_locked(directory)
        if is_known:
            self._change(directory, tp, None)

    # For the metrics

    def uncleanable_count(self, directory: str) -> int:
        """Return how many logs of a directory cannot be cleaned."""
        with self._lock:
            return len(self._uncleanable[directory])

    def uncleanable_bytes(self, directory: str) -> int:
        """Return the dirty bytes of logs that cannot be cleaned."""
        with self._lock:
            marked = set(self._uncleanable[directory])
        now_ms = self._clock.wall_ms()
        found = [target for target in self._logs() if target.topic_partition in marked] if marked else []
        return sum(
            log_to_clean(target, *cleanable_offsets(target, self.clean_up_to(target), now_ms)).cleanable_bytes
            for target in found
        )

    def ms_since_last_run(self) -> int:
        """Return for how long no cleaner has looked for work."""
        return self._clock.monotonic_ms() - self.last_run_ms


def cleanable_offsets(target: Log, checkpoint: int | None, now_ms: int) -> tuple[int, int]:
    """Return the first dirty offset, and the first offset not below it that must not be cleaned."""
    start = target.log_start_offset
    first_dirty = start if checkpoint is None else checkpoint
    if first_dirty < start or first_dirty > target.log_end_offset:
        if not (first_dirty < start and target.config.delete):  # retention has deleted past it, which is normal
            log.warning(
                "%s: the checkpointed clean offset %d is not in [%d, %d]; the log is cleaned from its beginning",
                target.topic_partition,
                first_dirty,
                start,
                target.log_end_offset,
            )
        first_dirty = start
    bound = min(target.last_stable_offset, target.active_segment.base_offset)
    lag_ms = target.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in inactive_segments_from(target, first_dirty):
            if segment.largest_timestamp > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    return first_dirty, max(first_dirty, bound)


def inactive_segments_from(target: Log, offset: int) -> Sequence[LogSegment]:
    """Return the segments from the one that holds `offset` on, without the active one."""
    segments = target.segments
    return segments.all[max(0, segments.floor_index(offset)) : -1]


def compaction_delay_ms(target: Log, first_dirty: int, now_ms: int) -> int:
    """Return for how many ms the oldest dirty record has been due by max.compaction.lag.ms; 0 if it is not due."""
    lag_ms = target.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return 0
    stamps = [segment.first_batch_timestamp for segment in inactive_segments_from(target, first_dirty)]
    oldest_ms = min((stamp for stamp in stamps if stamp is not None and stamp > 0), default=now_ms)
    return max(0, now_ms - lag_ms - oldest_ms)


def log_to_clean(
    target: Log,
    first_dirty: int,
    first_uncleanable: int,
    truncations: int | None = None,
    *,
    must_clean_now: bool = False,
) -> LogToClean:
    """Measure the work of a round: whole segments, up to the one that holds the first uncleanable offset.

    `truncations` is the log's `truncation_count` from before the offsets were chosen; None: the present one.
    """
    segments = target.segments
    upper = segments.all[max(0, segments.floor_index(first_uncleanable))].base_offset
    first = max(0, segments.floor_index(min(first_dirty, upper)))
    is_at_start = segments.bases[first] >= first_dirty
    clean = [segment for segment in segments.all[: first if is_at_start else first + 1] if segment.base_offset < upper]
    dirty = [segment for segment in segments.all[first:] if segment.base_offset < upper]
    return LogToClean(
        target,
        first_dirty,
        upper,
        sum(segment.size for segment in clean),
        sum(segment.size for segment in dirty),
        target.truncation_count if truncations is None else truncations,
        must_clean_now,
    )


def _is_worth_it(work: LogToClean) -> bool:
    if work.must_clean_now and work.cleanable_bytes:
        return True
    return work.cleanable_ratio > work.log.config.min_cleanable_dirty_ratio


def _parent(target: Log) -> str:
    return os.path.dirname(target.directory)
