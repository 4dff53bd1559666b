"""The state that the components of one log share: its offsets, its segments, its producers, and its disk's failure.

`Log` creates it. The appender, the flusher, the segment keeper and the reader work on it (`broker/storage/log/log.py`
has the rules and the invariants).

Threads: changed under `lock`, but for the few attributes marked otherwise. Attributes marked "replaced whole" are
immutable values and are read without the lock. Methods named `_locked` need it held.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.broker.storage.log.log_types import LogConfig, LogOffsetMetadata, append_settings
from barnabas.broker.storage.log.recovery import LoadedLog
from barnabas.broker.storage.scheduler import TaskScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.locks.factory import new_lock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.storage.log")

DiskFailureHandler = Callable[[str, OSError], None]
"""Called with the partition's directory and the error."""


NOTHING_RECENT: Final[dict[int, tuple[int, int]]] = {}
"""The late batches of a log to which nothing was appended since its start. Never changed."""


class LogState:
    """What the components of one log share; see the module's header."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        config: LogConfig,
        clock: Clock,
        scheduler: TaskScheduler,
        loaded: LoadedLog,
        on_disk_failure: DiskFailureHandler | None,
    ) -> None:
        # Fixed before start
        self.topic_partition = tp
        self.fs = fs
        self.clock = clock
        self.scheduler = scheduler
        self._on_disk_failure = on_disk_failure
        self.lock = new_lock("log")  # guards this state and serialises the log's writers
        self.flush_lock = threading.Lock()  # one flush at a time; taken before `lock`
        # Replaced whole under `lock`, read without it
        self.config = config
        self.append_settings = append_settings(config)
        self.directory = directory
        self.topic_id: bytes | None = None
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.checkpointed_point = loaded.recovery_point  # the highest that the checkpoint may hold; guarded by: lock
        self.segments = loaded.segments
        active = loaded.segments.active
        self.end = LogOffsetMetadata(loaded.next_offset, active.base_offset, active.size)
        self.high_watermark = LogOffsetMetadata(loaded.log_start_offset)
        self.first_unstable: LogOffsetMetadata | None = None
        self.failure: OSError | None = None  # set once
        self.is_closed = False
        # Whether the directory and the topic id are known to be durable: set by the first flush, reset by a new id.
        self.is_settled = False
        # Whether recovery looks for no holes in the log, since it is in the cleaner's file; set once.
        self.may_have_gaps = False
        self.truncation_count = 0  # the cleaner drops its result if this has grown since it read the log
        self.last_flushed_ms = clock.wall_ms()
        self.txn_checksums = loaded.txn_checksums  # guarded by: flush_lock
        # Guarded by: lock (the epoch cache and the dict below are also read without it)
        self.producer_state = loaded.producer_state
        self.leader_epochs = loaded.leader_epochs
        # The base offset of a late batch -> (segment base, position).
        self.recent: dict[int, tuple[int, int]] = NOTHING_RECENT

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which (exclusive) every transaction is decided and replicated."""
        # Why this order: a transaction that begins, and is replicated, between the two reads would count as stable.
        high_watermark = self.high_watermark.offset
        unstable = self.first_unstable
        return unstable.offset if unstable is not None and unstable.offset < high_watermark else high_watermark

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Return `offset` with its position if a batch was appended there lately; without one otherwise."""
        known = self.recent.get(offset)
        return LogOffsetMetadata(offset) if known is None else LogOffsetMetadata(offset, known[0], known[1])

    def set_end_locked(self, offset: int) -> None:
        """Publish a new end. A high watermark at or above the new end moves to it, never forward."""
        active = self.segments.active
        self.end = LogOffsetMetadata(offset, active.base_offset, active.size)
        if self.high_watermark.offset >= offset:
            self.set_high_watermark_locked(self.end)

    def set_high_watermark_locked(self, metadata: LogOffsetMetadata) -> None:
        """Publish a new high watermark and the last stable offset that follows from it."""
        self.high_watermark = metadata
        state = self.producer_state
        if state.has_transactions or self.first_unstable is not None:
            state.on_high_watermark(metadata.offset)
            self.update_first_unstable_locked()

    def update_first_unstable_locked(self) -> None:
        """Publish where the first undecided transaction begins, after the producers' state changed."""
        offset = self.producer_state.first_unstable_offset
        if offset is None:
            self.first_unstable = None
            return
        offset = max(offset, self.log_start_offset)
        known = self.first_unstable
        if known is None or known.offset != offset:
            self.first_unstable = self.metadata_of(offset)

    def move_start_locked(self, offset: int) -> None:
        """Move the log's start forward, and with it everything that must not lie below it."""
        self.log_start_offset = offset
        if self.high_watermark.offset < offset:
            self.set_high_watermark_locked(self.metadata_of(offset))
        # Why the recovery point stays: segments below the new start may be unflushed, and recovery may begin at one.
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset(offset)
        self.update_first_unstable_locked()

    # Failing

    @property
    def is_usable(self) -> bool:
        """Whether the log is open and its disk has not failed."""
        return not self.is_closed and self.failure is None

    def check_usable_locked(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the disk failed or the log is closed."""
        if self.failure is not None:
            raise self.storage_error(self.failure)
        if self.is_closed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is closed")

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Turn an OSError into the failure of this log (rule 4)."""
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error

    def mark_offline(self, error: OSError) -> None:
        """Refuse everything from now on."""
        if self.failure is None:
            self.failure = error

    def fail(self, error: OSError) -> ApiError:
        """Take the log offline, report its disk's failure, and return the error for the caller to raise."""
        self.mark_offline(error)
        log.error("Disk failure under %s in %s: %s", self.topic_partition, self.directory, error)
        if self._on_disk_failure is not None:
            self._on_disk_failure(self.directory, error)
        return self.storage_error(error)

    def storage_error(self, error: OSError) -> ApiError:
        """Return the error that clients get after the disk failed."""
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log for partition {self.topic_partition} is offline: {error}"
        )
