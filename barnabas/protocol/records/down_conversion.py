"""Conversion of record batches (v2) to message sets (formats v0 and v1), for consumers older than Kafka 0.11.

Rules
1. Offsets stay, and so do the gaps of compaction. Headers are dropped: the formats have none.
2. Control batches are left out. Records of aborted transactions are converted as others are.
3. From batches without compression, records below `first_offset` are left out; a compressed batch stays whole.
4. A set ends before it becomes larger than `size_max`, except that its first batch is always there.
5. It ends, too, when its messages take `work_max` bytes before compression: a small batch can hold very many. What a
   batch decompresses to counts if it is more.
6. Only whole batches are converted: one that the end of the buffer cuts is left out.
7. Headers are not read: a batch of some kilobytes can have millions.

Source: Kafka's RecordsUtil.downConvert and LazyDownConversionRecords, 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    iter_headers,
    iter_records_without_headers,
    read_stored_header,
    records_payload,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, DecompressedTooLargeError
from barnabas.protocol.records.message_set import MAGIC_V0, encode_message, encode_wrapper
from barnabas.protocol.records.stored_messages import as_batch

#: The most bytes that the records of one compressed batch may take before compression, as they are and in an older
#: format.
WRAPPED_MAX: Final = 64 << 20


class ZstdError(MalformedMessageError):
    """A batch is compressed with zstd, which the formats before v2 do not have."""


class WrapperTooLargeError(MalformedMessageError):
    """A compressed batch has more records than one process converts at once (`WRAPPED_MAX`)."""


class DownConverted(NamedTuple):
    """A message set, and how many bytes its messages take before compression."""

    messages: bytes
    work_bytes: int


def to_message_set(batches: Buffer, magic: int, first_offset: int, size_max: int, work_max: int) -> DownConverted:
    """Return the records of whole batches as messages; empty if none is left.

    Raises ZstdError if nothing precedes the batch that has it, WrapperTooLargeError, and MalformedMessageError.
    """
    parts: list[bytes] = []
    size = work = 0
    view = memoryview(batches)
    for position, stored_header in iter_headers(batches, read_stored_header):
        if stored_header.is_control:
            continue
        if parts and (size >= size_max or work >= work_max):
            break
        header, payload = _payload(view[position : position + stored_header.size_in_bytes], stored_header)
        if payload is None:
            if parts:
                break
            raise ZstdError("records compressed with zstd cannot be converted to an older format")
        try:
            converted, done = _convert(header, iter_records_without_headers(payload, header), magic, first_offset)
        except struct.error:
            raise MalformedMessageError("a timestamp of a record has more than 64 bits") from None
        work += max(done, len(payload))
        if parts and size + len(converted) > size_max:
            break
        if converted:
            parts.append(converted)
            size += len(converted)
    return DownConverted(b"".join(parts), work)


def _payload(stored: Buffer, header: BatchHeader) -> tuple[BatchHeader, bytes | None]:
    """Return the header and the records of a batch, which an entry of format v0 or v1 becomes; None for zstd."""
    try:
        header, batch = as_batch(header, stored, WRAPPED_MAX)
        if header.compression_type is CompressionType.ZSTD:
            return header, None
        return header, bytes(records_payload(batch, 0, header, WRAPPED_MAX))
    except DecompressedTooLargeError as error:
        raise WrapperTooLargeError(str(error)) from None


def _convert(header: BatchHeader, records: Iterable[Record], magic: int, first_offset: int) -> DownConverted:
    attributes = header.attributes & LOG_APPEND_TIME_BIT if magic > MAGIC_V0 else 0
    if header.compression_type is not CompressionType.NONE:
        return _wrapped(header, records, magic, attributes)
    messages = b"".join(
        encode_message(magic, record.offset, record.timestamp, record.key, record.value, attributes)
        for record in records
        if record.offset >= first_offset
    )
    return DownConverted(messages, len(messages))


def _wrapped(header: BatchHeader, records: Iterable[Record], magic: int, attributes: int) -> DownConverted:
    """Return the wrapper of a compressed batch; it is empty for a batch that compaction emptied."""
    messages = bytearray()  # Why no list of the records: a small batch can hold millions
    base_offset = last_offset = -1
    timestamp = NO_TIMESTAMP
    for record in records:
        last_offset = record.offset
        if base_offset < 0:
            base_offset = last_offset if magic > MAGIC_V0 else 0
        timestamp = max(timestamp, record.timestamp)
        messages += encode_message(
            magic, last_offset - base_offset, record.timestamp, record.key, record.value, attributes
        )
        if len(messages) > WRAPPED_MAX:
            raise WrapperTooLargeError(f"the records of a batch take more than {WRAPPED_MAX} bytes in an older format")
    if not messages:
        return DownConverted(b"", 0)
    wrapper = encode_wrapper(header.compression_type, magic, last_offset, timestamp, messages, attributes)
    return DownConverted(wrapper, len(messages))
