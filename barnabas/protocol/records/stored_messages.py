"""Entries of formats v0 and v1 in a log, as record batches (v2): whoever needs their records reads one format.

A log keeps such entries as they are, and a fetch sends them so. But searches by time, the cleaner, coordinators and
tools look at records.

Rules
1. A batch has the records of one entry (the messages of a wrapper), their offsets, and timestamps; it ends at the
   entry's offset.
2. The entry's CRC is checked first, since the batch gets a new one.
3. Malformed input raises MalformedMessageError; an entry that decompresses to more than the bound, or to more than
   MESSAGES_MAX messages, raises DecompressedTooLargeError, a kind of it.

Source: Kafka's AbstractLegacyRecordBatch, 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.limits import ELEMENTS_MAX
from barnabas.protocol.records.batch import (
    INT32_MAX,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    assemble_batch,
    iter_headers,
    read_header,
    read_stored_header,
)
from barnabas.protocol.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Buffer,
    CompressionType,
    DecompressedTooLargeError,
    compress,
)
from barnabas.protocol.records.message_set import MAGIC_V0, Message, iter_messages, iter_spans, iter_unwrapped, unwrap

#: Of a wrapper. No client made more, and each costs time and memory.
MESSAGES_MAX: Final = ELEMENTS_MAX

_OFFSET: Final = struct.Struct(">q")


def as_batch(header: BatchHeader, stored: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> tuple[BatchHeader, Buffer]:
    """Return the one batch in `stored` and its header; an entry of format v0 or v1 is converted."""
    if header.magic >= MAGIC_V2:
        return header, stored
    entry = _entry(stored)
    messages, base_offset, shift = _opened(entry, size_max)
    payload = bytearray()  # Why no list of the messages: a small wrapper can hold very many
    count = 0
    base_timestamp = newest = NO_TIMESTAMP
    for message in messages:
        if not count:
            base_timestamp = newest = message.timestamp
        payload += message.as_record(message.timestamp - base_timestamp, message.offset + shift - base_offset)
        newest = max(newest, message.timestamp)
        count += 1
    kind = entry.compression
    is_stamped = entry.is_log_append_time
    converted = BatchHeader(
        base_offset, 0, NO_LEADER_EPOCH, MAGIC_V2, 0,
        int(kind) | (LOG_APPEND_TIME_BIT if is_stamped else 0), entry.offset - base_offset,
        base_timestamp, entry.timestamp if is_stamped else newest,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip
    batch = assemble_batch(converted, bytes(payload) if kind is CompressionType.NONE else compress(kind, payload))
    return read_header(batch), memoryview(batch)


def base_offset_of(header: BatchHeader, stored: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> int:
    """Return the offset of the first record of the one batch in `stored`; only a wrapper's is not in its header.

    The messages of a wrapper are not read.
    """
    if header.magic >= MAGIC_V2:
        return header.base_offset
    return _opened(_entry(stored), size_max)[1]


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


def _opened(entry: Message, size_max: int) -> tuple[Iterable[Message], int, int]:
    """Return (messages, offset of the first one, what to add to the offsets of the messages) of an entry."""
    if entry.compression is CompressionType.NONE:
        return (entry,), entry.offset, 0
    messages = unwrap(entry, size_max)
    first, last = _ends(messages)
    shift = 0 if entry.magic == MAGIC_V0 else _shift(entry.offset, last)
    if not 0 <= entry.offset - first - shift <= INT32_MAX:
        raise MalformedMessageError(f"the messages of the wrapper at offset {entry.offset} begin at {first + shift}")
    return iter_unwrapped(entry, messages), first + shift, shift


def _ends(messages: Buffer) -> tuple[int, int]:
    """Return the offsets of the first and the last whole message of a set; only their sizes are read."""
    view = memoryview(messages)
    first = last = count = 0
    for position, _ in iter_spans(view):
        (last,) = _OFFSET.unpack_from(view, position)
        count += 1
        if count > MESSAGES_MAX:
            raise DecompressedTooLargeError(f"a wrapper has more than {MESSAGES_MAX} messages")
        if count == 1:
            first = last
    if not count:
        raise MalformedMessageError("a compressed message without messages")
    return first, last


def _shift(wrapper_offset: int, last_offset: int) -> int:
    """Return what to add to offsets in a v1 wrapper: they are relative; zero means that they are not."""
    if wrapper_offset and wrapper_offset < last_offset:
        raise MalformedMessageError(f"a message of offset {last_offset} in a wrapper of offset {wrapper_offset}")
    return wrapper_offset - last_offset if wrapper_offset else 0
