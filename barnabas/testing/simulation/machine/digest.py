"""The digest of a history: two runs with the same digest did the same things in the same order.

Every switch and every effect that leaves a process (bytes that arrive, a flush of a file) adds an entry. With a trace,
each entry is also written as a line, so that two runs that differ can be compared with `diff`.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import TextIO

_SWITCH = struct.Struct("<qI")
_FLUSH_BYTES = 1 << 16


class Digest:
    """SHA-256 over the entries of a run."""

    def __init__(self, trace: TextIO | None = None) -> None:
        self._hash = hashlib.sha256()
        self._pending = bytearray()
        self.trace = trace  # replaced whole; None: no lines

    def switch(self, now_ns: int, ident: int) -> None:
        """Note that a task runs from now on."""
        self._pending += _SWITCH.pack(now_ns, ident)
        if len(self._pending) >= _FLUSH_BYTES:
            self._flush()

    def note(self, now_ns: int, text: str, data: bytes | bytearray | memoryview = b"") -> None:
        """Note an effect, with the bytes that belong to it."""
        line = f"{now_ns} {text} {len(data)} {zlib.crc32(data):08x}"
        self._pending += line.encode()
        if self.trace is not None:
            self.trace.write(line + "\n")

    def hex(self) -> str:
        """Return the digest of everything so far."""
        self._flush()
        return self._hash.copy().hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._pending)
        self._pending.clear()
