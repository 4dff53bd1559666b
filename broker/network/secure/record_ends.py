"""RecordEnds: where the records of TLS end in the bytes that have come from a client.

A session decrypts whole records only, and does not report how much it holds of one that is incomplete. The headers of
records are not encrypted (RFC 8446, 5.1), so they can be followed:
    offset 0   1 byte   type
    offset 1   2 bytes  version
    offset 3   uint16   bytes that follow

It checks nothing: the session refuses what is invalid. A client that sends false sizes makes only itself wait.

Threads: one at a time.
"""

from __future__ import annotations

from typing import Final

HEADER_BYTES: Final = 5


class RecordEnds:
    """See the module."""

    __slots__ = ("_header", "missing_bytes", "size_bytes")

    def __init__(self) -> None:
        self._header = b""  # of the last record, if it is incomplete itself
        self.missing_bytes = 0  # of the last record, as far as is known; 0: it is complete
        self.size_bytes = 0  # of the last record, with its header; 0: it is complete, or its size is not known

    def follow(self, raw: memoryview, count: int) -> list[int]:
        """Take the next `count` bytes of the stream, at the start of `raw`; return where records end in them."""
        ends: list[int] = []
        end = self.missing_bytes
        is_open = end > 0  # a record has begun
        if self._header:
            taken = min(count, HEADER_BYTES - len(self._header))
            header = self._header + bytes(raw[:taken])
            if len(header) < HEADER_BYTES:
                self._header = header
                self.missing_bytes = HEADER_BYTES - len(header)
                return ends
            self._header = b""
            size = header[3] << 8 | header[4]
            end = taken + size
            self.size_bytes = HEADER_BYTES + size
        if is_open and end <= count:
            ends.append(end)
        while end + HEADER_BYTES <= count:
            size = raw[end + 3] << 8 | raw[end + 4]
            end += HEADER_BYTES + size
            self.size_bytes = HEADER_BYTES + size
            if end <= count:
                ends.append(end)
        if end < count:
            self._header = bytes(raw[end:count])
            self.size_bytes = 0
            self.missing_bytes = HEADER_BYTES - len(self._header)
            return ends
        self.missing_bytes = end - count
        if end == count:
            self.size_bytes = 0
        return ends
