"""Functions that the generated codecs call: varints, tagged sections, and the errors of a field.

Rules
1. Reading trusts no input: a value that is short, oversized or out of range raises `MalformedMessageError`. A
   fixed-width read past the end may raise `IndexError` or `struct.error`; `plans` turns both into the same error.
2. A position never goes back and never passes the end of the buffer.

Source: KIP-482 (compact lengths, tagged fields), Kafka's ByteUtils and Readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from barnabas.protocol.errors import EncodeError, MalformedMessageError, UnsupportedFieldError
from barnabas.protocol.limits import ELEMENTS_MAX, TAGS_MAX

TaggedFields: TypeAlias = tuple[tuple[int, bytes], ...]

# The value of a `records` field. Decoded, it is a memoryview of the frame. To encode, it is bytes, a memoryview, or a
# file region (an object with `size: int` in bytes, which the sender can send). The type is Any because the two
# directions differ, and each user handles only one of them.
Records: TypeAlias = Any

ZERO_UUID: Final = bytes(16)
MAX_STRING_BYTES: Final = 0x7FFF
MAX_UNSIGNED_VARINT_BYTES: Final = 5

# The encoding of each length below 128.
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


# Reading


def read_uvarint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned 32-bit varint at `position` and the position behind it."""
    value = 0
    for shift in range(0, 7 * MAX_UNSIGNED_VARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise MalformedMessageError("unsigned varint above 32 bits")
            return value, position
    raise MalformedMessageError("unsigned varint of more than 5 bytes")


def read_string_length(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a compact string's length plus one, as it travels, and the position behind it."""
    length, position = read_uvarint(buffer, position)
    if length > MAX_STRING_BYTES + 1:
        raise MalformedMessageError(f"string of {length - 1} bytes")
    return length, position


def read_text(data: bytes | memoryview) -> str:
    """Return a string; bytes that are not UTF-8 become replacement characters, as in Java.

    Clients name themselves in other character sets, too. Raises UnicodeDecodeError if the string could not be encoded
    again: three bytes may come of one.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        replaced = str(data, "utf-8", "replace")
        if len(replaced.encode()) > MAX_STRING_BYTES:
            raise
        return replaced


def read_tag_spans(
    buffer: bytes | memoryview, position: int, count: int, end: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return (tag, start, stop) of each tagged field, and the position behind the section.

    `count` is the first byte of the section, already read. Tags must ascend (KIP-482).
    """
    if count > 127:
        count, position = read_uvarint(buffer, position - 1)
    if count > TAGS_MAX:
        raise MalformedMessageError(f"{count} tagged fields in one structure")
    if count > end - position:
        raise MalformedMessageError(f"{count} tagged fields in {end - position} bytes")
    spans = []
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        if tag <= last:
            raise MalformedMessageError(f"tag {tag} after tag {last}")
        last = tag
        size, position = read_uvarint(buffer, position)
        start, position = position, position + size
        if position > end:
            raise MalformedMessageError(f"tagged field {tag} of {size} bytes passes the end")
        spans.append((tag, start, position))
    return spans, position


def read_unknown_tags(buffer: bytes | memoryview, position: int, count: int, end: int) -> tuple[TaggedFields, int]:
    """Return the raw tagged fields of a structure that knows none, and the position behind them."""
    spans, position = read_tag_spans(buffer, position, count, end)
    return tuple((tag, bytes(buffer[start:stop])) for tag, start, stop in spans), position


def null_error(field: str) -> MalformedMessageError:
    """Return the error of a null where the version allows none."""
    return MalformedMessageError(f"{field} must not be null")


def end_error(field: str) -> MalformedMessageError:
    """Return the error of a length or count that passes the end of the buffer."""
    return MalformedMessageError(f"{field} passes the end of the message")


def count_error() -> MalformedMessageError:
    """Return the error of arrays that have more elements together than a message may have."""
    return MalformedMessageError(f"more than {ELEMENTS_MAX} elements in one message")


def size_error(field: str) -> MalformedMessageError:
    """Return the error of a tagged field whose content does not fill its size."""
    return MalformedMessageError(f"tagged field {field} does not fill its size")


# Writing


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned 32-bit varint."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(length_plus_one: int) -> bytes:
    """Encode a compact string's length, given plus one."""
    if length_plus_one > MAX_STRING_BYTES + 1:
        raise EncodeError(f"string of {length_plus_one - 1} bytes is too long")
    return encode_uvarint(length_plus_one)


def tag_section(known: Sequence[tuple[int, bytes]], unknown: TaggedFields) -> bytes:
    """Encode a tagged section; the known fields ascend, and the unknown ones are merged into them."""
    fields = sorted([*known, *unknown], key=lambda field: field[0])
    parts = [encode_uvarint(len(fields))]
    last = -1
    for tag, value in fields:
        if tag <= last:
            raise EncodeError(f"tag {tag} twice in one structure")
        last = tag
        parts += (encode_uvarint(tag), encode_uvarint(len(value)), value)
    return b"".join(parts)


def records_size(records: Records) -> int:
    """Return how many bytes a value of a `records` field sends."""
    if isinstance(records, (bytes, bytearray)):
        return len(records)
    if isinstance(records, memoryview):
        return records.nbytes
    size: int = records.size
    return size


def uuid_error(field: str, value: Any) -> EncodeError:
    """Return the error of a uuid that is not 16 bytes."""
    return EncodeError(f"{field} must be 16 bytes, not {value!r}")


def version_error(field: str, struct: str, version: int) -> EncodeError:
    """Return the error of a set field that the version cannot carry and that must not be dropped."""
    return UnsupportedFieldError(f"{struct}.{field} is set, but version {version} has no such field")
