"""The offset index: the positions of some batches of a segment.

Format (`<base offset>.index`): entries of 8 bytes, ascending: int32 offset relative to the segment's base, int32
position in the `.log` file. There is one entry for each `index.interval.bytes` of log. Its offset is the last offset of
the batch at that position. So a lookup (the greatest entry not above the target) gives a position from which a forward
scan finds the target.

Source: Kafka's OffsetIndex, 4.3.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.broker.storage.segments.index import CorruptIndexError, Entry, SparseIndex
from barnabas.common.disk.files import FileSystem

_ENTRY: Final = struct.Struct(">ii")
_pack: Final = _ENTRY.pack
ENTRY_SIZE: Final = _ENTRY.size
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetIndex(SparseIndex):
    """(offset, position) pairs; offsets are absolute here and relative in the file."""

    __slots__ = ()

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size_max: int, *, is_new: bool = False) -> None:
        super().__init__(fs, path, base_offset, size_max, _ENTRY, (base_offset, 0), is_new=is_new)

    def _encode(self, key: int, value: int) -> bytes:
        return _pack(key - self.base_offset, value)

    def _decode(self, stored: Entry) -> Entry:
        return stored[0] + self.base_offset, stored[1]

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        return self.last_entry[0]

    def append(self, offset: int, position: int) -> None:
        """Add an entry; the caller rolls before the index is full."""
        assert not self.is_full, f"{self.path} is full ({self.entry_count} entries)"
        assert self.entry_count == 0 or offset > self.last_offset, (
            f"{offset} appended to {self.path} is not above {self.last_offset}"
        )
        assert offset - self.base_offset <= RELATIVE_OFFSET_MAX
        self.push(offset, position)

    def lookup(self, offset: int) -> Entry:
        """Return the last (offset, position) at or before `offset`; the segment's beginning if there is none."""
        return self.floor(offset) or (self.base_offset, 0)

    def upper_bound(self, position: int, size: int) -> Entry | None:
        """Return the first entry whose position is at least `position + size`; None if there is none."""
        return self.first_above(position + size - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.keep_first(self.count_up_to(0, offset - 1), (self.base_offset, 0))

    def reset(self) -> None:
        """Drop all entries."""
        self.keep_first(0, (self.base_offset, 0))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the index cannot belong to its segment, FileNotFoundError if there is no file."""
        self.check_file_size()
        if self.entry_count and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: the last offset {self.last_offset} is below the base offset {self.base_offset}"
            )
