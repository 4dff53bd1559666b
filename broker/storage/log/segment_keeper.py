"""Which segments a log has: it rolls to new ones, deletes old ones, truncates, and swaps in compacted ones.

A removed segment is renamed at once (`.deleted`), so that no start loads it again. Its files are removed after
file.delete.delay.ms; readers with an open file are not disturbed.

Rules, threads and invariants are in `broker/storage/log/log.py`. Methods named `_locked` need the log's lock held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.broker.storage.directories.names import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.broker.storage.log.flusher import LogFlusher
from barnabas.broker.storage.log.log_state import NOTHING_RECENT, LogState
from barnabas.broker.storage.log.log_types import LogOffsetMetadata
from barnabas.broker.storage.producers.log_producers import rebuild_producer_state
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.segments import SegmentList

log = logging.getLogger("barnabas.storage.log")


class SegmentKeeper:
    """Adds and removes the segments of one log."""

    __slots__ = ("_flusher", "_state")

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher

    # Rolling

    def roll(self, expected_offset: int) -> LogSegment:
        """Begin a new segment at the log end offset, or at `expected_offset` if that is higher."""
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            return self.roll_locked(expected_offset)

    def roll_locked(self, expected_offset: int) -> LogSegment:
        """Begin a new segment, as `roll`; raises OSError."""
        state = self._state
        active = state.segments.active
        base_offset = max(expected_offset, state.end.offset)
        if active.base_offset == base_offset:
            assert not active.size, f"{active} has data at its own end"
            return active
        active.become_inactive()
        is_truncated = state.recovery_point < state.checkpointed_point
        if state.config.compact or state.may_have_gaps or is_truncated:
            # Why: the cleaner leaves gaps, so recovery cannot see what a loss of power took (recovery.py). The topic
            # may be compacted no more, or the log is a restored stray.
            active.flush_data()
        if is_truncated:
            # Why: the checkpoint does not have the truncation yet. So recovery may begin with a later segment, and
            # check neither this one nor the epochs of its batches.
            state.leader_epochs.flush()
        producers = state.producer_state
        producers.map_end_offset = base_offset
        producers.take_snapshot(sync=False)
        segment = self._new_segment(base_offset)
        state.segments = state.segments.with_added(segment)
        state.set_end_locked(state.end.offset)
        self._flusher.flush_rolled_later(base_offset)
        return segment

    def _new_segment(self, base_offset: int) -> LogSegment:
        state = self._state
        return LogSegment(state.fs, state.directory, base_offset, state.config, state.clock)

    # Deleting old segments

    def deletable(self, predicate: Callable[[LogSegment, int | None], bool]) -> list[LogSegment]:
        """Return the oldest segments, up to the first that does not satisfy `predicate(segment, next base offset)`.

        No segment that reaches above the high watermark is returned.
        """
        state = self._state
        segments = state.segments
        found: list[LogSegment] = []
        for index, segment in enumerate(segments.all):
            next_base = segments.next_base(index)
            upper_bound = state.end.offset if next_base is None else next_base
            is_last_and_empty = next_base is None and segment.size == 0
            if state.high_watermark.offset < upper_bound or is_last_and_empty or not predicate(segment, next_base):
                break
            found.append(segment)
        return found

    def delete(self, segments: Sequence[LogSegment], reason: str) -> int:
        """Delete segments from the log's beginning and move its start; rolls first if the active one is among them.

        Returns how many were deleted.
        """
        if not segments:
            return 0
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            current = {id(segment) for segment in state.segments}
            doomed = [segment for segment in segments if id(segment) in current]
            if not doomed:
                return 0
            if state.segments.active in doomed:
                self.roll_locked(0)
            start = state.segments.next_base(state.segments.floor_index(doomed[-1].base_offset))
            assert start is not None
            if start > state.log_start_offset:
                state.move_start_locked(start)
            log.info("Deleting %d segments of %s due to %s", len(doomed), state.topic_partition, reason)
            self._remove_locked(doomed)
            return len(doomed)

    def _remove_locked(self, gone: Sequence[LogSegment]) -> None:
        """Take segments out of the log, rename their files now and remove them after file.delete.delay.ms."""
        if not gone:
            return
        self._state.segments = self._state.segments.without(gone)
        for segment in gone:
            segment.mark_deleted()
        self._delete_later(gone, self._mark_snapshots_deleted(gone))

    def _mark_snapshots_deleted(self, segments: Sequence[LogSegment]) -> list[str]:
        """Rename the producer snapshots at the segments' base offsets; returns their new paths."""
        marked = [self._state.producer_state.mark_snapshot_deleted(segment.base_offset) for segment in segments]
        return [path for path in marked if path is not None]

    def _delete_later(self, gone: Sequence[LogSegment], paths: Sequence[str] = ()) -> None:
        state = self._state

        def delete() -> None:
            with state.disk_errors():
                for segment in gone:
                    segment.delete()
                for path in paths:
                    state.fs.unlink(path)

        state.scheduler.schedule_once("delete-file", delete, state.config.file_delete_delay_ms)

    # Truncating

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at or above `offset`; returns whether there was something to drop."""
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            state.leader_epochs.truncate_from_end(offset)
            if offset >= state.end.offset:
                return False
            log.info("Truncating %s to offset %d", state.topic_partition, offset)
            if offset < state.segments.first.base_offset:
                self._restart_locked(offset, None)
            else:
                self._cut_locked(offset)
        return True

    def _cut_locked(self, offset: int) -> None:
        state = self._state
        state.recent = NOTHING_RECENT
        state.truncation_count += 1
        # Why the last one first: a crash in between must leave no hole.
        gone = [segment for segment in reversed(state.segments.all) if segment.base_offset > offset]
        if gone:
            self._remove_locked(gone)
            # Why: after a power cut they must not follow what is written from now on.
            state.fs.fsync_dir(state.directory)
        state.segments.active.truncate_to(offset)
        state.recovery_point = min(state.recovery_point, offset)
        state.log_start_offset = min(state.log_start_offset, offset)
        state.set_end_locked(offset)
        rebuild_producer_state(
            state.producer_state, state.segments.all, state.log_start_offset, offset, state.clock.wall_ms()
        )
        # Why: what was rebuilt counts as not replicated, and the watermark, which may be past it, need not move again.
        state.producer_state.on_high_watermark(state.high_watermark.offset)
        state.first_unstable = None
        state.update_first_unstable_locked()

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None:
        """Drop everything; the next record gets `offset`. The log starts there, or at `log_start_offset`."""
        state = self._state
        with state.lock, state.disk_errors():
            state.check_usable_locked()
            log.info("Truncating %s fully, to start at offset %d", state.topic_partition, offset)
            self._restart_locked(offset, log_start_offset)

    def _restart_locked(self, offset: int, log_start_offset: int | None) -> None:
        state = self._state
        state.recent = NOTHING_RECENT
        state.truncation_count += 1
        old = state.segments.all
        for segment in old:
            segment.mark_deleted()
        state.segments = SegmentList([self._new_segment(offset)])
        if any(segment.size for segment in old):
            state.fs.fsync_dir(state.directory)  # as in `_cut_locked`; a new replica has nothing that could come back
        self._delete_later(old)
        state.leader_epochs.clear()
        state.producer_state.truncate_fully_and_start_at(offset)
        state.log_start_offset = offset if log_start_offset is None else log_start_offset
        state.recovery_point = min(state.recovery_point, offset)
        state.first_unstable = None
        state.end = LogOffsetMetadata(offset, offset, 0)
        state.set_high_watermark_locked(state.end)

    # Repair, compaction

    def rebuild_damaged_indexes(self) -> int:
        """Rebuild the indexes in which a lookup met a wrong entry; returns of how many segments."""
        state = self._state
        if not any(segment.has_damaged_index for segment in state.segments):
            return 0
        with state.flush_lock, state.lock, state.disk_errors():  # a flush opens the files that are replaced
            state.check_usable_locked()
            segments = state.segments.all
            ends = [*(segment.base_offset for segment in segments[1:]), state.end.offset]
            damaged = [(segment, end) for segment, end in zip(segments, ends, strict=True) if segment.has_damaged_index]
            for segment, end_offset in damaged:
                log.info("Rebuilding the indexes of %s", segment)
                segment.rebuild_indexes(end_offset, is_active=segment is state.segments.active)
        return len(damaged)

    def replace(self, cleaned: LogSegment, replaced: Sequence[LogSegment], truncations: int) -> bool:
        """Swap in a cleaned segment (suffix `.cleaned`, flushed) for the neighbours that were compacted into it.

        Readers of the old segments are not disturbed; their files are removed after file.delete.delay.ms. Returns
        False, and changes nothing, if the log is no longer what was compacted: truncated (`truncation_count` is not
        `truncations`), moved, closed, or without one of the segments.
        """
        state = self._state
        with state.lock, state.disk_errors():
            current = {id(segment) for segment in state.segments}
            is_as_read = (
                state.is_usable
                and state.truncation_count == truncations
                and cleaned.directory == state.directory
                and all(id(segment) in current and segment is not state.segments.active for segment in replaced)
            )
            if not is_as_read:
                return False
            # Why a sync between: otherwise a power cut could keep the removal of the old files and lose the new files'
            # names.
            cleaned.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
            state.fs.fsync_dir(state.directory)
            for segment in replaced:
                segment.mark_deleted()
            cleaned.change_suffix(SWAP_SUFFIX, "")
            state.fs.fsync_dir(state.directory)
            self._publish_cleaned_locked(cleaned, replaced)
        with state.flush_lock, state.lock, state.disk_errors():
            if not state.is_closed:
                state.txn_checksums.write(state.directory, state.segments)
        return True

    def _publish_cleaned_locked(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        state = self._state
        # Why in this order: a reader takes the segments first, so it never combines new segments with old positions.
        state.recent = NOTHING_RECENT
        state.segments = state.segments.without(replaced).with_inserted(cleaned)
        if any(state.high_watermark.segment_base_offset == segment.base_offset for segment in replaced):
            state.high_watermark = LogOffsetMetadata(state.high_watermark.offset)
        merged = [segment for segment in replaced if segment.base_offset != cleaned.base_offset]
        self._delete_later(replaced, self._mark_snapshots_deleted(merged))
