"""Makes a log durable: its segments up to an offset, its directory, its leader epochs.

Rules
1. A flush holds `flush_lock` and not the log's lock, so appends continue. It moves the recovery point last.
2. No segment's data is fsynced twice: the recovery point and `indexes_flushed` say what is still to be written.

Threads: any; one flush at a time. Source: Kafka's UnifiedLog.flush and LocalLog.flush, 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.broker.storage.directories.names import PARTITION_METADATA_FILE
from barnabas.broker.storage.log.log_state import LogState
from barnabas.broker.storage.producers.snapshots import sync_snapshot
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.common.clock import NS_PER_MS

EPOCH_FLUSH_DELAY_MS: Final = 1_000
"""Why not at once: an election changes the epochs of many logs, and the disk has more urgent work at that moment."""


class LogFlusher:
    """Flushes one log."""

    __slots__ = ("_state", "on_flush")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.on_flush: Callable[[float], None] | None = None  # set once; called with the ms of each flush
        state.leader_epochs.flush_by(self._flush_epochs_later)

    def flush_if_due(self) -> None:
        """Flush if `flush.messages` records wait for it; called after an append, without the log's lock."""
        state = self._state
        if not state.append_settings.has_flush_messages:
            return
        if state.end.offset - state.recovery_point >= state.config.flush_messages:
            self.flush_to(state.end.offset)

    def flush_to(self, offset: int) -> None:
        """Flush the segments between the recovery point and `offset`, then move the recovery point.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        with self._state.flush_lock:
            while not self._flush_to(offset):
                pass

    def _flush_to(self, offset: int) -> bool:
        """Flush once; return false if segments were removed meanwhile, so that what is left must be flushed again."""
        state = self._state
        with state.lock:  # a truncation changes both
            truncations = state.truncation_count
            recovery_point = state.recovery_point
            offset = min(offset, state.end.offset)  # an earlier truncation may have made it too large
        pending = self._unflushed_segments(recovery_point, offset)
        if not pending:
            return True
        started_ns = state.clock.monotonic_ns()
        try:
            self._flush_segments(pending, recovery_point)
            state.leader_epochs.flush()
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                if state.is_closed:
                    return True  # the directory was renamed meanwhile, to be deleted
                if self._has_lost_one(pending, truncations):
                    return False
            raise state.fail(error) from error
        with state.lock:
            state.last_flushed_ms = state.clock.wall_ms()
            if state.truncation_count == truncations:
                state.recovery_point = max(state.recovery_point, min(offset, state.end.offset))
            else:
                _forget_flushed(pending)
        if self.on_flush is not None:
            self.on_flush((state.clock.monotonic_ns() - started_ns) / NS_PER_MS)
        return True

    def _has_lost_one(self, pending: list[LogSegment], truncations: int) -> bool:
        """Return whether one of the segments was removed or replaced, or the log truncated, since the flush began."""
        state = self._state
        with state.lock:  # whoever does that has it
            if state.truncation_count != truncations:
                _forget_flushed(pending)
                return True
            return any(each not in state.segments.all for each in pending)

    def _unflushed_segments(self, recovery_point: int, offset: int) -> list[LogSegment]:
        """Return the segments with something to make durable between the recovery point and `offset`."""
        segments = self._state.segments
        # Why one more to the left: a recovery point at a segment's end leaves that segment's indexes to be flushed.
        first = max(0, segments.floor_index(recovery_point) - 1)
        return [
            segment
            for segment in segments.all[first:]
            if segment.base_offset < offset
            and (recovery_point < offset if segment is segments.active else not segment.indexes_flushed)
        ]

    def _flush_segments(self, pending: list[LogSegment], recovery_point: int) -> None:
        state = self._state
        has_new_names = any(segment.base_offset >= recovery_point for segment in pending)
        for segment in pending:
            # Why the active segment's too: no start reads batches below the recovery point again.
            has_new_names |= segment.txn_index.flush()
            was_active = segment is state.segments.active
            segment.flush_data()
            if was_active:  # others may have appended, and rolled, meanwhile: its flush after the roll is another one
                continue
            with state.lock:  # a truncation may have made it the active one, to which others append
                is_active = segment is state.segments.active
                if not is_active:
                    segment.write_index_tails()
            if not is_active:
                segment.flush_indexes()
        if not state.is_settled:
            self._settle()
        elif has_new_names:
            state.fs.fsync_dir(state.directory)
        if any(segment.indexes_flushed and not segment.txn_index.is_empty for segment in pending):
            state.txn_checksums.write(state.directory, state.segments)

    def _settle(self) -> None:
        """Make the log's directory and its topic id durable, before any record counts as durable.

        Why not when they are created: a request that creates a thousand partitions would wait for thousands of fsyncs.
        Before the first flush a power cut can take only an empty log or its topic id; the controller's next push
        restores both.
        """
        state = self._state
        state.is_settled = True  # a topic id that is assigned meanwhile resets it
        if state.topic_id is not None:
            handle = state.fs.open(f"{state.directory}/{PARTITION_METADATA_FILE}")
            try:
                handle.fsync()
            finally:
                handle.close()
        state.fs.fsync_dir(state.directory)
        state.fs.fsync_dir(state.directory.rpartition("/")[0])

    # In the background

    def flush_rolled_later(self, base_offset: int) -> None:
        """Schedule the flush of everything below a new active segment."""
        self._state.scheduler.schedule_once("flush-log", lambda: self._flush_rolled(base_offset))

    def _flush_rolled(self, offset: int) -> None:
        """Make durable what the next start continues from: the rolled segment, and the producers as of its end."""
        state = self._state
        if not state.is_usable:
            return
        with state.flush_lock, state.disk_errors():
            sync_snapshot(state.fs, state.directory, offset)
        self.flush_to(offset)

    def _flush_epochs_later(self) -> None:
        state = self._state
        if not state.end.offset:
            return  # a log without records needs no epochs on disk; the flush of its first records writes them
        name = f"leader-epoch-cache-flush-{state.topic_partition}"
        state.scheduler.schedule_once(name, self._flush_epochs, EPOCH_FLUSH_DELAY_MS)

    def _flush_epochs(self) -> None:
        state = self._state
        if not state.is_usable:
            return
        try:
            state.leader_epochs.flush()
        except OSError as error:
            if not state.is_closed:  # a closed log's directory was renamed, to be deleted
                raise state.fail(error) from error


def _forget_flushed(pending: list[LogSegment]) -> None:
    """Have segments flushed again: a truncation came between, and what replaced the cut records may be unflushed."""
    for segment in pending:
        segment.indexes_flushed = False
