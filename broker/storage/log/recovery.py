"""Loads a partition's directory: quickly after a clean stop; after a crash with a check of all past the recovery point.

Steps
1. Files of interrupted work: `.deleted` and `.cleaned` files are removed. A `.swap` file (a complete result of the
   cleaner) replaces the segments that it covers, unless a `.cleaned` file shows that the swap was still being prepared.
2. Segments are opened in order. Orphaned indexes are removed. Damaged or missing indexes are rebuilt from the
   surviving batches, and so are transaction indexes without a valid checksum (`txn_checksums.py`).
3. After a crash every segment from the recovery point on is read. The frame and CRC of each batch are checked; the
   first bad batch and everything after it are cut. After a loss of power, so is what follows a segment that has lost
   its last batches: a follower would never copy these, and could lead without them. Indexes, leader epochs and
   producers are rebuilt.
4. Leader epochs and snapshots are adapted to what the log now holds. Producers are rebuilt from the newest snapshot.

Source: Kafka's LogLoader and UnifiedLog.rebuildProducerState, 4.3.
"""

from __future__ import annotations

import logging

from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, read_partition_metadata
from barnabas.broker.storage.directories.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of_file,
    segment_file,
)
from barnabas.broker.storage.log.leader_epochs import LeaderEpochCache
from barnabas.broker.storage.log.log_types import NO_OFFSET, LogConfig
from barnabas.broker.storage.producers.log_producers import rebuild_producer_state, replay
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.broker.storage.segments.segment import LogSegment, OnBatch
from barnabas.broker.storage.segments.segment_files import SEGMENT_SUFFIXES
from barnabas.broker.storage.segments.segments import SegmentList
from barnabas.broker.storage.segments.txn_checksums import TransactionChecksums
from barnabas.broker.storage.segments.txn_index import AbortedTxn
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader

log = logging.getLogger("barnabas.storage.recovery")

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class LoadedLog:
    """The result of loading a directory."""

    __slots__ = (
        "damaged_metadata",
        "leader_epochs",
        "log_start_offset",
        "next_offset",
        "producer_state",
        "recovery_point",
        "segments",
        "topic_id",
        "txn_checksums",
    )

    def __init__(
        self,
        segments: SegmentList,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        txn_checksums: TransactionChecksums,
        *,
        log_start_offset: int,
        recovery_point: int,
        next_offset: int,
        topic_id: bytes | None,
        damaged_metadata: bytes,
    ) -> None:
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.txn_checksums = txn_checksums
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.next_offset = next_offset
        self.topic_id = topic_id  # None if it is not recorded
        self.damaged_metadata = damaged_metadata  # the content of a `partition.metadata` that cannot be read


class LogLoader:
    """Loads one directory, once.

    `log_start_offset` and `recovery_point` are those of the checkpoints; `clean_shutdown`: the last stop was clean;
    `may_have_holes`: a gap between unflushed segments is what a loss of power left, and not what the cleaner left;
    `is_new`: the directory was made just now, so there is nothing to find in it.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        config: LogConfig,
        clock: Clock,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean_shutdown: bool,
        producer_id_expiration_ms: int,
        may_have_holes: bool = False,
        is_new: bool = False,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._tp = tp
        self._config = config
        self._clock = clock
        self._log_start_offset = log_start_offset  # as checkpointed
        self._recovery_point = recovery_point  # as checkpointed
        self._clean_shutdown = clean_shutdown
        self._expiration_ms = producer_id_expiration_ms
        self._may_have_holes = may_have_holes
        self._is_new = is_new
        self._epochs = self._load_epochs()
        self._txn_checksums = TransactionChecksums(fs, directory, is_new=is_new)
        self._segments: list[LogSegment] = []

    def _load_epochs(self) -> LeaderEpochCache:
        path = f"{self._directory}/{LEADER_EPOCH_FILE}"
        try:
            return LeaderEpochCache(self._fs, path, is_new=self._is_new)
        except CorruptCheckpointError as error:
            log.warning("%s; the leader epochs are read from the batches", error)
            self._fs.unlink(path)
            self._clean_shutdown = False
            self._recovery_point = 0
            return LeaderEpochCache(self._fs, path)

    def load(self) -> LoadedLog:
        """Make the directory consistent and open it; raises OSError if the disk fails."""
        if not self._is_new:
            self._find_segments()
        next_offset = self._next_offset()
        segments = SegmentList(self._segments)
        self._epochs.truncate_from_end(next_offset)
        log_start_offset = max(self._log_start_offset, segments.first.base_offset)
        self._epochs.truncate_from_start(log_start_offset)
        state = self._new_producer_state()
        state.remove_stray_snapshots(segments.bases)
        rebuild_producer_state(state, segments.all, log_start_offset, next_offset, self._clock.wall_ms())
        self._settle_segments(segments)
        recovery_point = next_offset if self._clean_shutdown else min(self._recovery_point, next_offset)
        topic_id, damaged_metadata = (None, b"") if self._is_new else self._read_topic_id()
        return LoadedLog(
            segments,
            self._epochs,
            state,
            self._txn_checksums,
            log_start_offset=log_start_offset,
            recovery_point=max(recovery_point, 0),
            next_offset=next_offset,
            topic_id=topic_id,
            damaged_metadata=damaged_metadata,
        )

    def _read_topic_id(self) -> tuple[bytes | None, bytes]:
        """Return the topic's id, and the content of its file if that is damaged."""
        path = self._path(PARTITION_METADATA_FILE)
        try:
            return read_partition_metadata(self._fs, path), b""
        except CorruptCheckpointError as error:
            log.warning("%s; the controller will send the topic's id again", error)
            return None, self._fs.read_bytes(path)

    def _find_segments(self) -> None:
        """Steps 1 to 3."""
        self._finish_interrupted_swaps()
        self._open_segments()
        self._check_transactions()
        if not self._clean_shutdown:
            self._recover_from_recovery_point()

    def _settle_segments(self, segments: SegmentList) -> None:
        """Mark the segments whose indexes are durable, and close all files."""
        for segment, after in zip(segments.all, segments.bases[1:], strict=False):
            # Why not <=: a recovery point at a segment's end means that its data was flushed, not its indexes.
            segment.indexes_flushed = self._clean_shutdown or after < self._recovery_point
        # Why: thousands of idle logs must not hold thousands of descriptors.
        for segment in segments:
            segment.release()

    def _new_producer_state(self) -> ProducerStateManager:
        return ProducerStateManager(
            self._fs, self._directory, self._tp, self._clock, self._expiration_ms, is_new=self._is_new
        )

    # Step 1

    def _finish_interrupted_swaps(self) -> None:
        names = self._names()
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._remove(name)
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        min_cleaned = min((_offset(name) for name in cleaned), default=None)
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        for name in swaps:
            if min_cleaned is not None and _offset(name) >= min_cleaned:
                self._remove(name)
        for name in cleaned:
            self._remove(name)
        valid = [name for name in swaps if min_cleaned is None or _offset(name) < min_cleaned]
        self._remove_swapped_out(valid)
        for name in valid:
            self._fs.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))

    def _remove_swapped_out(self, swaps: list[str]) -> None:
        """Remove the segments that complete swap files replace."""
        ranges = [self._range_of_swap(_offset(name)) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if not ranges:
            return
        lowest, highest = min(start for start, _ in ranges), max(end for _, end in ranges)
        for name in self._names():
            offset = offset_of_file(name)
            is_segment = name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX))
            if is_segment and offset is not None and lowest <= offset < highest:
                log.info("Deleting %s, compacted into a swap file before the crash", name)
                self._remove(name)

    def _range_of_swap(self, offset: int) -> tuple[int, int]:
        """Return the first offset of a swap file and the offset after its last."""
        swap = LogSegment(
            self._fs, self._directory, offset, self._config, self._clock, suffix=SWAP_SUFFIX, create=False
        )
        try:
            end = swap.read_next_offset()
        except MalformedMessageError as error:
            log.warning("The swap file %s is damaged: %s", swap.path, error)
            end = offset
        swap.release()
        return offset, max(end, offset + 1)  # why one more: an empty swap file replaces its predecessor, too

    # Step 2

    def _open_segments(self) -> None:
        names = self._names()
        logs = {name for name in names if name.endswith(LOG_SUFFIX)}
        for name in names:
            if name.endswith(INDEX_SUFFIXES) and name.rpartition(".")[0] + LOG_SUFFIX not in logs:
                log.warning("Deleting orphaned index file %s in %s", name, self._directory)
                self._remove(name)
        offsets = sorted(offset for offset in map(offset_of_file, logs) if offset is not None)
        for offset in offsets:
            self._segments.append(self._open_segment(offset))

    def _open_segment(self, offset: int) -> LogSegment:
        try:
            segment = LogSegment(self._fs, self._directory, offset, self._config, self._clock, create=False)
            if self._clean_shutdown or offset < self._recovery_point:
                segment.sanity_check()
            return segment
        except (CorruptIndexError, FileNotFoundError) as error:
            return self._reindexed(offset, str(error))

    def _reindexed(self, offset: int, reason: str) -> LogSegment:
        """Open a segment and rebuild its indexes; that of transactions only if no checksum confirms it."""
        log.warning("Rebuilding the indexes of segment %d of %s: %s", offset, self._tp, reason)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._fs.unlink(segment_file(self._directory, offset, suffix))
        segment = LogSegment(self._fs, self._directory, offset, self._config, self._clock, create=False)
        state = self._state_at(segment, keep_later=True)
        aborted: list[AbortedTxn] = []
        # Why no leader epochs: their checkpoint has all flushed ones, and a checksum; the epoch in a batch has none.
        if segment.reindex(lambda header, batch: replay(state, header, batch, aborted.append)):
            state.take_snapshot()
            if self._txn_checksums.of(segment.txn_index) != segment.txn_index.checksum:
                segment.txn_index.replace(aborted)
                self._txn_checksums.add(segment.txn_index)
        else:
            self._keep_transactions(segment)
        return segment

    def _keep_transactions(self, segment: LogSegment) -> None:
        """Keep the transaction index of a segment with damaged batches: one of them may be a marker.

        If the checksum shows that the index is damaged too, readers refuse it.
        """
        expected = self._txn_checksums.of(segment.txn_index)
        if expected is not None:
            segment.txn_index.expect(expected)

    def _check_transactions(self) -> None:
        """Rebuild the transaction indexes of checked segments that have no valid checksum.

        The index then agrees with the surviving batches. If the cleaner has dropped a transaction's first batches, or
        all, the transaction begins later, or is missing. Readers of the surviving batches see no difference.
        """
        for at, segment in enumerate(self._segments):
            if self._is_checked(at) and not self._txn_checksums.matches(segment.txn_index):
                segment.release()
                self._segments[at] = self._reindexed(segment.base_offset, "no checksum confirms its transaction index")

    def _is_checked(self, at: int) -> bool:
        """Return whether step 3 leaves the segment's indexes as they are."""
        end = self._segments[at + 1].base_offset if at + 1 < len(self._segments) else None
        return self._clean_shutdown or (end is not None and end <= self._recovery_point)

    # Step 3

    def _recover_segment(self, segment: LogSegment) -> int:
        """Check one segment, cut it at the first bad batch and rebuild what belongs to it; returns the bytes cut."""
        state = self._state_at(segment)
        cut = segment.recover(self._recoverer(segment, state))
        state.take_snapshot()
        return cut

    def _state_at(self, segment: LogSegment, *, keep_later: bool = False) -> ProducerStateManager:
        """Return the producers as of a segment's beginning; later snapshots are deleted unless `keep_later` is set."""
        state = self._new_producer_state()
        if keep_later:
            state.ignore_snapshots_above(segment.base_offset)
        rebuild_producer_state(
            state, self._segments_below(segment), self._log_start_offset, segment.base_offset, self._clock.wall_ms()
        )
        state.take_snapshot()
        return state

    def _recoverer(self, segment: LogSegment, state: ProducerStateManager) -> OnBatch:
        """Return the function that takes in a good batch: leader epoch, producer, aborted transaction."""

        begun = NO_OFFSET  # where an epoch begins that only the previous batch has

        def recover(header: BatchHeader, batch: memoryview) -> None:
            nonlocal begun
            epoch, offset = header.partition_leader_epoch, header.base_offset
            if begun >= 0 and 0 <= epoch < self._epochs.latest_epoch:
                # Why: epochs never decrease, and the epoch of a batch is not under its CRC; the previous one was wrong.
                self._epochs.truncate_from_end(begun)
            begun = NO_OFFSET
            known = self._epochs.epoch_for_offset(offset)
            if epoch >= 0 and known >= 0 and epoch != known:
                self._epochs.truncate_from_end(offset)  # the file is older than a truncation
            if epoch >= 0 and epoch > self._epochs.latest_epoch:
                self._epochs.assign(epoch, offset)
                begun = offset
            replay(state, header, batch, segment.txn_index.append)

        return recover

    def _segments_below(self, segment: LogSegment) -> list[LogSegment]:
        return [other for other in self._segments if other.base_offset < segment.base_offset]

    def _recover_from_recovery_point(self) -> None:
        first = 0
        for index, segment in enumerate(self._segments):
            if segment.base_offset <= self._recovery_point:
                first = index
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            log.info("Recovering unflushed segment %d of %s", segment.base_offset, self._tp)
            cut = self._recover_segment(segment)
            if cut:
                log.warning("Corruption found in segment %d of %s: %d bytes cut", segment.base_offset, self._tp, cut)
                self._drop_segments(index + 1)
                return
            if self._may_have_holes and self._has_lost_its_end(index):
                log.warning("Segment %d of %s has lost its end", segment.base_offset, self._tp)
                self._drop_segments(index + 1)
                return

    def _has_lost_its_end(self, index: int) -> bool:
        if index + 1 == len(self._segments):
            return False
        return self._segments[index].read_next_offset() < self._segments[index + 1].base_offset

    def _drop_segments(self, first: int) -> None:
        for segment in self._segments[first:]:
            log.warning("Deleting segment %d of %s, which follows a corrupt or lost one", segment.base_offset, self._tp)
            segment.delete()
            self._fs.unlink(segment_file(self._directory, segment.base_offset, SNAPSHOT_SUFFIX))
        del self._segments[first:]

    # Step 4

    def _next_offset(self) -> int:
        """Return the log end offset; creates a first segment if there is none."""
        if self._segments:
            next_offset = self._read_next_offset(self._segments[-1])
            if next_offset >= self._log_start_offset:
                return next_offset
            log.warning(
                "Deleting all segments of %s: its end %d is below its start %d",
                self._tp,
                next_offset,
                self._log_start_offset,
            )
            self._drop_segments(0)
            self._epochs.clear()
        self._segments.append(
            LogSegment(
                self._fs, self._directory, self._log_start_offset, self._config, self._clock, is_new=self._is_new
            )
        )
        return self._log_start_offset

    def _read_next_offset(self, segment: LogSegment) -> int:
        try:
            return segment.read_next_offset()
        except MalformedMessageError as error:
            # Why: the clean-shutdown marker is there, but the file is damaged: the bytes decide.
            cut = self._recover_segment(segment)
            log.warning("Recovered segment %d of %s, %d bytes cut: %s", segment.base_offset, self._tp, cut, error)
            return segment.read_next_offset()

    def _names(self) -> list[str]:
        return [entry.name for entry in self._fs.listdir(self._directory) if not entry.is_dir]

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _remove(self, name: str) -> None:
        self._fs.unlink(self._path(name))


def _offset(name: str) -> int:
    offset = offset_of_file(name)
    return 0 if offset is None else offset
