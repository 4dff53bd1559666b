"""Kafka's UUIDs: 16 raw bytes on the wire, 22 characters of url-safe base64 in text.

Source: Kafka's `Uuid` class. The text has no padding. `AAAAAAAAAAAAAAAAAAAAAA` is the zero id and
`AAAAAAAAAAAAAAAAAAAAAQ` the id of the metadata topic, so `random_uuid` returns neither. It also returns none whose text
begins with a dash, which command lines would take for an option.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable

UUID_SIZE = 16
UUID_TEXT_LENGTH = 22

_TEXT = re.compile(rf"[A-Za-z0-9_-]{{{UUID_TEXT_LENGTH}}}(?:==)?")

ZERO_UUID = bytes(UUID_SIZE)
METADATA_TOPIC_ID = bytes(UUID_SIZE - 1) + b"\x01"


def uuid4(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """Return a new UUID of version 4 (RFC 9562)."""
    # Why not Python's uuid module: it imports `platform`, which would delay the start of every process.
    drawn = bytearray(random_bytes(UUID_SIZE))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)


def uuid4_text() -> str:
    """Return a new UUID in the usual text form: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12."""
    digits = uuid4().hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def random_uuid(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """Return a new UUID (version 4) that is not reserved and does not begin with a dash as text."""
    while True:
        drawn = uuid4(random_bytes)
        if drawn not in (ZERO_UUID, METADATA_TOPIC_ID) and not uuid_to_string(drawn).startswith("-"):
            return drawn


def uuid_to_string(value: bytes) -> str:
    """Return Kafka's text form of 16 raw bytes."""
    assert len(value) == UUID_SIZE
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> bytes:
    """Parse Kafka's text form; raises ValueError for any other text."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not a uuid: {text[: UUID_TEXT_LENGTH + 2]!r}")
    return base64.urlsafe_b64decode(text.rstrip("=") + "==")
