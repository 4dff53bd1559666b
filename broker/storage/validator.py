"""What a leader checks before it appends a batch, and the changes it makes to one.

Rules
1. Work is per batch. What the header and the CRC prove is proved from them; records are walked only as far as a check
   needs it.
2. Offsets, leader epoch, timestamps and the CRC are patched in place in the caller's buffer; a batch is copied only
   where it must be rebuilt (another compression, offsets with gaps) or where the buffer is read-only.
3. A refusal is an ApiError with Kafka's code; nothing was written then.

How far a batch is looked at
- Always: frame, CRC, and what the header says of offsets, count, sequence, compression and timestamps.
- `barnabas.record.validation=full`, the default: every field of every record too, so that nothing gets into a log
  that a consumer or the cleaner could not read. In C the walk costs 1.6 µs for 150 records of 100 B, 0.6 µs for 16 of
  1 KiB: 7 % and 2 % of a broker's CPU time for produced bytes, and 1 % to 8 % (within the spread) of its throughput.
  Compressed batches have to be decompressed too, as in Kafka: throughput was 0 to 8 % lower with lz4, snappy and zstd,
  12 % to 15 % with gzip (`python -m benchmarks.validation`). Uncompiled, the walk costs 190 µs and 20 µs.
- `header`: records only where the topic needs them (compaction wants keys, a lower timestamp bound or another
  compression type needs the records).
- Neither for batches that this cluster's own coordinators and controller wrote.

How much memory that takes
- Records are decompressed as a whole: at most ORDINARY_BYTES for each handler; more, up to
  `barnabas.record.decompressed.max.bytes`, for one batch of the process at a time. What is larger still is refused with
  MESSAGE_TOO_LARGE, upon which the Java producer splits its batch. Apache Kafka has no bound: it reads records as a
  stream, so a bomb costs it no memory, but a thread for as long as it lasts.

Different from Apache Kafka: it never checks offset deltas of uncompressed batches; here gaps in them are closed.

Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator, 4.3.
"""

from __future__ import annotations

import struct
import threading
from typing import Final

from barnabas.broker.storage.log_types import (
    AppendOrigin,
    LogConfig,
    RecordError,
    RecordValidationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    LegacyMagicError,
    SimpleRecord,
    assemble_batch,
    encode_record,
    iter_records,
    read_header,
    records_payload,
    reseal,
    verify_crc,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, DecompressedTooLargeError, compress
from barnabas.protocol.records.walk import KEY_END, TIMESTAMP_DELTA, RecordsSummary, record_spans, walk_records

RECORD_ERRORS_SHOWN: Final = 3
PRODUCE_VERSION_OF_ZSTD: Final = 7
ORDINARY_BYTES: Final = 64 << 20
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)

_LENGTH: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")


# Why: every batch comes by here, and looking a member up in its Enum costs more than the check it is for.
_CLIENT: Final = AppendOrigin.CLIENT
_ZSTD: Final = int(CompressionType.ZSTD)


# Held while a batch of more than ORDINARY_BYTES is decompressed. A thread that waits for it holds its partition's lock;
# the one that has it takes no other lock.
_LARGE_TURN: Final = threading.Lock()


class _Walked:
    """The records of a batch, decompressed, and what walking them showed."""

    __slots__ = ("payload", "summary")

    def __init__(self, payload: Buffer, summary: RecordsSummary) -> None:
        self.payload = payload
        self.summary = summary


class ValidBatch:
    """A batch that may be appended: `data` is writable and whole; `header` is what it was when it came."""

    __slots__ = ("data", "header", "max_timestamp")

    def __init__(self, header: BatchHeader, data: bytearray | memoryview, max_timestamp: int) -> None:
        self.header = header
        self.data = data
        self.max_timestamp = max_timestamp


def validate_for_leader(
    records: memoryview,
    config: LogConfig,
    *,
    tp: TopicPartition,
    origin: AppendOrigin,
    now_ms: int,
    request_version: int,
    full: bool = True,
    decompressed_max: int = ORDINARY_BYTES,
    ordinary_max: int = ORDINARY_BYTES,
) -> ValidBatch:
    """Check the one batch in `records`; raises ApiError. Stamps and converts it as the topic wants.

    Offsets come later.
    """
    size_max = min(decompressed_max, ordinary_max)
    try:
        return _validated(records, config, tp, origin, now_ms, request_version, full, size_max)
    except DecompressedTooLargeError as too_large:
        if decompressed_max <= ordinary_max:
            raise _decompressed_too_large(too_large, tp) from None
    with _LARGE_TURN:
        try:
            return _validated(records, config, tp, origin, now_ms, request_version, full, decompressed_max)
        except DecompressedTooLargeError as still_too_large:
            raise _decompressed_too_large(still_too_large, tp) from None


def _decompressed_too_large(error: DecompressedTooLargeError, tp: TopicPartition) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The {error} in the append to {tp}; barnabas.record.decompressed.max.bytes is the bound",
    )


def _validated(
    records: memoryview,
    config: LogConfig,
    tp: TopicPartition,
    origin: AppendOrigin,
    now_ms: int,
    request_version: int,
    full: bool,
    size_max: int,
) -> ValidBatch:
    """See `validate_for_leader`; raises DecompressedTooLargeError too, and may be called again then."""
    header = _first_header(records, tp)
    _check_frame(records, header, config, tp, origin, request_version)
    if origin is _CLIENT:
        _check_client_header(header, tp)
    data = _writable(records, header)
    source = header.attributes & COMPRESSION_MASK
    target = _target_compression(config, header)
    max_timestamp = header.max_timestamp
    stamps = config.message_timestamp_type == "LogAppendTime"
    if origin is _CLIENT or source != target:
        if header.attributes & LOG_APPEND_TIME_BIT:
            if stamps:
                raise _client_stamped(tp)
            header = _unstamp(data, header)
        walked = None
        if full or source != target or _needs_records(config):
            walked = _walk(data, header, tp, size_max)
            max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + walked.summary.timestamp_delta_max)
            if walked.summary.has_keyless and config.compact:
                raise _keyless(walked, header, tp)
        if not stamps:
            _check_timestamps(header, walked, config, now_ms, tp)
        if walked is not None and not (source == target and walked.summary.offsets_are_contiguous):
            data = _rebuild(data, header, walked, target, config, tp)
            header = read_header(data)
    if stamps:
        max_timestamp = now_ms
    _set_timestamp(data, header, stamps, max_timestamp)
    return ValidBatch(header, data, max_timestamp)


def _first_header(records: memoryview, tp: TopicPartition) -> BatchHeader:
    """Read the header of the only batch; anything after it but a cut batch is refused."""
    size = len(records)
    if size < LOG_OVERHEAD or _LENGTH.unpack_from(records, LENGTH_OFFSET)[0] + LOG_OVERHEAD > size:
        raise ApiError(ErrorCode.INVALID_RECORD, f"Record batch in append to {tp} has no batches at all")
    try:
        header = read_header(records)
    except LegacyMagicError as legacy:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{legacy}, in append to {tp}") from None
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in append to {tp}") from None
    rest = size - header.batch_length - LOG_OVERHEAD
    if rest >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(records, header.size_in_bytes + LENGTH_OFFSET)
        if length + LOG_OVERHEAD <= rest:
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"An append to {tp} must have exactly one record batch, it has more"
            )
    return header


def _check_frame(
    records: memoryview,
    header: BatchHeader,
    config: LogConfig,
    tp: TopicPartition,
    origin: AppendOrigin,
    request_version: int,
) -> None:
    """Check what concerns the batch as a block of bytes."""
    kind = header.attributes & COMPRESSION_MASK
    if kind > _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id {kind} in {tp}")
    if kind == _ZSTD and request_version < PRODUCE_VERSION_OF_ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {request_version} are not allowed to use ZStandard compression",
        )
    if origin is _CLIENT and header.base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {tp} should be 0, but it is {header.base_offset}",
        )
    size = header.batch_length + LOG_OVERHEAD
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {tp} is {size} bytes which exceeds the maximum configured value "
            f"of {config.max_message_bytes}",
        )
    try:
        verify_crc(records, 0, header)
    except CorruptBatchError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}, in topic partition {tp}") from None


def _check_client_header(header: BatchHeader, tp: TopicPartition) -> None:
    """Check what only clients could get wrong."""
    count_from_offsets = header.last_offset_delta + 1
    if count_from_offsets <= 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}] in topic partition {tp}",
        )
    if header.record_count <= 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Invalid reported count for record batch: {header.record_count} in topic partition {tp}",
        )
    if count_from_offsets != header.record_count:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records "
            f"{header.record_count} in topic partition {tp}",
        )
    if header.attributes & CONTROL_BIT:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"Clients are not allowed to write control records in topic partition {tp}"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} in "
            f"topic partition {tp}",
        )


def _writable(records: memoryview, header: BatchHeader) -> bytearray | memoryview:
    """Return exactly the batch, copied only if the caller's buffer may not be changed."""
    size = header.batch_length + LOG_OVERHEAD
    if records.readonly:
        return bytearray(records[:size])
    return records if len(records) == size else records[:size]


def _target_compression(config: LogConfig, header: BatchHeader) -> int:
    """Return the id of the compression that the stored batch shall have."""
    wanted = config.compression_type
    source = header.attributes & COMPRESSION_MASK
    if wanted == "producer" or header.attributes & CONTROL_BIT:
        return source
    if wanted == "uncompressed":
        return CompressionType.NONE
    return CompressionType[wanted.upper()]


def _needs_records(config: LogConfig) -> bool:
    """Tell whether the topic's settings ask for something that the header does not tell."""
    return config.compact or config.message_timestamp_before_max_ms != LONG_MAX


def _walk(data: bytearray | memoryview, header: BatchHeader, tp: TopicPartition, size_max: int) -> _Walked:
    try:
        payload = records_payload(data, 0, header, size_max)
        return _Walked(payload, walk_records(payload, header.record_count))
    except DecompressedTooLargeError:
        raise
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}, in topic partition {tp}") from None


def _unstamp(data: bytearray | memoryview, header: BatchHeader) -> BatchHeader:
    """Take the mark away with which a client claims that a broker stamped the batch: its own timestamps hold."""
    _INT16.pack_into(data, ATTRIBUTES_OFFSET, header.attributes & ~LOG_APPEND_TIME_BIT)
    reseal(data, 0, len(data))
    return read_header(data)


def _keyless(walked: _Walked, header: BatchHeader, tp: TopicPartition) -> ApiError:
    reason = f"Compacted topic cannot accept message without key in topic partition {tp}."
    spans = record_spans(walked.payload, header.record_count)
    errors = [RecordError(index, reason) for index, span in enumerate(spans) if span[KEY_END] < 0]
    return _record_errors(ErrorCode.INVALID_RECORD, errors)


def _check_timestamps(
    header: BatchHeader, walked: _Walked | None, config: LogConfig, now_ms: int, tp: TopicPartition
) -> None:
    """Check the topic's bounds, against the header's claims where the records were not walked.

    The greatest timestamp comes from the header then, and so does the batch's place in the time index: a batch whose
    records say otherwise can only mislead searches by time in its own batch.
    """
    base = header.base_timestamp
    if walked is None:
        lowest, highest = min(base, header.max_timestamp), max(base, header.max_timestamp)
    else:
        lowest, highest = base + walked.summary.timestamp_delta_min, base + walked.summary.timestamp_delta_max
    # Why within an int64: bounds may be set so wide that a sum of two fields that are both in range is not.
    earliest = max(now_ms - config.message_timestamp_before_max_ms, LONG_MIN)
    latest = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
    if highest <= latest and lowest >= earliest:
        return
    if walked is None:
        timestamps = [highest if highest > latest else lowest]
    else:
        timestamps = [base + span[TIMESTAMP_DELTA] for span in record_spans(walked.payload, header.record_count)]
    errors = [
        RecordError(
            index,
            f"Timestamp {timestamp} of a message in topic partition {tp} is out of range. The timestamp should be "
            f"within [{earliest}, {latest}]",
        )
        for index, timestamp in enumerate(timestamps)
        if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP
    ]
    if errors:
        raise _record_errors(ErrorCode.INVALID_TIMESTAMP, errors)


def _client_stamped(tp: TopicPartition) -> ApiError:
    message = (
        f"Invalid timestamp type in a message of topic partition {tp}. "
        "Producer should not set timestamp type to LogAppendTime."
    )
    return _record_errors(ErrorCode.INVALID_TIMESTAMP, [RecordError(0, message)])


def _record_errors(code: ErrorCode, errors: list[RecordError]) -> RecordValidationError:
    if code is ErrorCode.INVALID_TIMESTAMP:
        summary = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = "; ".join(str(error.message) for error in errors[:RECORD_ERRORS_SHOWN])
        summary = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
            f"first three errors at most: {shown}"
        )
    return RecordValidationError(code, summary, errors)


def _rebuild(
    data: bytearray | memoryview,
    header: BatchHeader,
    walked: _Walked,
    target: int,
    config: LogConfig,
    tp: TopicPartition,
) -> bytearray:
    """Write the batch anew, with the topic's compression and offsets without gaps."""
    encoded = walked.payload if walked.summary.offsets_are_contiguous else _renumbered(data, header)
    kind = CompressionType(target)
    level = None
    if kind in (CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD):
        level = int(getattr(config, f"compression_{kind.name.lower()}_level"))
    stored = encoded if kind is CompressionType.NONE else compress(kind, encoded, level)
    attributes = header.attributes & ~COMPRESSION_MASK | target
    size = HEADER_SIZE + len(stored)
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {tp} which exceeds the maximum configured size "
            f"of {config.max_message_bytes}",
        )
    rebuilt = header._replace(attributes=attributes, last_offset_delta=header.record_count - 1)
    return bytearray(assemble_batch(rebuilt, stored))


def _renumbered(data: bytearray | memoryview, header: BatchHeader) -> bytes:
    """Write the records with offset deltas of 0, 1, 2 …"""
    return b"".join(
        encode_record(
            SimpleRecord(record.timestamp, record.key, record.value, record.headers),
            record.timestamp - header.base_timestamp,
            index,
        )
        for index, record in enumerate(iter_records(data))
    )


def _set_timestamp(data: bytearray | memoryview, header: BatchHeader, stamps: bool, max_timestamp: int) -> None:
    """Write the greatest timestamp and its type, and the CRC if that changed anything."""
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if stamps:
        attributes |= LOG_APPEND_TIME_BIT
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _INT16.pack_into(data, ATTRIBUTES_OFFSET, attributes)
    _INT64.pack_into(data, MAX_TIMESTAMP_OFFSET, max_timestamp)
    reseal(data, 0, len(data))
