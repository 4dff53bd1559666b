"""The time index: the greatest timestamp so far at some points of a segment, and its offset.

Format (`<base offset>.timeindex`): entries of 12 bytes, ascending by both: int64 timestamp, int32 offset relative to
the segment's base. After an entry (t, o), every record with a timestamp above t has an offset above o.

Source: Kafka's TimeIndex, 4.3 (KIP-33).
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.broker.storage.log.log_types import NO_TIMESTAMP
from barnabas.broker.storage.segments.index import CorruptIndexError, Entry, SparseIndex
from barnabas.broker.storage.segments.offset_index import RELATIVE_OFFSET_MAX
from barnabas.common.disk.files import FileSystem

_ENTRY: Final = struct.Struct(">qi")
_pack: Final = _ENTRY.pack
ENTRY_SIZE: Final = _ENTRY.size


class TimeIndex(SparseIndex):
    """(timestamp, offset) pairs; offsets are absolute here and relative in the file."""

    __slots__ = ()

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size_max: int, *, is_new: bool = False) -> None:
        super().__init__(fs, path, base_offset, size_max, _ENTRY, (NO_TIMESTAMP, base_offset), is_new=is_new)

    def _encode(self, key: int, value: int) -> bytes:
        return _pack(key, value - self.base_offset)

    def _decode(self, stored: Entry) -> Entry:
        return stored[0], stored[1] + self.base_offset

    @property
    def is_full(self) -> bool:
        """Whether no entry may be added, except by a roll or a close."""
        # Why: the last slot is reserved for the entry that a roll or a close adds.
        return self.entry_count >= self.entries_max - 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is above the last one's; `skip_full_check` uses the reserved slot."""
        if not skip_full_check:
            assert not self.is_full, f"{self.path} is full ({self.entry_count} entries)"
        last_timestamp, last_offset = self.last_entry
        if timestamp <= last_timestamp:
            return
        # Why not an error: a batch whose base offset is damaged may have it, and appends must go on.
        if last_offset <= offset <= self.base_offset + RELATIVE_OFFSET_MAX:
            self.push(timestamp, offset)

    def lookup(self, timestamp: int) -> Entry:
        """Return the last (timestamp, offset) at or before `timestamp`; (-1, base offset) if there is none."""
        return self.floor(timestamp) or (NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of offsets at or above `offset`."""
        self.keep_first(self.count_up_to(1, offset - 1), (NO_TIMESTAMP, self.base_offset))

    def reset(self) -> None:
        """Drop all entries."""
        self.keep_first(0, (NO_TIMESTAMP, self.base_offset))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the index cannot belong to its segment, FileNotFoundError if there is no file."""
        self.check_file_size()
        if not self.entry_count:
            return
        first = next(self.entries())
        if self.last_entry[0] < first[0] or self.last_entry[1] < self.base_offset:
            raise CorruptIndexError(f"{self.path}: its last entry {self.last_entry} is out of order")
