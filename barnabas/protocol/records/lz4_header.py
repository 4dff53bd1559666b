"""The checksum in the header of an lz4 frame, and the wrong one that format v0 has (KAFKA-3160).

Kafka's clients before 0.10 computed the checksum over the whole header instead of the part behind its magic number. To
stay readable, messages of format v0 keep that; v1 has the right one. Readers of v0 never check it.

Format: magic number 04 22 4d 18, flags, block size, 8 bytes of content size if flag 3 is set, and the checksum: the
second byte of the xxHash32 of what is between the magic number and itself.

Source: the lz4 frame format 1.6; Kafka's KafkaLZ4BlockOutputStream (0.10).
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import MalformedMessageError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_AT: Final = 4
_CONTENT_SIZE_FLAG: Final = 0x08
_SHORT_HEADER: Final = 6  # bytes before the checksum
_CONTENT_SIZE_BYTES: Final = 8

_WORD: Final = 0xFFFFFFFF
_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_STRIPE_BYTES: Final = 16


def with_right_checksum(frame: bytes | bytearray | memoryview) -> bytearray:
    """Return a copy of a frame with the checksum that lz4 demands; raises MalformedMessageError if it is none."""
    return _with_checksum(frame, len(_MAGIC))


def with_checksum_of_v0(frame: bytes | bytearray | memoryview) -> bytearray:
    """Return a copy of a frame with the checksum of format v0; raises MalformedMessageError if it is none."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: bytes | bytearray | memoryview, start: int) -> bytearray:
    if len(frame) <= _SHORT_HEADER or bytes(frame[: len(_MAGIC)]) != _MAGIC:
        raise MalformedMessageError("lz4: no frame header")
    end = _SHORT_HEADER + (_CONTENT_SIZE_BYTES if frame[_FLAGS_AT] & _CONTENT_SIZE_FLAG else 0)
    if len(frame) <= end:
        raise MalformedMessageError("lz4: the frame header is cut short")
    changed = bytearray(frame)
    changed[end] = xxhash32_short(bytes(frame[start:end])) >> 8 & 0xFF
    return changed


def xxhash32_short(data: bytes) -> int:
    """Return the xxHash32, with seed 0, of fewer than 16 bytes."""
    assert len(data) < _STRIPE_BYTES, "longer data is hashed in stripes"
    mixed = _PRIME_5 + len(data) & _WORD
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        mixed = _rotated(mixed + word * _PRIME_3 & _WORD, 17) * _PRIME_4 & _WORD
    for byte in data[whole:]:
        mixed = _rotated(mixed + byte * _PRIME_5 & _WORD, 11) * _PRIME_1 & _WORD
    mixed = (mixed ^ mixed >> 15) * _PRIME_2 & _WORD
    mixed = (mixed ^ mixed >> 13) * _PRIME_3 & _WORD
    return mixed ^ mixed >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
