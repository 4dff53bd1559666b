"""The little of ASN.1's DER encoding that key stores and distinguished names need.

Threads: any; pure. Source: ITU-T X.690.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
OCTET_STRING: Final = 0x04

_LENGTH_BYTES_MAX: Final = 4


class Element(NamedTuple):
    """One element: its tag, its contents, and its whole encoding."""

    tag: int
    contents: bytes
    encoding: bytes

    def expect(self, tag: int) -> bytes:
        """Return the contents of an element that must have this tag; raise ValueError."""
        if self.tag != tag:
            raise ValueError(f"DER tag {self.tag:#x} instead of {tag:#x}")
        return self.contents


def elements(data: bytes) -> list[Element]:
    """Return the elements that follow each other in `data`; raise ValueError if it is cut or malformed."""
    found = []
    at = 0
    while at < len(data):
        start = at
        if len(data) < at + 2:
            raise ValueError("cut DER element")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= _LENGTH_BYTES_MAX or len(data) < at + count:
                raise ValueError("invalid DER length")
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if len(data) < at + length:
            raise ValueError("cut DER element")
        found.append(Element(tag, data[at : at + length], data[start : at + length]))
        at += length
    return found


def object_identifier(contents: bytes) -> str:
    """Return an object identifier in dotted notation."""
    numbers: list[int] = []
    value = 0
    for byte in contents:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            if not numbers:
                first = min(value // 40, 2)
                numbers = [first, value - 40 * first]
            else:
                numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))
