"""Looking at the records inside a batch without making objects of them.

Two walks over a batch's records (uncompressed, as bytes-like):
- `count_records` follows the length in front of each record, nothing else: it proves that the batch holds exactly as
  many whole records as its header says. Some 0.1 µs a record.
- `walk_records` reads every varint of every record: lengths, offset deltas, headers; it proves that any consumer can
  read the batch, and returns what validation asks about (timestamps, missing keys). Some 1 µs a record.

Both raise MalformedMessageError for damage. A batch that passed `count_records` alone may still hold a record whose
inside is damaged.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, records_payload
from barnabas.protocol.records.compression import Buffer
from barnabas.protocol.records.varint import read_varint, read_varlong

KEYLESS_REPORTED_MAX = 16
_FIRST_AND_KEYLESS = b"\x00\x00\x01"  # timestamp delta 0, offset delta 0, a null key (zigzag -1)


class RecordsSummary(NamedTuple):
    """What a full walk saw; timestamps are deltas to the batch's base timestamp."""

    timestamp_delta_min: int
    timestamp_delta_max: int
    offsets_are_contiguous: bool
    keyless: list[int]
    """Indexes of the first records without a key."""


def count_records(payload: Buffer, count: int) -> None:
    """Raise MalformedMessageError unless `payload` is exactly `count` records, going by their lengths."""
    cursor = found = 0
    end = len(payload)
    while cursor < end:
        first = payload[cursor]
        if first < 0x80:
            length = first >> 1
            cursor += 1
        else:
            if cursor + 1 < end and (second := payload[cursor + 1]) < 0x80:
                length = (second << 7 | first & 0x7F) >> 1
                cursor += 2
            else:
                length, cursor = read_varint(payload, cursor)
                first = 0
        if first & 1 or length < 6:
            raise MalformedMessageError("a record whose length cannot be right")
        cursor += length
        found += 1
    if cursor != end or found != count:
        raise MalformedMessageError(
            f"a batch said to have {count} records has {found} in {end} bytes"
            if cursor == end
            else f"the records of a batch run {cursor - end} bytes past its end"
        )


def validate_records(batch: Buffer, header: BatchHeader, position: int = 0) -> RecordsSummary:
    """Walk the records of a whole batch, decompressing them within bounds; raises MalformedMessageError."""
    return walk_records(records_payload(batch, position, header), header.record_count)


def walk_records(payload: Buffer, count: int) -> RecordsSummary:
    """Read every field of `count` records that must fill `payload` exactly; raises MalformedMessageError."""
    data = payload if isinstance(payload, bytes) else bytes(payload)
    cursor = 0
    timestamp_min = timestamp_max = 0
    contiguous = True
    keyless: list[int] = []
    try:
        for index in range(count):
            cursor, timestamp_delta, offset_delta, has_key = _walk_record(data, cursor)
            if index == 0:
                timestamp_min = timestamp_max = timestamp_delta
            elif timestamp_delta > timestamp_max:
                timestamp_max = timestamp_delta
            elif timestamp_delta < timestamp_min:
                timestamp_min = timestamp_delta
            if offset_delta != index:
                contiguous = False
            if not has_key and len(keyless) < KEYLESS_REPORTED_MAX:
                keyless.append(index)
    except IndexError:
        raise MalformedMessageError("the records of a batch run past its end") from None
    if cursor != len(data):
        raise MalformedMessageError(f"{len(data) - cursor} bytes follow the last of {count} records")
    return RecordsSummary(timestamp_min, timestamp_max, contiguous, keyless)


def _walk_record(data: bytes, cursor: int) -> tuple[int, int, int, bool]:
    """Return (end, timestamp delta, offset delta, has a key) of the record at `cursor`."""
    length, cursor = read_varint(data, cursor)
    end = cursor + length
    if length < 0 or end > len(data):
        raise MalformedMessageError(f"a record of {length} bytes does not fit its batch")
    # Why: the first record of every batch has deltas of zero, and most records have no key.
    if data[cursor + 1 : cursor + 4] == _FIRST_AND_KEYLESS:
        timestamp_delta, offset_delta, has_key = 0, 0, False
        cursor += 4
    else:
        timestamp_delta, cursor = read_varlong(data, cursor + 1)  # behind the attributes
        offset_delta, cursor = read_varint(data, cursor)
        has_key, cursor = _skip_bytes(data, cursor, end)
    _, cursor = _skip_bytes(data, cursor, end)
    if data[cursor]:
        cursor = _walk_headers(data, cursor, end)
    else:
        cursor += 1
    if cursor != end:
        raise MalformedMessageError(f"a record's fields end {end - cursor} bytes before the record")
    return end, timestamp_delta, offset_delta, has_key


def _skip_bytes(data: bytes, cursor: int, end: int) -> tuple[bool, int]:
    """Step over a key or value; returns whether it is there (not null), and the next cursor."""
    length, cursor = read_varint(data, cursor)
    if length > 0:
        cursor += length
        if cursor > end:
            raise MalformedMessageError(f"a field of {length} bytes does not fit its record")
    elif length < -1:
        raise MalformedMessageError(f"a length of {length} in a record")
    return length >= 0, cursor


def _walk_headers(data: bytes, cursor: int, end: int) -> int:
    count, cursor = read_varint(data, cursor)
    if count < 0 or count > end - cursor:
        raise MalformedMessageError(f"a record cannot have {count} headers")
    for _ in range(count):
        length, cursor = read_varint(data, cursor)
        if length < 0 or length > end - cursor:
            raise MalformedMessageError(f"a header key of {length} bytes")
        cursor += length
        length, cursor = read_varint(data, cursor)
        if length < -1 or length > end - cursor:
            raise MalformedMessageError(f"a header value of {length} bytes")
        if length > 0:
            cursor += length
    return cursor
