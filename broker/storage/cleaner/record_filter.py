"""Drops records from a batch; the bytes of the others are copied unchanged.

Offsets and timestamps of records are deltas to the batch's header, whose bases do not change. So records that stay are
copied, neighbours in one piece. Only a batch that gets a delete horizon (KIP-534) has its records written again: the
horizon replaces the base timestamp in the header, so every timestamp delta changes.

Written for mypyc, as `offset_map` is. Threads: none; pure.
Source: Kafka's MemoryRecords.filterTo, 4.3 (which rebuilds every batch that loses a record).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.varint import read_varint, read_varlong, write_varint, write_varlong

if TYPE_CHECKING:
    from mypy_extensions import i64

_NONE_YET: Final = -(2**63)


def retained_records(data: bytes, flags: bytearray) -> tuple[list[bytes], int]:
    """Return the bytes of the records whose flag is not 0, in pieces, and the greatest timestamp delta among them.

    `data` is the records of a batch, uncompressed; `flags` has one byte for each. Raises MalformedMessageError.
    """
    pieces: list[bytes] = []
    delta_max: i64 = _NONE_YET
    size: i64 = len(data)
    count: i64 = len(flags)
    index: i64 = 0
    cursor: i64 = 0
    run_start: i64 = -1
    delta: i64 = 0
    body: i64 = 0
    end: i64 = 0
    while index < count:
        body, end = _record_at(data, cursor, size)
        if flags[index]:
            if run_start < 0:
                run_start = cursor
            delta = _timestamp_delta(data, body + 1)
            delta_max = max(delta_max, delta)
        elif run_start >= 0:
            pieces.append(data[run_start:cursor])
            run_start = -1
        cursor = end
        index += 1
    if cursor != size:
        raise MalformedMessageError(f"{size - cursor} bytes follow the last of {count} records")
    if run_start >= 0:
        pieces.append(data[run_start:])
    return pieces, delta_max


def _record_at(data: bytes, cursor: i64, size: i64) -> tuple[i64, i64]:
    """Return where the record at `cursor` begins (after its length) and where it ends."""
    length: i64 = 0
    if cursor < size and data[cursor] < 0x80:
        length = data[cursor]
        length = -1 if length & 1 else length >> 1
        cursor += 1
    else:
        length, cursor = read_varint(data, cursor)
    if length < 0 or length > size - cursor:
        raise MalformedMessageError(f"a record of {length} bytes does not fit its batch")
    return cursor, cursor + length


def _timestamp_delta(data: bytes, cursor: i64) -> i64:
    if cursor < len(data) and data[cursor] < 0x80:
        raw: i64 = data[cursor]
        return (raw >> 1) ^ -(raw & 1)
    delta, _ = read_varlong(data, cursor)
    return delta


def rebased(pieces: list[bytes], shift: int) -> list[bytes]:
    """Return the records of `pieces`, each with its timestamp delta increased by `shift`."""
    records: list[bytes] = []
    for data in pieces:
        cursor = 0
        size = len(data)
        while cursor < size:
            length, start = read_varint(data, cursor)
            delta, rest = read_varlong(data, start + 1)
            cursor = start + length
            body = bytearray(data[start : start + 1])
            write_varlong(body, delta + shift)
            body += data[rest:cursor]
            prefix = bytearray()
            write_varint(prefix, len(body))
            records.append(bytes(prefix + body))
    return records
