"""Record batches, format v2 (magic 2): reads and patches headers, checks CRCs, iterates over records, builds batches.

Format (offset in the batch, bytes, field; all big-endian)
     0  8  base_offset                 assigned by the leader, outside the CRC
     8  4  batch_length                bytes after this field
    12  4  partition_leader_epoch      set by the leader, outside the CRC
    16  1  magic                       2
    17  4  crc                         crc32c of everything from attributes on
    21  2  attributes                  bits 0-2 compression, 3 LogAppendTime, 4 transactional, 5 control,
                                       6 delete horizon
    23  4  last_offset_delta
    27  8  base_timestamp              the delete horizon if bit 6 is set
    35  8  max_timestamp
    43  8  producer_id
    51  2  producer_epoch
    53  4  base_sequence
    57  4  record_count
    61     records                     compressed as one block if bits 0-2 are not 0

A record: varint length, int8 attributes (0), varlong timestamp delta, varint offset delta, varint key length (-1
null) and key, varint value length (-1 null) and value, varint header count, and per header a key (length >= 0) and a
value (-1 null).

Rules
1. A header is read with one precompiled struct. Records are read only when a caller asks for them.
2. Malformed input of any kind raises MalformedMessageError, nothing else.
3. Formats older than v2 are recognised (`LegacyMagicError`) and refused: no client of Kafka 4 writes them. Old segments
   still have them: `read_stored_header` takes an entry of a message set (`message_set.py`) for a batch.
4. Only this module knows where a field lies. The `peek_` functions read single fields of bytes that may be no whole
   batch; the `set_` functions change fields in place.

Source: KIP-98, KIP-534; Kafka's DefaultRecordBatch and DefaultRecord, 4.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.compression import DECOMPRESSED_SIZE_MAX, Buffer, CompressionType, compress, decompress
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.varint import read_varint, read_varlong, write_varint, write_varlong

try:
    from barnabas.protocol.records._walk import set_offset_and_epoch as _set_compiled
except ImportError:  # the C extension was not built
    _set_compiled = None  # type: ignore[assignment]

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12
"""Bytes of base_offset and batch_length, which batch_length does not count."""
LENGTH_OFFSET: Final = 8
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
LAST_OFFSET_DELTA_OFFSET: Final = 23
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_ID_OFFSET: Final = 43
MAGIC_V2: Final = 2
_MAGIC_V1: Final = 1
LEGACY_BATCH_SIZE_MIN: Final = 14
"""The least batch_length of formats v0 and v1."""
LEGACY_HEADER_SIZE: Final = LOG_OVERHEAD + LEGACY_BATCH_SIZE_MIN
"""The bytes that every entry of formats v0 and v1 has; all that matters of its header lies there."""
_LEGACY_V1_SIZE_MIN: Final = 22
MAGIC_END: Final = MAGIC_OFFSET + 1
"""The bytes at a batch's head up to and including the magic."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
INT32_MAX: Final = 2**31 - 1

COMPRESSION_MASK: Final = 0x07
_LEGACY_ATTRIBUTES: Final = 0x0F  # no other bits of formats v0 and v1 mean anything
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_COMPRESSIONS: Final = {int(kind): kind for kind in CompressionType}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_PRODUCER: Final = struct.Struct(">qhi")
_OFFSET_LENGTH_EPOCH: Final = struct.Struct(">qii")  # the first fields of a header
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_TXN_VALUE: Final = struct.Struct(">hi")

# Why: every batch passes here several times, and looking a method up costs as much as calling it.
_unpack_header: Final = HEADER.unpack_from
_unpack_legacy_header: Final = struct.Struct(">qiIbBq").unpack_from  # v0 has no timestamp; another field is read for it
_unpack_int32: Final = _INT32.unpack_from
_pack_offset_length_epoch: Final = _OFFSET_LENGTH_EPOCH.pack_into
_crc32c: Final = crc32c


class TimestampType(IntEnum):
    """Which clock the timestamps of a batch come from: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """The kinds of control batches (Kafka's ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class LegacyMagicError(MalformedMessageError):
    """The batch is of format v0 or v1."""


class CorruptBatchError(MalformedMessageError):
    """The CRC of a batch does not match its bytes."""


class BatchHeader:
    """The 61 bytes at the head of a batch; see the table above. An immutable value.

    Why no NamedTuple: compiled code reads the attributes of its own classes as fields of a struct, and those of others
    by a lookup of some hundred instructions.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    def fields(self) -> HeaderFields:
        """Return the fields in the order in which they are stored."""
        return (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def replace(self, **changes: int) -> BatchHeader:
        """Return a copy with other values of some fields."""
        copied = _header_of(self.fields())
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied

    def placed_at(self, base_offset: int, max_timestamp: int) -> BatchHeader:
        """Return a copy with these two values, which a leader decides."""
        copied = _header_of(self.fields())
        copied.base_offset = base_offset
        copied.max_timestamp = max_timestamp
        return copied

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchHeader) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"BatchHeader{self.fields()!r}"

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record (inclusive)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression_type(self) -> CompressionType:
        """How the records are compressed; raises MalformedMessageError for an unknown id."""
        kind = _COMPRESSIONS.get(self.attributes & COMPRESSION_MASK)
        if kind is None:
            raise MalformedMessageError(f"unknown compression type id {self.attributes & COMPRESSION_MASK}")
        return kind

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker stamped the records."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) after which tombstones of a cleaned batch may be dropped; None if none is set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX


class Record(NamedTuple):
    """One record as stored; `sequence` is -1 unless its producer is idempotent."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    sequence: int = NO_SEQUENCE


class SimpleRecord(NamedTuple):
    """One record to write."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class EndTxnMarker(NamedTuple):
    """The one record in the control batch that ends a transaction."""

    control_type: ControlType
    coordinator_epoch: int


def peek_size(buffer: Buffer, position: int = 0) -> int:
    """Return the size that the batch at `position` claims, in bytes; the buffer has LOG_OVERHEAD bytes of it."""
    length: int = _unpack_int32(buffer, position + LENGTH_OFFSET)[0]
    return length + LOG_OVERHEAD


def peek_magic(buffer: Buffer, position: int = 0) -> int:
    """Return the format version of the batch at `position`; the buffer has MAGIC_END bytes of it."""
    return buffer[position + MAGIC_OFFSET]


def peek_attributes(buffer: Buffer, position: int = 0) -> int:
    """Return the low byte of the attributes (no other bit is in use); the buffer has 23 bytes of it."""
    return buffer[position + ATTRIBUTES_OFFSET + 1]


def peek_producer(buffer: Buffer, position: int = 0) -> tuple[int, int, int]:
    """Return (producer id, producer epoch, base sequence); the buffer has HEADER_SIZE bytes of the batch."""
    producer_id, producer_epoch, base_sequence = _PRODUCER.unpack_from(buffer, position + PRODUCER_ID_OFFSET)
    return producer_id, producer_epoch, base_sequence


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`; the whole batch need not be in the buffer.

    Raises MalformedMessageError; LegacyMagicError, a kind of it, for formats older than v2.
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        if available > MAGIC_OFFSET:
            _check_magic(peek_magic(buffer, position))
        raise MalformedMessageError(f"a record batch header has {HEADER_SIZE} bytes, {available} are left")
    header = _header_of(_unpack_header(buffer, position))
    if header.magic != MAGIC_V2:
        _check_magic(peek_magic(buffer, position))
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise MalformedMessageError(f"record batch length {header.batch_length} is less than its header's")
    return header


def read_stored_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position` of a log, which may be an entry of format v0 or v1.

    Such an entry is one batch with one offset: a compressed one has that of its last message, and says nothing of the
    others without being decompressed. Raises MalformedMessageError.
    """
    if len(buffer) - position < LEGACY_HEADER_SIZE or peek_magic(buffer, position) >= MAGIC_V2:
        return read_header(buffer, position)
    return _read_legacy_header(buffer, position)


def _read_legacy_header(buffer: Buffer, position: int) -> BatchHeader:
    offset, size, crc, magic, attributes, timestamp = _unpack_legacy_header(buffer, position)
    if size < (_LEGACY_V1_SIZE_MIN if magic == _MAGIC_V1 else LEGACY_BATCH_SIZE_MIN):
        raise MalformedMessageError(f"a message of {size} bytes is smaller than any of magic {magic}")
    if magic != _MAGIC_V1:
        timestamp = NO_TIMESTAMP
    return BatchHeader(
        offset, size, NO_LEADER_EPOCH, magic, crc, attributes & _LEGACY_ATTRIBUTES, 0, timestamp,
        timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1,
    )  # fmt: skip


def _header_of(fields: HeaderFields) -> BatchHeader:
    """Return the header that has these fields. Why one by one: a call with `*fields` is ten times as expensive."""
    return BatchHeader(
        fields[0],
        fields[1],
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
        fields[8],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
    )


def _check_magic(magic: int) -> None:
    """Raise the error for a format version, unless it is the one that there is."""
    if magic < MAGIC_V2:
        raise LegacyMagicError(f"record batch of magic {magic}: only magic 2 is supported")
    if magic > MAGIC_V2:
        raise MalformedMessageError(f"invalid magic {magic} in a record batch")


def iter_headers(
    buffer: Buffer, read: Callable[[Buffer, int], BatchHeader] = read_header
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; raises MalformedMessageError. `read` may be `read_stored_header`.

    A batch that the buffer's end cuts is left out, as in fetches.
    """
    position = 0
    while size := whole_size(buffer, position):
        header = read(buffer, position)
        yield position, header
        position += size


def whole_size(buffer: Buffer, position: int) -> int:
    """Return the size of the batch at `position`; 0 if the buffer's end cuts it. Raises MalformedMessageError."""
    left = len(buffer) - position
    if left < LOG_OVERHEAD:
        return 0
    size = peek_size(buffer, position)
    if size < LEGACY_BATCH_SIZE_MIN + LOG_OVERHEAD:
        raise MalformedMessageError(f"record batch length {size - LOG_OVERHEAD} is less than any batch's")
    return 0 if size > left else size


def compute_crc(buffer: Buffer, position: int, size_in_bytes: int) -> int:
    """Compute the CRC of the batch of `size_in_bytes` at `position`, without copying it."""
    crc: int = _crc32c(_view(buffer)[position + ATTRIBUTES_OFFSET : position + size_in_bytes])
    return crc


def _view(buffer: Buffer) -> memoryview:
    """Return a view of the bytes, to take slices without a copy."""
    return buffer if isinstance(buffer, memoryview) else memoryview(buffer)


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatchError unless the whole batch is there and its CRC is right."""
    size = header.batch_length + LOG_OVERHEAD
    if size > len(buffer) - position:
        raise CorruptBatchError(f"the batch is cut short: {len(buffer) - position} of {size} bytes")
    if header.magic < MAGIC_V2:
        computed = zlib.crc32(_view(buffer)[position + MAGIC_OFFSET : position + size])
    else:
        computed = compute_crc(buffer, position, size)
    if computed != header.crc:
        raise CorruptBatchError(f"record batch is corrupt (stored crc = {header.crc})")


def is_intact(batch: Buffer, header: BatchHeader) -> bool:
    """Return whether a batch's CRC is right."""
    try:
        verify_crc(batch, 0, header)
    except CorruptBatchError:
        return False
    return True


def records_payload(
    buffer: Buffer, position: int, header: BatchHeader, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Buffer:
    """Return the records of the batch at `position`, decompressed; uncompressed ones without a copy.

    Raises what `decompress` raises.
    """
    payload = _view(buffer)[position + HEADER_SIZE : position + header.batch_length + LOG_OVERHEAD]
    if not header.attributes & COMPRESSION_MASK:
        return payload
    return decompress(header.compression_type, payload, size_max)


def iter_records(batch: Buffer, position: int = 0) -> Iterator[Record]:
    """Yield the records of the one batch at `position`; raises MalformedMessageError at the first damaged record."""
    header = read_header(batch, position)
    if header.size_in_bytes > len(batch) - position:
        raise MalformedMessageError("the batch is cut short")
    payload = bytes(records_payload(batch, position, header))
    cursor = 0
    for index in range(header.record_count):
        try:
            record, cursor = _read_record(payload, cursor, header)
        except IndexError as error:
            raise MalformedMessageError(f"record {index} of a batch is damaged: {error}") from None
        yield record
    if cursor != len(payload):
        raise MalformedMessageError(f"{len(payload) - cursor} bytes follow the last record of a batch")


def iter_records_without_headers(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch from its decompressed payload, and skip their headers unread: there may be millions.

    Raises MalformedMessageError at the first damaged record.
    """
    cursor = 0
    for _ in range(header.record_count):
        offset, timestamp, key, value, _, cursor = _read_fields(payload, cursor, header)
        yield Record(offset, timestamp, key, value, ())
    if cursor != len(payload):
        raise MalformedMessageError(f"{len(payload) - cursor} bytes follow the last record of a batch")


def _read_fields(
    payload: bytes, cursor: int, header: BatchHeader
) -> tuple[int, int, bytes | None, bytes | None, int, int]:
    """Return a record's offset, timestamp, key and value, where its headers begin, and where it ends."""
    length, cursor = read_varint(payload, cursor)
    end = cursor + length
    if length < 1 or end > len(payload):
        raise MalformedMessageError(f"a record of {length} bytes does not fit its batch")
    timestamp_delta, cursor = read_varlong(payload, cursor + 1)
    offset_delta, cursor = read_varint(payload, cursor)
    key, cursor = _read_bytes(payload, cursor, end)
    value, cursor = _read_bytes(payload, cursor, end)
    if header.attributes & LOG_APPEND_TIME_BIT:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return header.base_offset + offset_delta, timestamp, key, value, cursor, end


def _read_record(payload: bytes, cursor: int, header: BatchHeader) -> tuple[Record, int]:
    offset, timestamp, key, value, cursor, end = _read_fields(payload, cursor, header)
    header_count, cursor = read_varint(payload, cursor)
    if header_count < 0 or header_count > end - cursor:
        raise MalformedMessageError(f"a record cannot have {header_count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, cursor = _read_bytes(payload, cursor, end)
        if name is None:
            raise MalformedMessageError("a record header without a key")
        content, cursor = _read_bytes(payload, cursor, end)
        # Why "replace": nothing checks that a header's key is text, and Java's clients replace invalid bytes, too.
        headers.append((name.decode("utf-8", "replace"), content))
    if cursor != end:
        raise MalformedMessageError(f"a record is {end - cursor} bytes longer than its fields")
    sequence = NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + offset - header.base_offset) & INT32_MAX
    return Record(offset, timestamp, key, value, tuple(headers), sequence), end


def _read_bytes(payload: bytes, cursor: int, end: int) -> tuple[bytes | None, int]:
    length, cursor = read_varint(payload, cursor)
    if length < 0:
        if length != -1:
            raise MalformedMessageError(f"a length of {length} in a record")
        return None, cursor
    if length > end - cursor:
        raise MalformedMessageError(f"a field of {length} bytes does not fit its record")
    return payload[cursor : cursor + length], cursor + length


def encode_record(record: SimpleRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    """Return the bytes of one record, its length in front."""
    body = bytearray(1)
    write_varlong(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, content in record.headers:
        _write_bytes(body, name.encode("utf-8"))
        _write_bytes(body, content)
    prefix = bytearray()
    write_varint(prefix, len(body))
    return bytes(prefix + body)


def renumbered(payload: bytes, count: int) -> bytearray:
    """Return the `count` records of a payload that was walked, with offset deltas of 0, 1, 2 …"""
    output = bytearray()
    delta = bytearray()
    cursor = 0
    for index in range(count):
        length, start = read_varint(payload, cursor)
        cursor = start + length
        _, delta_start = read_varlong(payload, start + 1)
        _, delta_end = read_varint(payload, delta_start)
        delta.clear()
        write_varint(delta, index)
        write_varint(output, length - (delta_end - delta_start) + len(delta))
        output.append(0)  # attributes, which no record has
        output += payload[start + 1 : delta_start]
        output += delta
        output += payload[delta_end:cursor]
    return output


def _write_bytes(body: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(body, -1)
    else:
        write_varint(body, len(value))
        body += value


def build_batch(
    records: Iterable[SimpleRecord],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    level: int | None = None,
) -> bytes:
    """Build one batch of at least one record; offsets count up from `base_offset`.

    With LOG_APPEND_TIME all records have the timestamp `log_append_time_ms` instead of their own.
    """
    listed = list(records)
    assert listed, "a batch has at least one record"
    base_timestamp = listed[0].timestamp_ms
    max_timestamp = max(record.timestamp_ms for record in listed)
    payload: Buffer = b"".join(
        encode_record(record, record.timestamp_ms - base_timestamp, index) for index, record in enumerate(listed)
    )
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    if compression is not CompressionType.NONE:
        payload = compress(compression, payload, level)
    header = BatchHeader(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        len(listed) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    )
    return assemble_batch(header, payload)


def assemble_batch(header: BatchHeader, payload: Buffer) -> bytes:
    """Join a header and records that are compressed as it says; batch_length and crc are computed again."""
    batch = bytearray(HEADER_SIZE) + payload
    HEADER.pack_into(batch, 0, *header.replace(batch_length=len(batch) - LOG_OVERHEAD, crc=0).fields())
    update_crc(batch, 0, len(batch))
    return bytes(batch)


def update_crc(buffer: bytearray | memoryview, position: int, size_in_bytes: int) -> None:
    """Compute the CRC again and write it in place, after a field under it was changed."""
    _UINT32.pack_into(buffer, position + CRC_OFFSET, compute_crc(buffer, position, size_in_bytes))


def write_offset_and_epoch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch of `batch`, one whole batch; both are outside the CRC."""
    _pack_offset_length_epoch(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)


#: In C, as every batch of a leader gets them; `write_offset_and_epoch` is the fallback.
set_offset_and_epoch: Final[Callable[[bytearray | memoryview, int, int], None]] = (
    write_offset_and_epoch if _set_compiled is None else _set_compiled
)


def set_attributes(batch: bytearray | memoryview, attributes: int) -> None:
    """Write the attributes of `batch`, one whole batch, and its CRC."""
    _INT16.pack_into(batch, ATTRIBUTES_OFFSET, attributes)
    update_crc(batch, 0, len(batch))


def set_max_timestamp(batch: bytearray | memoryview, max_timestamp: int) -> None:
    """Write the greatest timestamp of `batch`, one whole batch, and its CRC."""
    _INT64.pack_into(batch, MAX_TIMESTAMP_OFFSET, max_timestamp)
    update_crc(batch, 0, len(batch))


def set_attributes_and_max_timestamp(batch: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Write both fields of `batch`, one whole batch, and its CRC once."""
    _INT16.pack_into(batch, ATTRIBUTES_OFFSET, attributes)
    set_max_timestamp(batch, max_timestamp)


def corrupt_crc(batch: bytearray) -> None:
    """Make the CRC of the batch at the beginning of `batch` wrong (fault injection)."""
    batch[CRC_OFFSET] ^= 0xFF


def end_txn_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the control batch that ends a transaction."""
    record = SimpleRecord(timestamp_ms, control_key(control_type), _END_TXN_VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record: version 0 and the type."""
    return _CONTROL_KEY.pack(0, control_type)


def parse_control_type(key: bytes | None) -> ControlType | None:
    """Read the type from a control record's key; None for an unknown one, which readers skip."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise MalformedMessageError("a control record without a full key")
    version, code = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise MalformedMessageError(f"a control record key of version {version}")
    return ControlType(code) if code in ControlType._value2member_map_ else None


def parse_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """Read the record that ends a transaction; None if it is another kind of control record."""
    control_type = parse_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise MalformedMessageError("an end transaction marker without a full value")
    _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(control_type, coordinator_epoch)
