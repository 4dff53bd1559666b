"""What the offset index and the time index share: a file of fixed-size entries in ascending order, a part of it in
memory.

Entries are appended to a small tail in memory, which goes to the file when it is full, on flush, on roll and on
close. The file holds whole entries and nothing else at those moments, byte for byte what Kafka leaves after trimming.

# Why not a memory map, as Kafka does: an index is a cache that recovery rebuilds for every segment not yet flushed,
# so nothing is lost with the tail; an append costs no system call (each would offer the interpreter lock to other
# threads) and no page fault; an index holds no descriptor (Python's mmap duplicates its own) and a bounded piece of
# memory, so thousands of partitions fit; and the same code runs on the failing disks of the tests.

Threads: appends, truncation and flush by the log under its lock; lookups by any thread without a lock. A lookup takes
one snapshot (`_state`) that says which entries are in the file and which in the tail.

Invariants
1. The file's first `flushed` entries are never rewritten except by truncation, which publishes the new state first.
2. Entries ascend; `last entry` is the tail's last or the file's last.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from barnabas.common.files import FileSystem

TAIL_ENTRIES_MAX: Final = 512
_BLOCK_ENTRIES: Final = 512

Entry = tuple[int, int]


class CorruptIndexError(Exception):
    """An index that cannot belong to its segment; it is rebuilt."""


class _State:
    """Which entries are where; replaced whole."""

    __slots__ = ("flushed", "tail")

    def __init__(self, flushed: int, tail: list[Entry]) -> None:
        self.flushed = flushed  # entries in the file
        self.tail = tail  # entries after those; only ever appended to


class SparseIndex:
    """Pairs of (key, value) ascending by key, `entry_struct` says how they lie in the file."""

    __slots__ = ("_entry", "_fs", "_state", "base_offset", "entries_max", "last_entry", "path")

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, size_max: int, entry: struct.Struct, first: Entry
    ) -> None:
        self.path = path  # replaced by renames, under the log's lock
        self.base_offset = base_offset  # fixed before start
        self.entries_max = size_max // entry.size  # replaced by resize, under the log's lock
        self._fs = fs
        self._entry = entry
        count = self._count_in_file()
        self._state = _State(count, [])  # replaced whole under the log's lock
        self.last_entry = self._read_entries(count - 1, 1)[0] if count else first  # under the log's lock

    def _count_in_file(self) -> int:
        try:
            return self._fs.size(self.path) // self._entry.size
        except FileNotFoundError:
            return 0

    @property
    def entry_count(self) -> int:
        state = self._state
        return state.flushed + len(state.tail)

    @property
    def size_in_bytes(self) -> int:
        return self.entry_count * self._entry.size

    @property
    def is_full(self) -> bool:
        state = self._state
        return state.flushed + len(state.tail) >= self.entries_max

    def push(self, key: int, value: int) -> None:
        """Append an entry; the caller has checked order and room."""
        state = self._state
        state.tail.append((key, value))
        self.last_entry = (key, value)
        if len(state.tail) >= TAIL_ENTRIES_MAX:
            self.write_tail()

    def write_tail(self) -> None:
        """Move the tail to the file (the page cache); makes the file if there is none."""
        state = self._state
        if not state.tail and self._fs.exists(self.path):
            return
        handle = self._fs.open(self.path, create=True)
        try:
            data = b"".join([self._entry.pack(*entry) for entry in self._encode(state.tail)])
            if data:
                handle.pwrite(data, state.flushed * self._entry.size)
        finally:
            handle.close()
        self._state = _State(state.flushed + len(state.tail), [])

    def flush(self) -> None:
        """Write the tail and make the file durable."""
        self.write_tail()
        handle = self._fs.open(self.path)
        try:
            handle.fsync()
        finally:
            handle.close()

    def _encode(self, entries: list[Entry]) -> list[Entry]:
        """Turn entries into what is stored."""
        raise NotImplementedError

    def _decode(self, stored: Entry) -> Entry:
        raise NotImplementedError

    def _read_entries(self, first: int, count: int) -> list[Entry]:
        """Read entries `first` … of the file."""
        size = self._entry.size
        handle = self._fs.open(self.path)
        try:
            data = handle.pread(count * size, first * size)
        finally:
            handle.close()
        if len(data) != count * size:
            raise CorruptIndexError(f"{self.path} is shorter than it should be")
        return [self._decode(stored) for stored in self._entry.iter_unpack(data)]

    def floor(self, key: int) -> Entry | None:
        """Return the last entry whose key is at most `key`."""
        state = self._state
        tail = state.tail
        if tail and tail[0][0] <= key:
            return tail[bisect_right(tail, key, key=_key_of) - 1]
        return self._floor_in_file(key, state.flushed) if state.flushed else None

    def _floor_in_file(self, key: int, count: int) -> Entry | None:
        """Find the block by probing first entries, then look inside it."""
        size = self._entry.size
        low, high = 0, (count - 1) // _BLOCK_ENTRIES
        try:
            handle = self._fs.open(self.path)
        except FileNotFoundError:
            return None  # being deleted: the caller scans from the segment's beginning
        try:
            while low < high:
                middle = (low + high + 1) // 2
                stored = handle.pread(size, middle * _BLOCK_ENTRIES * size)
                if len(stored) < size:
                    return None  # truncated by another thread meanwhile; scanning is always right
                if self._decode(self._unpack(stored))[0] <= key:
                    low = middle
                else:
                    high = middle - 1
            first = low * _BLOCK_ENTRIES
            data = handle.pread(min(_BLOCK_ENTRIES, count - first) * size, first * size)
        finally:
            handle.close()
        return self._floor_in_block(data, key)

    def _floor_in_block(self, data: bytes, key: int) -> Entry | None:
        size = self._entry.size
        low, high = -1, len(data) // size - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._decode(self._unpack(data, middle * size))[0] <= key:
                low = middle
            else:
                high = middle - 1
        return self._decode(self._unpack(data, low * size)) if low >= 0 else None

    def _unpack(self, stored: bytes, position: int = 0) -> Entry:
        key, value = self._entry.unpack_from(stored, position)
        return key, value

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, from the file and then the tail."""
        state = self._state
        if state.flushed:
            yield from self._read_entries(0, state.flushed)
        yield from list(state.tail)

    def keep_first(self, count: int, first: Entry) -> None:
        """Drop all but the first `count` entries; `first` is the last entry of an empty index."""
        state = self._state
        if count >= state.flushed:
            kept = state.tail[: count - state.flushed]
            self._state = _State(state.flushed, kept)
        else:
            self._state = _State(count, [])
            self._truncate_file(count)
        kept = self._state.tail
        if kept:
            self.last_entry = kept[-1]
        elif count:
            self.last_entry = self._read_entries(count - 1, 1)[0]
        else:
            self.last_entry = first

    def _truncate_file(self, count: int) -> None:
        handle = self._fs.open(self.path)
        try:
            handle.truncate(count * self._entry.size)
        finally:
            handle.close()

    def count_below(self, key: int) -> int:
        """Count the entries whose key is less than `key`."""
        return sum(1 for entry in self.entries() if entry[0] < key)

    def check_file_size(self) -> None:
        """Raise CorruptIndexError if the file holds part of an entry, FileNotFoundError if it is missing."""
        size = self._fs.size(self.path)
        if size % self._entry.size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, no multiple of {self._entry.size}")

    def resize(self, size_max: int) -> None:
        """Set how many bytes of entries there may be."""
        self.entries_max = size_max // self._entry.size

    def rename(self, path: str) -> None:
        """Follow the file to a new name; the file itself is moved too if it exists."""
        try:
            self._fs.rename(self.path, path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        self.path = path

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self._fs.unlink(self.path)

    def close(self) -> None:
        """Write the tail."""
        self.write_tail()


def _key_of(entry: Entry) -> int:
    return entry[0]
