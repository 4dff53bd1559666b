"""Message sets: the formats v0 and v1 (magic 0 and 1) in which records travelled before Kafka 0.11.

Format (bytes, field; all big-endian). A set is a row of entries:
     8  offset
     4  size                the bytes that follow
     4  crc                 crc32 of everything from the magic on
     1  magic               0 or 1
     1  attributes          bits 0-2 compression (none, gzip, snappy, lz4), bit 3 LogAppendTime (v1)
     8  timestamp           v1 only; -1 for none
     4  key length (-1 null) and key
     4  value length (-1 null) and value

A compressed message is a wrapper: its value is a set. Offsets in it are absolute in v0. In v1 they are relative, and
the wrapper has the absolute offset of its last message. lz4 in v0 has another checksum in its header (`lz4_header`).

Rules
1. Malformed input of any kind raises MalformedMessageError; a wrong CRC raises CorruptBatchError, a kind of it.
2. An entry that the end of the set cuts is left out, as in fetches.
3. A wrapper holds no wrapper: decompressing is one level deep, and bounded by the caller.

Source: Kafka's LegacyRecord and AbstractLegacyRecordBatch, 3.9.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    LEGACY_BATCH_SIZE_MIN,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    CorruptBatchError,
    SimpleRecord,
    encode_record,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, compress, decompress
from barnabas.protocol.records.lz4_header import with_checksum_of_v0, with_right_checksum

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1

_ENTRY: Final = struct.Struct(">qiI")  # offset, size, crc
_MAGIC_AND_ATTRIBUTES: Final = struct.Struct(">BB")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_CRC_BYTES: Final = 4
_NULL: Final = _INT32.pack(-1)


class Message(NamedTuple):
    """One entry of a set; key and value are views of it. `timestamp` is -1 in v0."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    size_bytes: int  # of the whole entry

    @property
    def compression(self) -> CompressionType:
        """How the set in the value is compressed; NONE for a plain message. Raises MalformedMessageError."""
        kind = self.attributes & COMPRESSION_MASK
        if kind > CompressionType.LZ4:
            raise MalformedMessageError(f"compression type id {kind} in a message of magic {self.magic}")
        return CompressionType(kind)

    @property
    def is_log_append_time(self) -> bool:
        """Whether a broker's clock is said to have stamped the message."""
        return self.magic >= MAGIC_V1 and bool(self.attributes & LOG_APPEND_TIME_BIT)

    def as_record(self, timestamp_delta: int, offset_delta: int) -> bytes:
        """Return the message encoded as a record of a batch (v2)."""
        key = None if self.key is None else bytes(self.key)
        value = None if self.value is None else bytes(self.value)
        return encode_record(SimpleRecord(self.timestamp, key, value), timestamp_delta, offset_delta)


def iter_messages(buffer: Buffer) -> Iterator[Message]:
    """Yield the entries of a set, wrappers as they are; raises MalformedMessageError at the first damaged one."""
    view = memoryview(buffer)
    for position, end in iter_spans(view):
        yield _read(view, position, end)


def iter_spans(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each whole entry of a set begins and ends; only their sizes are read, and checked."""
    position, end = 0, len(view)
    while end - position >= LOG_OVERHEAD:
        (size,) = _INT32.unpack_from(view, position + 8)
        if size < LEGACY_BATCH_SIZE_MIN:
            raise MalformedMessageError(f"a message of {size} bytes is smaller than any")
        if size > end - position - LOG_OVERHEAD:
            return
        yield position, position + LOG_OVERHEAD + size
        position += LOG_OVERHEAD + size


def _read(view: memoryview, position: int, end: int) -> Message:
    offset, _, crc = _ENTRY.unpack_from(view, position)
    cursor = position + LOG_OVERHEAD + _CRC_BYTES
    if zlib.crc32(view[cursor:end]) != crc:
        raise CorruptBatchError(f"message is corrupt (stored crc = {crc})")
    magic, attributes = _MAGIC_AND_ATTRIBUTES.unpack_from(view, cursor)
    cursor += _MAGIC_AND_ATTRIBUTES.size
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        if end - cursor < _INT64.size:
            raise MalformedMessageError("a message of magic 1 without its fields")
        (timestamp,) = _INT64.unpack_from(view, cursor)
        cursor += _INT64.size
    elif magic != MAGIC_V0:
        raise MalformedMessageError(f"invalid magic {magic} in a message set")
    key, cursor = _read_bytes(view, cursor, end)
    value, cursor = _read_bytes(view, cursor, end)
    if cursor != end:
        raise MalformedMessageError(f"a message is {end - cursor} bytes longer than its fields")
    return Message(offset, magic, attributes, timestamp, key, value, end - position)


def _read_bytes(view: memoryview, cursor: int, end: int) -> tuple[memoryview | None, int]:
    if end - cursor < _INT32.size:
        raise MalformedMessageError("a message is cut short")
    (length,) = _INT32.unpack_from(view, cursor)
    cursor += _INT32.size
    if length == -1:
        return None, cursor
    if not 0 <= length <= end - cursor:
        raise MalformedMessageError(f"a field of {length} bytes does not fit its message")
    return view[cursor : cursor + length], cursor + length


def unwrap(wrapper: Message, size_max: int) -> Buffer:
    """Return the set in a compressed message.

    Raises MalformedMessageError; DecompressedTooLargeError, a kind of it, for more than `size_max` bytes.
    """
    if wrapper.value is None:
        raise MalformedMessageError("a compressed message without a value")
    data: Buffer = wrapper.value
    if wrapper.compression is CompressionType.LZ4 and wrapper.magic == MAGIC_V0:
        data = with_right_checksum(data)
    return decompress(wrapper.compression, data, size_max)


def iter_unwrapped(wrapper: Message, messages: Buffer) -> Iterator[Message]:
    """Yield the messages of the set that `unwrap` returned, their offsets as they are there; at least one.

    Raises MalformedMessageError.
    """
    is_empty = True
    for message in iter_messages(messages):
        if message.magic != wrapper.magic:
            raise MalformedMessageError(f"a message of magic {message.magic} in one of magic {wrapper.magic}")
        if message.attributes & COMPRESSION_MASK:
            raise MalformedMessageError("a compressed message in a compressed message")
        is_empty = False
        yield message
    if is_empty:
        raise MalformedMessageError("a compressed message without messages")


def encode_message(
    magic: int, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, attributes: int = 0
) -> bytes:
    """Return one entry of a set; v0 has no timestamp."""
    body = b"".join(
        (
            _MAGIC_AND_ATTRIBUTES.pack(magic, attributes),
            _INT64.pack(timestamp) if magic >= MAGIC_V1 else b"",
            _NULL if key is None else _INT32.pack(len(key)),
            b"" if key is None else key,
            _NULL if value is None else _INT32.pack(len(value)),
            b"" if value is None else value,
        )
    )
    return _ENTRY.pack(offset, _CRC_BYTES + len(body), zlib.crc32(body)) + body


def encode_wrapper(
    kind: CompressionType, magic: int, offset: int, timestamp: int, messages: Buffer, attributes: int = 0
) -> bytes:
    """Return the compressed message that holds a set; `offset` is that of its last message."""
    data: Buffer = compress(kind, messages)
    if kind is CompressionType.LZ4 and magic == MAGIC_V0:
        data = with_checksum_of_v0(data)
    return encode_message(magic, offset, timestamp, None, data, attributes | kind)
