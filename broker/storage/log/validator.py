"""Checks a batch before a leader appends it, and changes it as the topic's settings require.

Rules
1. The work is per batch. The header and the CRC prove as much as they can; records are read only as far as a check
   needs them.
2. Offsets, leader epoch, timestamps and the CRC are patched in place in the caller's buffer. A batch is copied only if
   it must be rebuilt (another compression, offsets with gaps) or if the buffer is read-only.
3. A refusal is an ApiError with Kafka's code; nothing was written then.

How much of a batch is checked
- Always: frame, CRC, and the header's offsets, count, sequence, compression and timestamps.
- `barnabas.record.validation=full`, the default: every field of every record too, so that no log holds a record that a
  consumer or the cleaner cannot read. In C this walk costs 1.6 µs for 150 records of 100 B, 0.6 µs for 16 of
  1 KiB: 7 % and 2 % of a broker's CPU time for produced bytes, and 1 % to 8 % (within the spread) of its throughput.
  Compressed batches must be decompressed too, as in Kafka: throughput was 0 to 8 % lower with lz4, snappy and zstd,
  12 % to 15 % with gzip (`python -m benchmarks.validation`). Uncompiled, the walk costs 190 µs and 20 µs.
- `header`: records only if the topic needs it (compaction requires keys; a lower timestamp bound or another
  compression type needs the records).
- Neither for batches that this cluster's own coordinators and controller wrote.

How much memory that takes
- Records are decompressed as a whole: at most ORDINARY_BYTES for each handler; more, up to
  `barnabas.record.decompressed.max.bytes`, for one batch of the process at a time (large_batches.py). Anything larger,
  and a compressed batch of more than RECORDS_MAX records, is refused with MESSAGE_TOO_LARGE, and the Java producer then
  splits its batch. Apache Kafka has no bound: it reads records as a stream, so a decompression bomb costs it no memory
  but a thread for as long as it lasts.
- Of invalid records the first RECORD_ERRORS_MAX are told; Apache Kafka tells all of them.

Different from Apache Kafka: it never checks offset deltas of uncompressed batches; here gaps in them are closed.

Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator, 4.3.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.large_batches import LARGE_BATCH, ORDINARY_BYTES, RECORDS_MAX
from barnabas.broker.storage.log.log_types import (
    LIKE_PRODUCER,
    LONG_MAX,
    AppendOrigin,
    AppendSettings,
    InvalidOffsetOrSequenceError,
    RecordError,
    RecordValidationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    LegacyMagicError,
    Record,
    assemble_batch,
    iter_records_without_headers,
    peek_size,
    read_header,
    records_payload,
    renumbered,
    set_attributes,
    set_attributes_and_max_timestamp,
    verify_crc,
)
from barnabas.protocol.records.compression import CompressionType, DecompressedTooLargeError, compress
from barnabas.protocol.records.plain import read_plain
from barnabas.protocol.records.walk import RecordsSummary, walk_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORD_ERRORS_SHOWN: Final = 3
RECORD_ERRORS_MAX: Final = 1_000
LONG_MIN: Final = -(2**63)

# Why: every batch passes here, and looking up an Enum member costs more than the check it is for.
_CLIENT: Final = AppendOrigin.CLIENT
_ZSTD: Final = int(CompressionType.ZSTD)


class ValidBatch:
    """A batch that may be appended: `data` is writable and whole; `header` is the header as it was received."""

    __slots__ = ("data", "header", "max_timestamp")

    def __init__(self, header: BatchHeader, data: bytearray | memoryview, max_timestamp: int) -> None:
        self.header = header
        self.data = data
        self.max_timestamp = max_timestamp


class LeaderValidator:
    """Checks the batches that one partition's leader appends.

    `full`: look at every record. `decompressed_max` bounds a batch's decompressed bytes, `ordinary_max` those that all
    handlers may have at the same time.
    """

    __slots__ = ("_decompressed_max", "_full", "_ordinary_max", "_tp")

    def __init__(
        self,
        tp: TopicPartition,
        *,
        full: bool = True,
        decompressed_max: int = ORDINARY_BYTES,
        ordinary_max: int = ORDINARY_BYTES,
    ) -> None:
        # Fixed before start
        self._tp = tp
        self._full = full
        self._decompressed_max = decompressed_max
        self._ordinary_max = ordinary_max

    def validate(self, records: memoryview, settings: AppendSettings, origin: AppendOrigin, now_ms: int) -> ValidBatch:
        """Check the one batch in `records`; stamp and convert it as the topic's settings require.

        Offsets are assigned later. Raises ApiError; RecordValidationError, a kind of it, for single records.
        """
        check = _BatchCheck(self._tp, self._full, settings, origin, now_ms)
        try:
            return check.run(records, min(self._decompressed_max, self._ordinary_max))
        except DecompressedTooLargeError as too_large:
            if self._decompressed_max <= self._ordinary_max:
                raise self._too_large(too_large) from None
        with LARGE_BATCH:
            try:
                return check.run(records, self._decompressed_max)
            except DecompressedTooLargeError as still_too_large:
                raise self._too_large(still_too_large) from None

    def _too_large(self, error: DecompressedTooLargeError) -> ApiError:
        return ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The {error} in the append to {self._tp}; barnabas.record.decompressed.max.bytes is the bound",
        )


class _BatchCheck:
    """The check of one batch, and its circumstances."""

    __slots__ = ("_full", "_now_ms", "_origin", "_settings", "_tp")

    def __init__(
        self,
        tp: TopicPartition,
        full: bool,
        settings: AppendSettings,
        origin: AppendOrigin,
        now_ms: int,
    ) -> None:
        self._tp = tp
        self._full = full
        self._settings = settings
        self._origin = origin
        self._now_ms = now_ms

    def run(self, records: memoryview, size_max: int) -> ValidBatch:
        """Check and convert the batch; its records may decompress to `size_max` bytes.

        Raises DecompressedTooLargeError for more, and may then be called again.
        """
        settings, origin = self._settings, self._origin
        header, walked = self._header_and_summary(records)
        self._check_frame(records, header, is_intact=walked is not None)
        if origin is _CLIENT:
            self._check_client_header(header)
        data = _writable(records, header)
        source = header.attributes & COMPRESSION_MASK
        target = _target_compression(settings, header)
        max_timestamp = header.max_timestamp
        stamps = settings.is_stamped
        if origin is _CLIENT or source != target:
            if header.attributes & LOG_APPEND_TIME_BIT:
                if stamps:
                    raise self._client_stamped()
                header = _unstamp(data, header)
            walked = walked or self._maybe_walk(data, header, target, size_max)
            if walked is not None:
                max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + walked.timestamp_delta_max)
                if settings.is_compacted and walked.keyless:
                    raise self._keyless(walked, header, stamps)
            if not stamps:
                self._check_timestamps(header, walked)
            if walked is not None and not (source == target and walked.offsets_are_contiguous):
                data = self._rebuild(data, header, walked, target)
                header = read_header(data)
        if stamps:
            max_timestamp = self._now_ms
        _set_timestamp(data, header, stamps, max_timestamp)
        return ValidBatch(header, data, max_timestamp)

    def _header_and_summary(self, records: memoryview) -> tuple[BatchHeader, RecordsSummary | None]:
        """Read the batch's header, and all else as well if the batch is plain and every record will be looked at.

        Without a summary, the CRC and the records are still to be checked.
        """
        # Why the size: a batch that is too large is refused by its header, before its records cost anything.
        if self._full and self._origin is _CLIENT and len(records) <= self._settings.max_message_bytes:
            plain = read_plain(records)
            if plain is not None:
                return plain
        return self._first_header(records), None

    def _first_header(self, records: memoryview) -> BatchHeader:
        """Read the header of the only batch. Only a cut batch may follow it."""
        tp = self._tp
        size = len(records)
        if size < LOG_OVERHEAD or peek_size(records) > size:
            raise ApiError(ErrorCode.INVALID_RECORD, f"Record batch in append to {tp} has no batches at all")
        try:
            header = read_header(records)
        except LegacyMagicError as legacy:
            raise ApiError(ErrorCode.INVALID_RECORD, f"{legacy}, in append to {tp}") from None
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in append to {tp}") from None
        end = header.batch_length + LOG_OVERHEAD
        if size - end >= LOG_OVERHEAD and peek_size(records, end) <= size - end:
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"An append to {tp} must have exactly one record batch, it has more"
            )
        return header

    def _check_frame(self, records: memoryview, header: BatchHeader, *, is_intact: bool) -> None:
        """Check the batch as a block of bytes: compression, base offset, size, and the CRC unless `is_intact`."""
        tp = self._tp
        kind = header.attributes & COMPRESSION_MASK
        if kind > _ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id {kind} in {tp}")
        if self._origin is _CLIENT and header.base_offset != 0:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"The baseOffset of the record batch in the append to {tp} should be 0, but it is {header.base_offset}",
            )
        size = header.batch_length + LOG_OVERHEAD
        if size > self._settings.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {tp} is {size} bytes which exceeds the maximum configured "
                f"value of {self._settings.max_message_bytes}",
            )
        if is_intact:
            return
        try:
            verify_crc(records, 0, header)
        except CorruptBatchError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in topic partition {tp}") from None

    def _check_client_header(self, header: BatchHeader) -> None:
        """Check the fields that only a client can get wrong. Kafka counts control records among wrong offsets."""
        tp = self._tp
        count_from_offsets = header.last_offset_delta + 1
        if count_from_offsets <= 0:
            raise InvalidOffsetOrSequenceError(
                ErrorCode.INVALID_RECORD,
                f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}] in topic partition "
                f"{tp}",
            )
        if header.record_count <= 0:
            raise InvalidOffsetOrSequenceError(
                ErrorCode.INVALID_RECORD,
                f"Invalid reported count for record batch: {header.record_count} in topic partition {tp}",
            )
        if count_from_offsets != header.record_count:
            raise InvalidOffsetOrSequenceError(
                ErrorCode.INVALID_RECORD,
                f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records "
                f"{header.record_count} in topic partition {tp}",
            )
        if count_from_offsets > RECORDS_MAX and header.attributes & COMPRESSION_MASK:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The compressed batch in the append to {tp} has {count_from_offsets} records, more than {RECORDS_MAX}",
            )
        if header.attributes & CONTROL_BIT:
            raise InvalidOffsetOrSequenceError(
                ErrorCode.INVALID_RECORD, f"Clients are not allowed to write control records in topic partition {tp}"
            )
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise InvalidOffsetOrSequenceError(
                ErrorCode.INVALID_RECORD,
                f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} "
                f"in topic partition {tp}",
            )

    def _maybe_walk(
        self, data: bytearray | memoryview, header: BatchHeader, target: int, size_max: int
    ) -> RecordsSummary | None:
        """Look at every record if a check or a conversion needs more than the header."""
        settings = self._settings
        is_converted = target != header.attributes & COMPRESSION_MASK
        if self._full or is_converted or settings.is_compacted or settings.has_timestamp_before_max:
            return self._walk(data, header, size_max)
        return None

    def _walk(self, data: bytearray | memoryview, header: BatchHeader, size_max: int) -> RecordsSummary:
        try:
            return walk_records(records_payload(data, 0, header, size_max), header.record_count)
        except DecompressedTooLargeError:
            raise
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"{error}, in topic partition {self._tp}") from None

    def _keyless(self, walked: RecordsSummary, header: BatchHeader, stamps: bool) -> ApiError:
        """Return the refusal of records without a key; a wrong timestamp of another record decides its code."""
        reason = f"Compacted topic cannot accept message without key in topic partition {self._tp}."
        payload = bytes(walked.payload)
        code = ErrorCode.INVALID_RECORD
        earliest, latest = (LONG_MIN, LONG_MAX) if stamps else self._bounds()
        keyed = _timestamps_of_keyed(iter_records_without_headers(payload, header))
        if next(_outside(keyed, earliest, latest, self._tp), None) is not None:
            code = ErrorCode.INVALID_TIMESTAMP
        records = iter_records_without_headers(payload, header)
        refusal = _record_errors(code, _without_key_or_outside(records, reason, earliest, latest, self._tp))
        refusal.keyless = walked.keyless
        return refusal

    def _check_timestamps(self, header: BatchHeader, walked: RecordsSummary | None) -> None:
        """Check the topic's bounds, against the header if the records were not walked.

        The greatest timestamp then comes from the header, and so does the batch's entry in the time index. A batch
        whose records differ can only mislead searches by time in its own batch.
        """
        base = header.base_timestamp
        if walked is None:
            lowest, highest = min(base, header.max_timestamp), max(base, header.max_timestamp)
        else:
            lowest, highest = base + walked.timestamp_delta_min, base + walked.timestamp_delta_max
        settings = self._settings
        if lowest >= 0 and highest <= self._now_ms and not settings.has_timestamp_before_max:
            return  # nearly every batch; the bounds below may be too large for fast arithmetic
        earliest, latest = self._bounds()
        if highest <= latest and lowest >= earliest:
            return
        timestamps: Iterable[int] = (highest if highest > latest else lowest,)
        if walked is not None:
            timestamps = _timestamps(iter_records_without_headers(bytes(walked.payload), header))
        refusal = _record_errors(ErrorCode.INVALID_TIMESTAMP, _outside(timestamps, earliest, latest, self._tp))
        if refusal.record_errors:
            raise refusal

    def _bounds(self) -> tuple[int, int]:
        """Return the earliest and the latest timestamp that the topic accepts now."""
        settings = self._settings
        # Why within an int64: with very wide bounds the sum of two valid values may not be one.
        earliest = max(self._now_ms - settings.timestamp_before_max_ms, LONG_MIN)
        return earliest, min(self._now_ms + settings.timestamp_after_max_ms, LONG_MAX)

    def _client_stamped(self) -> ApiError:
        message = (
            f"Invalid timestamp type in a message of topic partition {self._tp}. "
            "Producer should not set timestamp type to LogAppendTime."
        )
        # Why one: only the header says how many there are, and Apache Kafka's would all be the same.
        return _record_errors(ErrorCode.INVALID_TIMESTAMP, iter([RecordError(0, message)]))

    def _rebuild(
        self, data: bytearray | memoryview, header: BatchHeader, walked: RecordsSummary, target: int
    ) -> bytearray:
        """Write the batch again, with the topic's compression and offsets without gaps."""
        encoded = walked.payload
        if not walked.offsets_are_contiguous:
            encoded = renumbered(bytes(encoded), header.record_count)
        kind = CompressionType(target)
        stored = (
            encoded if kind is CompressionType.NONE else compress(kind, encoded, self._settings.compression_level(kind))
        )
        attributes = header.attributes & ~COMPRESSION_MASK | target
        size = HEADER_SIZE + len(stored)
        if size > self._settings.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self._tp} which exceeds the maximum "
                f"configured size of {self._settings.max_message_bytes}",
            )
        rebuilt = header.replace(attributes=attributes, last_offset_delta=header.record_count - 1)
        return bytearray(assemble_batch(rebuilt, stored))


def _writable(records: memoryview, header: BatchHeader) -> bytearray | memoryview:
    """Return exactly the batch, copied only if the caller's buffer must not be changed."""
    size = header.batch_length + LOG_OVERHEAD
    if records.readonly:
        return bytearray(records[:size])
    return records if len(records) == size else records[:size]


def _target_compression(settings: AppendSettings, header: BatchHeader) -> int:
    """Return the compression id that the stored batch must have."""
    if settings.compression == LIKE_PRODUCER or header.attributes & CONTROL_BIT:
        return header.attributes & COMPRESSION_MASK
    return settings.compression


def _unstamp(data: bytearray | memoryview, header: BatchHeader) -> BatchHeader:
    """Clear the bit with which a client claims that a broker stamped the batch: its own timestamps hold."""
    set_attributes(data, header.attributes & ~LOG_APPEND_TIME_BIT)
    return read_header(data)


# Why functions: mypyc makes a list of a generator expression, of a million errors too.


def _without_key_or_outside(
    records: Iterator[Record], reason: str, earliest: int, latest: int, tp: TopicPartition
) -> Iterator[RecordError]:
    """Yield an error for each record without a key, and for each other one whose timestamp is out of range."""
    for index, record in enumerate(records):
        if record.key is None:
            yield RecordError(index, reason)
        elif _is_outside(record.timestamp, earliest, latest):
            yield _timestamp_error(index, record.timestamp, earliest, latest, tp)


def _timestamps(records: Iterator[Record]) -> Iterator[int]:
    for record in records:
        yield record.timestamp


def _timestamps_of_keyed(records: Iterator[Record]) -> Iterator[int]:
    for record in records:
        if record.key is not None:
            yield record.timestamp


def _outside(timestamps: Iterable[int], earliest: int, latest: int, tp: TopicPartition) -> Iterator[RecordError]:
    """Yield an error for each timestamp that is out of range."""
    for index, timestamp in enumerate(timestamps):
        if _is_outside(timestamp, earliest, latest):
            yield _timestamp_error(index, timestamp, earliest, latest, tp)


def _is_outside(timestamp: int, earliest: int, latest: int) -> bool:
    return not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP


def _timestamp_error(index: int, timestamp: int, earliest: int, latest: int, tp: TopicPartition) -> RecordError:
    return RecordError(
        index,
        f"Timestamp {timestamp} of a message in topic partition {tp} is out of range. The timestamp should be within "
        f"[{earliest}, {latest}]",
    )


def _record_errors(code: ErrorCode, errors: Iterator[RecordError]) -> RecordValidationError:
    told = list(islice(errors, RECORD_ERRORS_MAX))
    if code is ErrorCode.INVALID_TIMESTAMP:
        summary = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = "; ".join(str(error.message) for error in told[:RECORD_ERRORS_SHOWN])
        least = "at least " if next(errors, None) is not None else ""
        summary = (
            f"One or more records have been rejected due to {least}{len(told)} record errors in total, and only "
            f"showing the first three errors at most: {shown}"
        )
    return RecordValidationError(code, summary, told)


def _set_timestamp(data: bytearray | memoryview, header: BatchHeader, stamps: bool, max_timestamp: int) -> None:
    """Write the greatest timestamp and its type, unless both are right already."""
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if stamps:
        attributes |= LOG_APPEND_TIME_BIT
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        set_attributes_and_max_timestamp(data, attributes, max_timestamp)
