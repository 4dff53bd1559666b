"""Record batches that a producer should not send, and a good one."""

from __future__ import annotations

import struct
import zlib

from barnabas.protocol.records.batch import SimpleRecord, build_batch, reseal
from barnabas.protocol.records.compression import CompressionType

# Where the fields of a batch's header stand.
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_OFFSET_DELTA, _COUNT = 8, 16, 17, 21, 23, 57
FIRST_TIMESTAMP_MS = 1_700_000_000_000
YEAR_2100_MS = 4_102_444_800_000


def records(count: int = 2, value: bytes = b"value", timestamp_ms: int = FIRST_TIMESTAMP_MS) -> list[SimpleRecord]:
    """Records with a key, a second apart."""
    return [SimpleRecord(timestamp_ms + 1000 * number, b"key", value) for number in range(count)]


def good(compression: CompressionType = CompressionType.NONE) -> bytes:
    """Two records."""
    return build_batch(records(), compression=compression)


def sequenced(producer_id: int, base_sequence: int, producer_epoch: int = 0) -> bytes:
    """Two records of an idempotent producer."""
    return build_batch(records(), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def legacy(magic: int) -> bytes:
    """One message of the formats before batches."""
    timestamp = struct.pack(">q", FIRST_TIMESTAMP_MS) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, 5) + b"value"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def bad() -> dict[str, bytes]:
    """What is wrong with a batch -> the batch. (Null records are missing: Apache Kafka 4.3.1 never answers them.)"""
    return {
        "no records": b"",
        "garbage": b"\x00" * 100,
        "less than a header": good()[:30],
        "cut short": good()[:-3],
        "two batches": good() + good(),
        "a flipped byte": good()[:-1] + b"\xff",
        "a wrong crc": _with(good(), _CRC, ">I", 1, sealed=False),
        "a length beyond the end": _with(good(), _LENGTH, ">i", 10_000, sealed=False),
        "a tiny length": _with(good(), _LENGTH, ">i", 3, sealed=False),
        "magic 0": legacy(0),
        "magic 1": legacy(1),
        "magic 3": _with(good(), _MAGIC, ">b", 3, sealed=False),
        "magic -1": _with(good(), _MAGIC, ">b", -1, sealed=False),
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
    }


def _with(batch: bytes, position: int, layout: str, value: int, *, sealed: bool = True) -> bytes:
    """The batch with one field changed, and its CRC made right again unless `sealed` is false."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if sealed:
        reseal(changed, 0, len(changed))
    return bytes(changed)
