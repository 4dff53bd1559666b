"""Entries of formats v0 and v1 in a log, as record batches (v2): whoever needs their records reads one format.

A log keeps such entries as they are, and a fetch sends them so. But searches by time, the cleaner, coordinators and
tools look at records.

Rules
1. A batch has the records of one entry (the messages of a wrapper), their offsets, and timestamps; it ends at the
   entry's offset.
2. The entry's CRC is checked first, since the batch gets a new one.
3. Malformed input raises MalformedMessageError; an entry that decompresses to more than the bound raises
   DecompressedTooLargeError, a kind of it.

Source: Kafka's AbstractLegacyRecordBatch, 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    INT32_MAX,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    SimpleRecord,
    assemble_batch,
    encode_record,
    iter_headers,
    read_header,
    read_stored_header,
)
from barnabas.protocol.records.compression import DECOMPRESSED_SIZE_MAX, Buffer, CompressionType, compress
from barnabas.protocol.records.message_set import MAGIC_V0, Message, iter_messages, iter_wrapped


def as_batch(header: BatchHeader, stored: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> tuple[BatchHeader, Buffer]:
    """Return the one batch in `stored` and its header; an entry of format v0 or v1 is converted."""
    if header.magic >= MAGIC_V2:
        return header, stored
    entry = _entry(stored)
    messages = list(_messages(entry, size_max))
    base_offset, base_timestamp = messages[0].offset, messages[0].timestamp
    if not 0 <= entry.offset - base_offset <= INT32_MAX:
        raise MalformedMessageError(f"the messages of the wrapper at offset {entry.offset} begin at {base_offset}")
    kind = entry.compression
    payload = _encoded(messages, base_offset, base_timestamp)
    is_stamped = entry.is_log_append_time
    newest = entry.timestamp if is_stamped else max(message.timestamp for message in messages)
    converted = BatchHeader(
        base_offset, 0, NO_LEADER_EPOCH, MAGIC_V2, 0,
        int(kind) | (LOG_APPEND_TIME_BIT if is_stamped else 0), entry.offset - base_offset,
        base_timestamp, newest, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, len(messages),
    )  # fmt: skip
    batch = assemble_batch(converted, payload if kind is CompressionType.NONE else compress(kind, payload))
    return read_header(batch), memoryview(batch)


def base_offset_of(header: BatchHeader, stored: Buffer) -> int:
    """Return the offset of the first record of the one batch in `stored`; only a wrapper's is not in its header."""
    if header.magic >= MAGIC_V2:
        return header.base_offset
    return next(_messages(_entry(stored), DECOMPRESSED_SIZE_MAX)).offset


def iter_batches(buffer: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield the whole batches of a read, converted if they are old; raises MalformedMessageError."""
    view = memoryview(buffer)
    for position, header in iter_headers(buffer, read_stored_header):
        yield as_batch(header, view[position : position + header.size_in_bytes], size_max)


def _entry(stored: Buffer) -> Message:
    entry = next(iter_messages(stored), None)
    if entry is None:
        raise MalformedMessageError("a message is cut short")
    return entry


def _messages(entry: Message, size_max: int) -> Iterator[Message]:
    """Yield the messages of an entry with their absolute offsets."""
    if entry.compression is CompressionType.NONE:
        yield entry
        return
    messages = list(iter_wrapped(entry, size_max))
    shift = 0 if entry.magic == MAGIC_V0 else _shift(entry.offset, messages[-1].offset)
    for message in messages:
        yield message._replace(offset=message.offset + shift)


def _shift(wrapper_offset: int, last_offset: int) -> int:
    """Return what to add to offsets in a v1 wrapper: they are relative; zero means that they are not."""
    if wrapper_offset and wrapper_offset < last_offset:
        raise MalformedMessageError(f"a message of offset {last_offset} in a wrapper of offset {wrapper_offset}")
    return wrapper_offset - last_offset if wrapper_offset else 0


def _encoded(messages: Iterable[Message], base_offset: int, base_timestamp: int) -> bytes:
    return b"".join(
        encode_record(
            SimpleRecord(
                message.timestamp,
                None if message.key is None else bytes(message.key),
                None if message.value is None else bytes(message.value),
            ),
            message.timestamp - base_timestamp,
            message.offset - base_offset,
        )
        for message in messages
    )
