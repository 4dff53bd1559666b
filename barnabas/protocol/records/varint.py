"""Zigzag varints, as records use them: 7 bits a byte, low bits first; numbers of small magnitude are short.

Readers take a buffer and a cursor and return (value, next cursor). They raise MalformedMessageError for a varint that
is too long or ends with the buffer.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.compression import Buffer

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def read_varint(buffer: Buffer, cursor: int) -> tuple[int, int]:
    """Read a zigzag int32."""
    try:
        first = buffer[cursor]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), cursor + 1
        second = buffer[cursor + 1]
    except IndexError:
        raise MalformedMessageError("a varint is cut short") from None
    if second < 0x80:
        raw = second << 7 | first & 0x7F
        return (raw >> 1) ^ -(raw & 1), cursor + 2
    return _read_long(buffer, cursor, VARINT_BYTES_MAX, 32)


def read_varlong(buffer: Buffer, cursor: int) -> tuple[int, int]:
    """Read a zigzag int64."""
    try:
        first = buffer[cursor]
    except IndexError:
        raise MalformedMessageError("a varlong is cut short") from None
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), cursor + 1
    return _read_long(buffer, cursor, VARLONG_BYTES_MAX, 64)


def _read_long(buffer: Buffer, cursor: int, bytes_max: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    for index in range(cursor, cursor + bytes_max):
        try:
            byte = buffer[index]
        except IndexError:
            raise MalformedMessageError("a varint is cut short") from None
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                raise MalformedMessageError(f"a varint of more than {bits} bits")
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise MalformedMessageError(f"a varint of more than {bytes_max} bytes")


def write_varint(output: bytearray, value: int) -> None:
    """Append a zigzag int32."""
    _write(output, (value << 1) ^ (value >> 31))


def write_varlong(output: bytearray, value: int) -> None:
    """Append a zigzag int64."""
    _write(output, (value << 1) ^ (value >> 63))


def _write(output: bytearray, raw: int) -> None:
    while raw >= 0x80:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
