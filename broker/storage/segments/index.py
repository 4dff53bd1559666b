"""The base of offset index and time index: a file of fixed-size entries in ascending order, the last of them in memory.

Entries are appended to a small tail in memory. The tail is written to the file when it is full, on flush, on roll and
on close. The file then holds whole entries and nothing else, byte for byte what Kafka leaves after trimming. Entries in
the file are found by binary search in a map of it (`barnabas/common/disk/file_maps.py`).

Why the tail (Kafka writes through its map): recovery rebuilds the index of every segment that was not flushed, so
nothing is lost with the tail. An append costs neither a system call nor a page fault. A file is always as long as its
entries. Most lookups are near the log's end, and end in the tail.

Why a truncation creates a new file: a process that reads a page of a map past the file's end is killed. So a file is
never cut but replaced. Readers of the old map find entries that were right before the truncation.

Threads: appends, truncation and flush by the log under its lock; lookups by any thread without a lock. A lookup takes
one snapshot (`_state`) of which entries are in the file and which in the tail. The map belongs to the snapshot, so no
map outlives a truncation.

Invariants
1. The file's first `flushed` entries are never rewritten; a truncation publishes the new state, then replaces the file.
2. Entries ascend; `last entry` is the tail's last or the file's last.
3. No map is longer than the entries that its snapshot knows to be in the file.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from barnabas.broker.storage.directories.names import shared_parts
from barnabas.common.disk.file_maps import FileMap
from barnabas.common.disk.files import FileSystem
from barnabas.protocol.errors import MalformedMessageError

TAIL_ENTRIES_MAX: Final = 512
_PIECE_ENTRIES: Final = 4096

Entry = tuple[int, int]


class CorruptIndexError(MalformedMessageError):
    """An index that cannot be right; it is rebuilt."""


class _State:
    """Which entries are in the file and which in memory; replaced whole."""

    __slots__ = ("flushed", "map", "tail")

    def __init__(self, flushed: int, tail: list[Entry], file_map: FileMap | None = None) -> None:
        self.flushed = flushed  # entries in the file
        self.tail = tail  # entries after those; only ever appended to
        self.map = file_map  # of the file or its beginning; set by any reader, reset by `let_go`


_NO_TAIL: Final[list[Entry]] = []  # never changed: the first entry comes with a list of its own
_NO_ENTRIES: Final = _State(0, _NO_TAIL)


class SparseIndex:
    """Pairs of (key, value), ascending by key; `entry` is their layout in the file, `first` the last entry if empty."""

    __slots__ = ("_directory", "_entry", "_fs", "_name", "_state", "base_offset", "entries_max", "last_entry")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        base_offset: int,
        size_max: int,
        entry: struct.Struct,
        first: Entry,
        *,
        is_new: bool = False,
    ) -> None:
        """With `is_new` there is no file."""
        self._directory, self._name = shared_parts(path)
        self.base_offset = base_offset  # fixed before start
        self.entries_max = size_max // entry.size  # replaced by resize, under the log's lock
        self._fs = fs
        self._entry = entry
        count = 0 if is_new else self._entries_on_disk()
        # Replaced whole under the log's lock. Why shared: most segments of idle logs are too small for an entry.
        self._state = _State(count, _NO_TAIL) if count else _NO_ENTRIES
        # Replaced whole under the log's lock; an Entry. Why not annotated as one: see `LeaderEpochCache`.
        self.last_entry: tuple[int, ...] = self._last_of(count) if count else first

    @property
    def path(self) -> str:
        """The path of the file; replaced by renames, under the log's lock."""
        return f"{self._directory}/{self._name}"

    @path.setter
    def path(self, path: str) -> None:
        """Set the path."""
        self._directory, self._name = shared_parts(path)

    def _entries_on_disk(self) -> int:
        try:
            return self._fs.size(self.path) // self._entry.size
        except FileNotFoundError:
            return 0

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        state = self._state
        return state.flushed + len(state.tail)

    @property
    def size_in_bytes(self) -> int:
        """The bytes that all entries take in the file."""
        return self.entry_count * self._entry.size

    @property
    def is_full(self) -> bool:
        """Whether no entry may be added."""
        state = self._state
        return state.flushed + len(state.tail) >= self.entries_max

    def push(self, key: int, value: int) -> None:
        """Append an entry; the caller has checked order and room."""
        state = self._state
        if state.tail:
            state.tail.append((key, value))
        else:
            state = self._state = _State(state.flushed, [(key, value)], state.map)
        self.last_entry = (key, value)
        if len(state.tail) >= TAIL_ENTRIES_MAX:
            self.write_tail()

    def write_tail(self) -> None:
        """Move the tail to the file (the page cache); creates the file if there is none."""
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
        self._state = _State(state.flushed + len(state.tail), _NO_TAIL, state.map)

    def flush(self) -> None:
        """Write the tail and make the file durable."""
        self.write_tail()
        handle = self._fs.open(self.path)
        try:
            handle.fsync()
        finally:
            handle.close()

    def _encode(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries as they are stored."""
        raise NotImplementedError

    def _decode(self, stored: Entry) -> Entry:
        """Return a stored entry as it is used."""
        raise NotImplementedError

    # Reading the file

    def _stored(self, first: int, count: int) -> bytes:
        """Read `count` stored entries of the file from entry `first` on; raises CorruptIndexError."""
        if not count:
            return b""
        size = self._entry.size
        handle = self._fs.open(self.path)
        try:
            data = handle.pread(count * size, first * size)
        finally:
            handle.close()
        if len(data) != count * size:
            raise CorruptIndexError(f"{self.path} is shorter than it should be")
        return data

    def _last_of(self, count: int) -> Entry:
        """Return the last of the file's first `count` entries."""
        return self._decode(self._unpack(self._stored(count - 1, 1)))

    def _mapped(self, state: _State) -> FileMap | None:
        """Return a map of the file's first `state.flushed` entries; None if the file does not have them.

        It is then being deleted, or was truncated meanwhile. The caller scans the segment instead.
        """
        size = state.flushed * self._entry.size
        found = state.map
        if found is None or found.size < size:
            try:
                found = self._fs.map(self.path, size)
            except FileNotFoundError:
                return None
            if found.size < size:
                return None
            state.map = found
            self._fs.open_maps.add(self)
        return found

    def let_go(self) -> None:
        """Drop the map, on any thread: there are too many. The next lookup maps the file again."""
        self._state.map = None

    def release(self) -> None:
        """Drop the map."""
        self._state.map = None
        self._fs.open_maps.remove(self)

    # Searching

    def floor(self, key: int) -> Entry | None:
        """Return the last entry whose key is at most `key`."""
        state = self._state
        tail = state.tail
        if tail and tail[0][0] <= key:
            return tail[bisect_right(tail, key, key=_key_of) - 1]
        found = self._mapped(state) if state.flushed else None
        if found is None:
            return None
        count = self._count_up_to(found, state.flushed, 0, key)
        return self._entry_at(found, count - 1) if count else None

    def first_above(self, value: int) -> Entry | None:
        """Return the first entry whose value is above `value`."""
        state = self._state
        found = self._mapped(state) if state.flushed else None
        if found is not None:
            count = self._count_up_to(found, state.flushed, 1, value)
            if count < state.flushed:
                return self._entry_at(found, count)
        tail = state.tail
        at = bisect_right(tail, value, key=_value_of)
        return tail[at] if at < len(tail) else None

    def count_up_to(self, field: int, limit: int) -> int:
        """Count the entries whose key (field 0) or value (field 1) is at most `limit`; under the log's lock."""
        state = self._state
        if state.flushed:
            found = self._mapped(state)
            if found is None:
                return 0  # the file, or part of it, is missing: an index without entries is right
            count = self._count_up_to(found, state.flushed, field, limit)
            if count < state.flushed:
                return count
        return state.flushed + sum(1 for entry in state.tail if entry[field] <= limit)

    def _count_up_to(self, found: FileMap, count: int, field: int, limit: int) -> int:
        """Search the first `count` entries of the file for the last whose field is at most `limit`."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._entry_at(found, middle)[field] <= limit:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry_at(self, found: FileMap, index: int) -> Entry:
        size = self._entry.size
        return self._decode(self._unpack(found.read(size, index * size)))

    def _unpack(self, stored: bytes) -> Entry:
        key, value = self._entry.unpack(stored)
        return key, value

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, from the file and then the tail."""
        state = self._state
        for first in range(0, state.flushed, _PIECE_ENTRIES):
            data = self._stored(first, min(_PIECE_ENTRIES, state.flushed - first))
            for stored in self._entry.iter_unpack(data):
                yield self._decode(stored)
        yield from list(state.tail)

    # Truncating

    def keep_first(self, count: int, first: Entry) -> None:
        """Drop all but the first `count` entries; `first` is the last entry of an empty index."""
        state = self._state
        if count >= state.flushed:
            self._state = _State(state.flushed, state.tail[: count - state.flushed], state.map)
        else:
            kept = self._stored(0, count)
            self._state = _State(count, _NO_TAIL)
            self._fs.open_maps.remove(self)
            # Why not cut: see the module. A crash in between leaves a segment without an index; a start rebuilds it.
            self._fs.unlink(self.path)
            self._fs.write_bytes(self.path, kept, sync=False)
        tail = self._state.tail
        if tail:
            self.last_entry = tail[-1]
        else:
            self.last_entry = self._last_of(count) if count else first

    def check_file_size(self) -> None:
        """Raise CorruptIndexError if the file holds part of an entry, FileNotFoundError if it is missing."""
        size = self._fs.size(self.path)
        if size % self._entry.size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, no multiple of {self._entry.size}")

    def resize(self, size_max: int) -> None:
        """Set the maximum bytes of all entries."""
        self.entries_max = size_max // self._entry.size

    def rename(self, path: str) -> None:
        """Rename the file, if it exists, and use the new name."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self.release()
        self._fs.unlink(self.path)

    def close(self) -> None:
        """Write the tail and drop the map."""
        self.write_tail()
        self.release()


def _key_of(entry: Entry) -> int:
    return entry[0]


def _value_of(entry: Entry) -> int:
    return entry[1]
