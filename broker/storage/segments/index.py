"""The base of offset index and time index: a file of fixed-size entries in ascending order, the last of them in memory.

Entries are appended to a small tail in memory, as they are stored. The tail is written to the file when it is full, on
flush, on roll and on close. The file then holds whole entries and nothing else, byte for byte what Kafka leaves after
trimming. Entries are found by binary search: in the tail, and in a map of the file
(`barnabas/common/disk/file_maps.py`).

Why the tail (Kafka writes through its map): recovery rebuilds the index of every segment that was not flushed, so
nothing is lost with the tail. An append costs neither a system call nor a page fault. A file is always as long as its
entries. Most lookups are near the log's end, and end in the tail.

Why a truncation creates a new file: a process that reads a page of a map past the file's end is killed. So a file is
never cut but replaced. Readers of the old map find entries that were right before the truncation.

Threads: appends, truncation and `write_tail` by the log under its lock; `flush` and lookups by any thread without a
lock. A lookup takes one snapshot (`_state`) of which entries are in the file and which in the tail. The map belongs to
the snapshot, so no map outlives a truncation.

Invariants
1. The file's first `flushed` entries are never rewritten; a truncation publishes the new state, then replaces the file.
2. Entries ascend; `last entry` is the tail's last or the file's last.
3. No map is longer than the entries that its snapshot knows to be in the file.
"""

from __future__ import annotations

import contextlib
import struct
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

    def __init__(self, flushed: int, tail: bytes, file_map: FileMap | None = None) -> None:
        self.flushed = flushed  # entries in the file
        # The stored entries after those; replaced whole by longer ones. Why no bytearray: before CPython 3.14, a
        # free-threaded interpreter would let a reader see a buffer that an append moves.
        self.tail = tail
        self.map = file_map  # of the file or its beginning; set by any reader, reset by `let_go`


_NO_ENTRIES: Final = _State(0, b"")


class SparseIndex:
    """Pairs of (key, value), ascending by key; `entry` is their layout in the file, `first` the last entry if empty."""

    __slots__ = (
        "_directory",
        "_entry",
        "_entry_size",
        "_fs",
        "_name",
        "_state",
        "base_offset",
        "entries_max",
        "last_entry",
    )

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
        self._entry = entry  # fixed before start
        self._entry_size = entry.size  # fixed before start
        count = 0 if is_new else self._entries_on_disk()
        # Replaced whole under the log's lock. Why shared: most segments of idle logs are too small for an entry.
        self._state = _State(count, b"") if count else _NO_ENTRIES
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
            return self._fs.size(self.path) // self._entry_size
        except FileNotFoundError:
            return 0

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        state = self._state
        return state.flushed + len(state.tail) // self._entry_size

    @property
    def size_in_bytes(self) -> int:
        """The bytes that all entries take in the file."""
        return self.entry_count * self._entry_size

    @property
    def is_full(self) -> bool:
        """Whether no entry may be added."""
        return self.entry_count >= self.entries_max

    def push(self, key: int, value: int) -> None:
        """Append an entry; the caller has checked order and room."""
        state = self._state
        if state is _NO_ENTRIES:
            state = self._state = _State(0, b"")
        state.tail += self._encode(key, value)
        self.last_entry = (key, value)
        if len(state.tail) >= TAIL_ENTRIES_MAX * self._entry_size:
            self.write_tail()

    def write_tail(self) -> None:
        """Move the tail to the file (the page cache); creates the file if there is none."""
        state = self._state
        tail = state.tail
        if not tail and self._fs.exists(self.path):
            return
        handle = self._fs.open(self.path, create=True)
        try:
            if tail:
                handle.pwrite(tail, state.flushed * self._entry_size)
        finally:
            handle.close()
        self._state = _State(state.flushed + len(tail) // self._entry_size, b"", state.map)

    def flush(self) -> None:
        """Make the file durable, without the tail."""
        handle = self._fs.open(self.path)
        try:
            handle.fsync()
        finally:
            handle.close()

    def _encode(self, key: int, value: int) -> bytes:
        """Return an entry as it is stored."""
        raise NotImplementedError

    def _decode(self, stored: Entry) -> Entry:
        """Return a stored entry as it is used."""
        raise NotImplementedError

    # Reading the file

    def _stored(self, first: int, count: int) -> bytes:
        """Read `count` stored entries of the file from entry `first` on; raises CorruptIndexError."""
        if not count:
            return b""
        size = self._entry_size
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
        size = state.flushed * self._entry_size
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
        if tail and self._entry_at(tail, 0)[0] <= key:
            return self._entry_at(tail, self._count_up_to(tail, len(tail) // self._entry_size, 0, key) - 1)
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
            at = self._count_up_to(found, state.flushed, 1, value)
            if at < state.flushed:
                return self._entry_at(found, at)
        tail = state.tail
        count = len(tail) // self._entry_size
        at = self._count_up_to(tail, count, 1, value)
        return self._entry_at(tail, at) if at < count else None

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
        tail = state.tail
        return state.flushed + self._count_up_to(tail, len(tail) // self._entry_size, field, limit)

    def _count_up_to(self, entries: FileMap | bytes, count: int, field: int, limit: int) -> int:
        """Search the first `count` stored entries for the last whose field is at most `limit`."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._entry_at(entries, middle)[field] <= limit:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry_at(self, entries: FileMap | bytes, index: int) -> Entry:
        size = self._entry_size
        at = index * size
        stored = entries[at : at + size] if isinstance(entries, bytes) else entries.read(size, at)
        return self._decode(self._unpack(stored))

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
        for stored in self._entry.iter_unpack(state.tail):
            yield self._decode(stored)

    # Truncating

    def keep_first(self, count: int, first: Entry) -> None:
        """Drop all but the first `count` entries; `first` is the last entry of an empty index."""
        state = self._state
        if count >= state.flushed:
            self._state = _State(state.flushed, state.tail[: (count - state.flushed) * self._entry_size], state.map)
        else:
            kept = self._stored(0, count)
            self._state = _State(count, b"")
            self._fs.open_maps.remove(self)
            # Why not cut: see the module. A crash in between leaves a segment without an index; a start rebuilds it.
            self._fs.unlink(self.path)
            self._fs.write_bytes(self.path, kept, sync=False)
        tail = self._state.tail
        if tail:
            self.last_entry = self._entry_at(tail, len(tail) // self._entry_size - 1)
        else:
            self.last_entry = self._last_of(count) if count else first

    def check_file_size(self) -> None:
        """Raise CorruptIndexError if the file holds part of an entry, FileNotFoundError if it is missing."""
        size = self._fs.size(self.path)
        if size % self._entry_size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, no multiple of {self._entry_size}")

    def resize(self, size_max: int) -> None:
        """Set the maximum bytes of all entries."""
        self.entries_max = size_max // self._entry_size

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
