"""Arguments and results of a log's methods: small values that storage and its callers share.

Offsets: `first_offset`/`last_offset` are inclusive; `log_end_offset`, `high_watermark` and `last_stable_offset` are
exclusive.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from barnabas.common.disk.files import FileSlice
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.compression import CompressionType

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
UNKNOWN_POSITION: Final = -1

# Timestamps with a special meaning in ListOffsets.
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


class AppendOrigin(Enum):
    """The source of a batch; decides which checks apply."""

    CLIENT = "client"  # every check
    COORDINATOR = "coordinator"  # may write control batches; sequences are not checked
    REPLICATION = "replication"  # offsets and epochs are the leader's; checked for order only
    RAFT_LEADER = "raft_leader"  # the metadata log: offsets are assigned by the controller


class FetchIsolation(IntEnum):
    """The offset up to which a reader may read."""

    LOG_END = 0  # a follower
    HIGH_WATERMARK = 1  # read_uncommitted
    TXN_COMMITTED = 2  # read_committed


class RecordError(NamedTuple):
    """The reason why one record of a batch was refused; `batch_index` counts records from 0."""

    batch_index: int
    message: str | None


class UnexpectedAppendOffsetError(Exception):
    """A follower was given batches that do not continue its log."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class InvalidOffsetOrSequenceError(ApiError):
    """A batch refused because of its offsets or its sequence number (InvalidOffsetOrSequenceRecordsPerSec)."""


class RecordValidationError(ApiError):
    """A batch refused because of some of its records (KIP-467).

    `keyless` is the number of records that lack the key that a compacted topic demands.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        self.keyless = 0


class LogOffsetMetadata:
    """An offset and where its batch begins: byte `position` of the segment that starts at `segment_base_offset`.

    With a position of -1 only the offset is known. An immutable value.
    """

    __slots__ = ("offset", "position", "segment_base_offset")

    def __init__(self, offset: int, segment_base_offset: int = NO_OFFSET, position: int = UNKNOWN_POSITION) -> None:
        self.offset = offset
        self.segment_base_offset = segment_base_offset
        self.position = position

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogOffsetMetadata) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"LogOffsetMetadata{self._values()!r}"

    def _values(self) -> tuple[int, int, int]:
        return self.offset, self.segment_base_offset, self.position


class TimestampOffset(NamedTuple):
    """The result of a search by time; `leader_epoch` is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_EPOCH


class LastRecord(NamedTuple):
    """What the cleaner must keep of a producer: its last data batch, or (offset -1) a marker of this epoch."""

    data_offset: int
    producer_epoch: int


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read_committed consumer must drop."""

    producer_id: int
    first_offset: int


class LogAppendInfo:
    """The result of an append; `log_append_time_ms` is -1 unless the broker stamps the topic's records."""

    __slots__ = (
        "first_offset",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "record_count",
        "size_in_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int,
        size_in_bytes: int,
        leader_epoch: int,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size_in_bytes = size_in_bytes
        self.leader_epoch = leader_epoch
        self.is_duplicate = is_duplicate


class FetchData:
    """The result of a read: batches from the one that holds `fetch_offset`; `max_bytes` may cut the last.

    `slice` is None if there is nothing to read; it keeps its file open until it is dropped. `aborted_transactions` is
    None unless the reader is read_committed.
    """

    __slots__ = (
        "aborted_transactions",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "size",
        "slice",
    )

    def __init__(
        self,
        fetch_offset: int,
        slice_: FileSlice | None,
        size: int,
        log_start_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int,
        aborted_transactions: list[AbortedTransaction] | None = None,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.slice = slice_
        self.size = size
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_end_offset = log_end_offset
        self.aborted_transactions = aborted_transactions


class LogConfig(Protocol):
    """The topic settings that storage reads; `barnabas.config.TopicConfig` has them (and more)."""

    @property
    def segment_bytes(self) -> int:
        """segment.bytes."""

    @property
    def max_segment_ms(self) -> int:
        """segment.ms, or max.compaction.lag.ms if the topic is compacted and that is less."""

    @property
    def segment_jitter_ms(self) -> int:
        """segment.jitter.ms."""

    @property
    def segment_index_bytes(self) -> int:
        """segment.index.bytes."""

    @property
    def index_interval_bytes(self) -> int:
        """index.interval.bytes."""

    @property
    def flush_messages(self) -> int:
        """flush.messages."""

    @property
    def flush_ms(self) -> int:
        """flush.ms."""

    @property
    def retention_bytes(self) -> int:
        """retention.bytes."""

    @property
    def retention_ms(self) -> int:
        """retention.ms."""

    @property
    def file_delete_delay_ms(self) -> int:
        """file.delete.delay.ms."""

    @property
    def max_message_bytes(self) -> int:
        """max.message.bytes."""

    @property
    def compact(self) -> bool:
        """Whether cleanup.policy has compact."""

    @property
    def delete(self) -> bool:
        """Whether cleanup.policy has delete."""

    @property
    def min_cleanable_dirty_ratio(self) -> float:
        """min.cleanable.dirty.ratio."""

    @property
    def min_compaction_lag_ms(self) -> int:
        """min.compaction.lag.ms."""

    @property
    def max_compaction_lag_ms(self) -> int:
        """max.compaction.lag.ms."""

    @property
    def delete_retention_ms(self) -> int:
        """delete.retention.ms."""

    @property
    def compression_type(self) -> str:
        """compression.type."""

    @property
    def compression_gzip_level(self) -> int:
        """compression.gzip.level."""

    @property
    def compression_lz4_level(self) -> int:
        """compression.lz4.level."""

    @property
    def compression_zstd_level(self) -> int:
        """compression.zstd.level."""

    @property
    def preallocate(self) -> bool:
        """preallocate."""

    @property
    def message_timestamp_type(self) -> str:
        """message.timestamp.type."""

    @property
    def message_timestamp_before_max_ms(self) -> int:
        """message.timestamp.before.max.ms."""

    @property
    def message_timestamp_after_max_ms(self) -> int:
        """message.timestamp.after.max.ms."""


LONG_MAX: Final = 2**63 - 1
LIKE_PRODUCER: Final = -1
"""A compression id: whatever the producer chose."""


class AppendSettings:
    """What every append needs to know of a topic's settings. An immutable value, shared by logs with equal settings.

    Why beside LogConfig: compiled code reads these as fields of a struct, and those by a lookup in a dict, ten times a
    batch.
    """

    __slots__ = (
        "compression",
        "compression_levels",
        "has_flush_messages",
        "has_timestamp_before_max",
        "is_compacted",
        "is_stamped",
        "max_message_bytes",
        "max_segment_ms",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(
        self,
        segment_bytes: int,
        max_segment_ms: int,
        max_message_bytes: int,
        flush_messages: int,
        is_compacted: bool,
        compression_type: str,
        compression_levels: tuple[int, int, int],
        timestamp_type: str,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.max_segment_ms = max_segment_ms
        self.max_message_bytes = max_message_bytes
        self.has_flush_messages = flush_messages != LONG_MAX
        self.is_compacted = is_compacted
        self.is_stamped = timestamp_type == "LogAppendTime"
        self.compression = LIKE_PRODUCER
        if compression_type == "uncompressed":
            self.compression = int(CompressionType.NONE)
        elif compression_type != "producer":
            self.compression = int(CompressionType[compression_type.upper()])
        self.compression_levels = compression_levels  # of gzip, lz4, zstd
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.has_timestamp_before_max = timestamp_before_max_ms != LONG_MAX

    def compression_level(self, kind: CompressionType) -> int | None:
        """Return the level with which to compress; None if this kind has none."""
        gzip, lz4, zstd = self.compression_levels
        return {CompressionType.GZIP: gzip, CompressionType.LZ4: lz4, CompressionType.ZSTD: zstd}.get(kind)


def append_settings(config: LogConfig) -> AppendSettings:
    """Return the settings of a topic that every append needs."""
    return _shared_settings(
        config.segment_bytes,
        config.max_segment_ms,
        config.max_message_bytes,
        config.flush_messages,
        config.compact,
        config.compression_type,
        (config.compression_gzip_level, config.compression_lz4_level, config.compression_zstd_level),
        config.message_timestamp_type,
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
    )


# Why cached: logs of 10,000 partitions have a few settings.
_shared_settings = lru_cache(maxsize=256)(AppendSettings)
