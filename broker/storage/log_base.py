"""The state of a log: the offsets that bound it, its segments, and what happens when its disk fails.

The first of three layers: `LogBase` (state), `LogWriter` (appending, rolling, flushing), `Log` (reading, truncating,
deleting, the end). Rules, threads and invariants stand in `broker/storage/log.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.checkpoints import CorruptCheckpointError, read_partition_metadata
from barnabas.broker.storage.log_reader import resolve
from barnabas.broker.storage.log_types import (
    UNKNOWN_POSITION,
    LogConfig,
    LogOffsetMetadata,
)
from barnabas.broker.storage.names import PARTITION_METADATA_FILE
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import SegmentList
from barnabas.broker.storage.validator import ORDINARY_BYTES
from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

if TYPE_CHECKING:
    from barnabas.broker.storage.recovery import LoadedLog

log = logging.getLogger("barnabas.storage.log")

DiskFailureHandler = Callable[[str, OSError], None]
"""Told the partition's directory and the error."""

TruncationListener = Callable[["LogBase", int], None]
"""Told the log and the offset that it was truncated to, without the log's lock."""

EPOCH_FLUSH_DELAY_MS: Final = 1_000
"""Why not at once: what changes many logs' epochs, an election, has better use for the disk at that moment."""


class LogBase:
    """Attributes and offsets of one log."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        config: LogConfig,
        clock: Clock,
        scheduler: TaskScheduler,
        loaded: LoadedLog,
        *,
        on_disk_failure: DiskFailureHandler | None = None,
        on_truncated: TruncationListener | None = None,
        full_validation: bool = True,
        decompressed_max: int = ORDINARY_BYTES,
    ) -> None:
        # Fixed before start
        self.topic_partition = tp
        self._fs = fs
        self._clock = clock
        self._scheduler = scheduler
        self._on_disk_failure = on_disk_failure
        self._on_truncated = on_truncated
        self._full_validation = full_validation
        self._decompressed_max = decompressed_max
        self._lock = threading.Lock()  # guards the log's state and serialises its writers
        self._flush_lock = threading.Lock()  # one flush at a time; taken before _lock
        # Replaced whole under _lock, read without it
        self.config = config
        self.directory = directory
        self.topic_id, self._damaged_metadata = _read_topic_id(fs, f"{directory}/{PARTITION_METADATA_FILE}")
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self._segments = loaded.segments
        self._end = LogOffsetMetadata(
            loaded.next_offset, loaded.segments.active.base_offset, loaded.segments.active.size
        )
        self._high_watermark = LogOffsetMetadata(loaded.log_start_offset)
        self._first_unstable: LogOffsetMetadata | None = None
        self._failure: OSError | None = None  # set once
        self._closed = False
        self.on_flush: Callable[[float], None] | None = None  # set once, by who opened it: told the ms of each flush
        self.is_configured = True  # False: its topic's own settings are not known yet; nothing is deleted by others
        # Whether its directory and topic id are known to be durable: set by the first flush, reset by a new topic id.
        self.is_settled = False
        self.truncation_count = 0  # what the cleaner read before it grew is no longer the log
        self.last_flushed_ms = clock.wall_ms()
        self._txn_seals = loaded.txn_seals  # guarded by: _flush_lock
        # Guarded by: _lock (the epoch cache and the dict below are also read without it)
        self.producer_state = loaded.producer_state
        self.leader_epoch_cache = loaded.leader_epochs
        self.leader_epoch_cache.flush_by(self._flush_epochs_later)
        self._recent: dict[int, tuple[int, int]] = {}  # base offset of a late batch -> (segment base, position)
        with self._lock:
            self._update_first_unstable_locked()

    # Offsets and sizes

    @property
    def log_end_offset(self) -> int:
        return self._end.offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        # Why first: a transaction that begins, and is replicated, between the two looks would count as stable.
        high_watermark = self._high_watermark.offset
        unstable = self._first_unstable
        return unstable.offset if unstable is not None and unstable.offset < high_watermark else high_watermark

    @property
    def log_end_metadata(self) -> LogOffsetMetadata:
        return self._end

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position, looked up now if it was not known."""
        return self._resolved_high_watermark()

    @property
    def segments(self) -> SegmentList:
        return self._segments

    @property
    def active_segment(self) -> LogSegment:
        return self._segments.active

    @property
    def num_segments(self) -> int:
        return len(self._segments)

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 if there is none."""
        return self.leader_epoch_cache.latest_epoch

    @property
    def unflushed_messages(self) -> int:
        return self._end.offset - self.recovery_point

    @property
    def is_offline(self) -> bool:
        return self._failure is not None

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed, or given up for deletion."""
        return self._closed

    def locate(self, offset: int) -> LogOffsetMetadata:
        """Return `offset` with its position, so that bytes between two offsets of a segment can be counted."""
        if offset == self._end.offset:
            return self._end
        return resolve(self._segments, self._recent, offset)

    # High watermark, log start offset

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, kept within the log; tells whether it moved forward.

        Deciding is replication's: only a truncation may move it back.
        """
        with self._lock:
            before = self._high_watermark.offset
            end = self._end
            if offset >= end.offset:
                self._set_high_watermark_locked(end)
            elif offset != before:
                self._set_high_watermark_locked(self._metadata_of(max(offset, self.log_start_offset)))
            return self._high_watermark.offset > before

    def _metadata_of(self, offset: int) -> LogOffsetMetadata:
        known = self._recent.get(offset)
        return LogOffsetMetadata(offset) if known is None else LogOffsetMetadata(offset, *known)

    def _set_high_watermark_locked(self, metadata: LogOffsetMetadata) -> None:
        self._high_watermark = metadata
        state = self.producer_state
        if state.has_transactions or self._first_unstable is not None:
            state.on_high_watermark(metadata.offset)
            self._update_first_unstable_locked()

    def _update_first_unstable_locked(self) -> None:
        offset = self.producer_state.first_unstable_offset
        if offset is None:
            self._first_unstable = None
            return
        offset = max(offset, self.log_start_offset)
        known = self._first_unstable
        if known is None or known.offset != offset:
            self._first_unstable = self._metadata_of(offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Move the log's start forward, never above the high watermark (ApiError OFFSET_OUT_OF_RANGE).

        Tells whether it moved.
        """
        with self._lock, self._disk_errors():
            self._check_usable_locked()
            if offset > self._high_watermark.offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it "
                    f"is larger than the high watermark {self._high_watermark.offset}",
                )
            if offset <= self.log_start_offset:
                return False
            self._set_log_start_locked(offset)
            log.info("Incremented log start offset of %s to %d due to %s", self.topic_partition, offset, reason)
            self.leader_epoch_cache.truncate_from_start(offset)
            self.producer_state.on_log_start_offset(offset)
            self._update_first_unstable_locked()
            return True

    def _set_log_start_locked(self, offset: int) -> None:
        self.log_start_offset = offset
        if self._high_watermark.offset < offset:
            self._set_high_watermark_locked(self._metadata_of(offset))
        self.recovery_point = max(self.recovery_point, offset)

    def _resolved_high_watermark(self) -> LogOffsetMetadata:
        known = self._high_watermark
        if known.position != UNKNOWN_POSITION:
            return known
        try:
            located = self.locate(known.offset)
        except (MalformedMessageError, OSError):
            return known  # the reader meets the same trouble and reports it
        with self._lock:
            if self._high_watermark is known:
                self._high_watermark = located
        return located

    def _set_end_locked(self, offset: int) -> None:
        """Publish a new end; a high watermark at or above the old end follows it back, never forward."""
        active = self._segments.active
        self._end = LogOffsetMetadata(offset, active.base_offset, active.size)
        if self._high_watermark.offset >= offset:
            self._set_high_watermark_locked(self._end)

    # Leader epochs

    def _flush_epochs_later(self) -> None:
        if not self._end.offset:
            return  # a log without records has nothing to tell; the flush of its first ones writes the epochs too
        name = f"leader-epoch-cache-flush-{self.topic_partition}"
        self._scheduler.schedule_once(name, self._flush_epochs, EPOCH_FLUSH_DELAY_MS)

    def _flush_epochs(self) -> None:
        if self._closed or self._failure is not None:
            return
        try:
            self.leader_epoch_cache.flush()
        except OSError as error:
            if not self._closed:  # else its directory was renamed, to be deleted
                raise self._fail(error) from error

    # Failing

    def mark_offline(self, error: OSError) -> None:
        """Refuse everything from now on: the disk failed under another log of the same directory."""
        if self._failure is None:
            self._failure = error

    def _check_usable_locked(self) -> None:
        if self._failure is not None:
            raise self._storage_error(self._failure)
        if self._closed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is closed")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn an OSError into the failure of this log (rule 4)."""
        try:
            yield
        except OSError as error:
            raise self._fail(error) from error

    def fail(self, error: OSError) -> None:
        """Take note that the disk failed under this log, in work done on it from outside (the cleaner's)."""
        self._fail(error)

    def _fail(self, error: OSError) -> ApiError:
        self.mark_offline(error)
        log.error("Disk failure under %s in %s: %s", self.topic_partition, self.directory, error)
        if self._on_disk_failure is not None:
            self._on_disk_failure(self.directory, error)
        return self._storage_error(error)

    def _storage_error(self, error: OSError) -> ApiError:
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is offline: {error}"
        )

    def invariants(self) -> None:
        """Assert what the module's header promises."""
        with self._lock:
            high_watermark, end = self._high_watermark.offset, self._end
            assert self.log_start_offset <= high_watermark <= end.offset, "inv. 1"
            assert self.last_stable_offset <= high_watermark, "inv. 1"
            assert self._segments.first.base_offset <= self.log_start_offset, "inv. 2"
            assert self.recovery_point <= end.offset, "inv. 2"
            active = self._segments.active
            assert (end.segment_base_offset, end.position) == (active.base_offset, active.size), "inv. 3"


def _read_topic_id(fs: FileSystem, path: str) -> tuple[bytes | None, bytes]:
    """Return the topic id beside a log, None if it was not recorded or cannot be read: then also what the file has."""
    try:
        return read_partition_metadata(fs, path), b""
    except CorruptCheckpointError as error:
        log.warning("%s; the controller tells the topic's id again", error)
        return None, fs.read_bytes(path)
