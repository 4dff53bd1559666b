"""A valid record batch, and batches that a producer should not send."""

from __future__ import annotations

import struct
import zlib

from barnabas.protocol.records.batch import (
    SimpleRecord,
    assemble_batch,
    build_batch,
    encode_record,
    read_header,
    update_crc,
)
from barnabas.protocol.records.compression import CompressionType, compress

# Offsets of the fields in a batch's header.
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_OFFSET_DELTA, _COUNT = 8, 16, 17, 21, 23, 57
FIRST_TIMESTAMP_MS = 1_700_000_000_000
YEAR_2100_MS = 4_102_444_800_000


def records(count: int = 2, value: bytes = b"value", timestamp_ms: int = FIRST_TIMESTAMP_MS) -> list[SimpleRecord]:
    """Return records with a key, a second apart."""
    return [SimpleRecord(timestamp_ms + 1000 * number, b"key", value) for number in range(count)]


def good(compression: CompressionType = CompressionType.NONE) -> bytes:
    """Return a batch of two records."""
    return build_batch(records(), compression=compression)


def sequenced(producer_id: int, base_sequence: int, producer_epoch: int = 0) -> bytes:
    """Return a batch of two records of an idempotent producer."""
    return build_batch(records(), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def legacy(magic: int) -> bytes:
    """Return one message in a format older than batches."""
    timestamp = struct.pack(">q", FIRST_TIMESTAMP_MS) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, 5) + b"value"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def bad() -> dict[str, bytes]:
    """Return invalid batches by their error. Null records are left out: Apache Kafka 4.3.1 never answers them."""
    return {
        "no records": b"",
        "garbage": b"\x00" * 100,
        "less than a header": good()[:30],
        "cut short": good()[:-3],
        "two batches": good() + good(),
        "a flipped byte": good()[:-1] + b"\xff",
        "a wrong crc": _with(good(), _CRC, ">I", 1, has_valid_crc=False),
        "a length beyond the end": _with(good(), _LENGTH, ">i", 10_000, has_valid_crc=False),
        "a tiny length": _with(good(), _LENGTH, ">i", 3, has_valid_crc=False),
        "magic 0": legacy(0),
        "magic 1": legacy(1),
        "magic 3": _with(good(), _MAGIC, ">b", 3, has_valid_crc=False),
        "magic -1": _with(good(), _MAGIC, ">b", -1, has_valid_crc=False),
        "too high a count": _with(good(), _COUNT, ">i", 3),
        "too low a count": _with(good(), _COUNT, ">i", 1),
        "a negative count": _with(good(), _COUNT, ">i", -1),
        "too high a last offset": _with(good(), _LAST_OFFSET_DELTA, ">i", 7),
        "too low a last offset": _with(good(), _LAST_OFFSET_DELTA, ">i", 0),
        "compression 7": _with(good(), _ATTRIBUTES, ">h", 7),
        "gzip that is none": _with(good(), _ATTRIBUTES, ">h", 1),
        "zstd that is none": _with(good(), _ATTRIBUTES, ">h", 4),
        "a control batch": _with(good(), _ATTRIBUTES, ">h", 0x20),
        "log append time": _with(good(), _ATTRIBUTES, ">h", 0x08),
        "transactional without an id": _with(sequenced(1, 0), _ATTRIBUTES, ">h", 0x10),
        "a timestamp far ahead": build_batch(records(timestamp_ms=YEAR_2100_MS)),
        "a base offset": build_batch(records(), base_offset=50),
        "a negative base sequence": sequenced(1, -1),
        **{f"{what} in {kind.name}": _of_records(raw, kind) for what, raw in _damaged().items() for kind in _CODECS},
        **{what: _of_records(raw, CompressionType.NONE) for what, raw in _odd_offsets().items()},
    }


_CODECS = (CompressionType.NONE, CompressionType.LZ4)


def _damaged() -> dict[str, bytes]:
    """Return the bytes of two invalid records by their error: length, attributes, two deltas, key, value, headers."""
    first = encode_record(records(1)[0], 0, 0)
    body = encode_record(records(1)[0], 0, 1)[1:-1]  # without the length and the number of headers
    return {
        "a key beyond its record": first + _record(body[:3] + b"\x7e" + body[4:] + b"\x00"),
        "a key of a negative length": first + _record(body[:3] + b"\x05" + body[4:] + b"\x00"),
        "a value beyond its record": first + _record(body[:7] + b"\x7e" + body[8:] + b"\x00"),
        "more headers than fit": first + _record(body + b"\x7e"),
        "a negative count of headers": first + _record(body + b"\x01"),
        "a header without a name": first + _record(body + b"\x02\x01\x01"),
        "a header whose name is no text": first + _record(body + b"\x02\x02\xff\x01"),
        "fields that end before the record": first + _record(body + b"\x00\x00\x00"),
        "bytes behind the last record": first + first + b"\x00\x00",
        "a record of no length": first + b"\x00",
        "a record of a negative length": first + b"\x01",
        "a varint without an end": first + b"\xff" * 12,
    }


def _odd_offsets() -> dict[str, bytes]:
    """Return two records with offset deltas other than 0 and 1. Apache Kafka 4.3.1 cannot rewrite compressed ones."""
    first = encode_record(records(1)[0], 0, 0)
    return {
        "a gap in the offsets": first + encode_record(records(1)[0], 0, 5),
        "offsets that go back": encode_record(records(1)[0], 0, 1) + first,
        "the same offset twice": first + first,
    }


def _record(body: bytes) -> bytes:
    return bytes([len(body) << 1]) + body


def _of_records(raw: bytes, kind: CompressionType) -> bytes:
    """Return a batch with a record count of two and these bytes."""
    header = read_header(build_batch(records(), compression=kind))
    return assemble_batch(header, raw if kind is CompressionType.NONE else compress(kind, raw))


def _with(batch: bytes, position: int, layout: str, value: int, *, has_valid_crc: bool = True) -> bytes:
    """Return the batch with one field changed. The CRC is corrected unless `has_valid_crc` is false."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if has_valid_crc:
        update_crc(changed, 0, len(changed))
    return bytes(changed)
