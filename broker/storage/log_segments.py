"""The segments that a log gives up: deleted from its beginning, or swapped for what the cleaner made of them.

A segment that goes is renamed at once (`.deleted`), so that no start takes it up again, and removed after
file.delete.delay.ms; readers that have it open go on.

Rules, threads and invariants stand in `broker/storage/log.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.broker.storage.log_types import LastRecord, LogOffsetMetadata
from barnabas.broker.storage.log_writer import LogWriter
from barnabas.broker.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.txn_index import AbortedTxn

log = logging.getLogger("barnabas.storage.log")


class LogSegmentKeeper(LogWriter):
    """A log whose segments can be taken away."""

    # Deleting old segments

    def deletable_segments(self, predicate: Callable[[LogSegment, int | None], bool]) -> list[LogSegment]:
        """Return the oldest segments for which `predicate(segment, next base offset)` holds, none that reaches
        above the high watermark.
        """
        segments = self._segments
        found: list[LogSegment] = []
        for index, segment in enumerate(segments.all):
            next_base = segments.next_base(index)
            upper_bound = self._end.offset if next_base is None else next_base
            is_last_and_empty = next_base is None and segment.size == 0
            if self._high_watermark.offset < upper_bound or is_last_and_empty or not predicate(segment, next_base):
                break
            found.append(segment)
        return found

    def delete_segments(self, segments: Sequence[LogSegment], reason: str) -> int:
        """Delete segments from the log's beginning, moving its start; rolls first if the active one is among them."""
        if not segments:
            return 0
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            current = {id(segment) for segment in self._segments}
            doomed = [segment for segment in segments if id(segment) in current]
            if not doomed:
                return 0
            if self._segments.active in doomed:
                self._roll_locked(0)
            index = self._segments.floor_index(doomed[-1].base_offset)
            start = self._segments.next_base(index)
            assert start is not None
            if start > self.log_start_offset:
                self._set_log_start_locked(start)
                self.leader_epoch_cache.truncate_from_start(start)
                self.producer_state.on_log_start_offset(start)
                self._update_first_unstable_locked()
            log.info("Deleting %d segments of %s due to %s", len(doomed), self.topic_partition, reason)
            self._remove_segments_locked(doomed)
            return len(doomed)

    def _remove_segments_locked(self, gone: Sequence[LogSegment]) -> None:
        """Take segments out of the log, rename their files now and remove them after file.delete.delay.ms."""
        if not gone:
            return
        self._segments = self._segments.without(gone)
        snapshots = []
        for segment in gone:
            segment.mark_deleted()
            marked = self.producer_state.mark_snapshot_deleted(segment.base_offset)
            if marked is not None:
                snapshots.append(marked)
        self._delete_later(gone, snapshots)

    def rebuild_damaged_indexes(self) -> int:
        """Make anew the indexes in which somebody met a wrong entry; returns of how many segments."""
        damaged = [segment for segment in self._segments if segment.has_damaged_index]
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            for segment in damaged:
                log.info("Rebuilding the indexes of %s", segment)
                segment.rebuild_indexes(is_active=segment is self._segments.active)
        return len(damaged)

    # Compaction

    def last_records_of_producers(self) -> dict[int, LastRecord]:
        """Return, by producer id, what the cleaner must not take away."""
        with self._lock:
            return {
                entry.producer_id: LastRecord(entry.last_offset, entry.epoch)
                for entry in self.producer_state.producers.values()
            }

    def aborted_transactions_in(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch [start, end), in order of their ends."""
        segments = self._segments
        found: list[AbortedTxn] = []
        for segment in segments.all[max(0, segments.floor_index(start_offset)) :]:
            transactions, is_complete = segment.txn_index.collect(start_offset, end_offset)
            found += transactions
            if is_complete:
                break
        return found

    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment], truncations: int) -> bool:
        """Swap a cleaned segment (suffix `.cleaned`, flushed) in for neighbours that were compacted into it.

        Readers that are at the old ones go on; their files go after file.delete.delay.ms. False, and nothing done, if
        the log is not any more what was compacted: truncated (`truncation_count`), moved, closed, or a segment is gone.
        """
        with self._lock, self._disk_errors():
            current = {id(segment) for segment in self._segments}
            is_as_read = (
                not self._closed
                and self._failure is None
                and self.truncation_count == truncations
                and cleaned.directory == self.directory
                and all(id(segment) in current for segment in replaced)
            )
            if not is_as_read:
                return False
            # Why a sync between: were the old files' end durable before the new ones' names, a power cut would leave
            # neither.
            cleaned.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
            self._fs.fsync_dir(self.directory)
            for segment in replaced:
                segment.mark_deleted()
            cleaned.change_suffix(SWAP_SUFFIX, "")
            self._fs.fsync_dir(self.directory)
            self._publish_cleaned_locked(cleaned, replaced)
        with self._flush_lock, self._lock, self._disk_errors():
            if not self._closed:
                self._txn_seals.update(self.directory, self._segments)
        return True

    def _publish_cleaned_locked(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        # Why in this order: a reader takes the segments first, so it never has new segments with old positions.
        self._recent = {}
        self._segments = self._segments.without(replaced).with_inserted(cleaned)
        if any(self._high_watermark.segment_base_offset == segment.base_offset for segment in replaced):
            self._high_watermark = LogOffsetMetadata(self._high_watermark.offset)
        marked = [
            self.producer_state.mark_snapshot_deleted(segment.base_offset)
            for segment in replaced
            if segment.base_offset != cleaned.base_offset
        ]
        self._delete_later(replaced, [path for path in marked if path is not None])

    def _delete_later(self, gone: Sequence[LogSegment], paths: Sequence[str] = ()) -> None:
        def delete() -> None:
            with self._disk_errors():
                for segment in gone:
                    segment.delete()
                for path in paths:
                    self._fs.unlink(path)

        self._scheduler.schedule_once("delete-file", delete, self.config.file_delete_delay_ms)
