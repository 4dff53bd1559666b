"""The transaction index: the aborted transactions that ended in a segment.

Format (`<base offset>.txnindex`, created with the first entry): entries of 34 bytes, ascending by last offset: int16
version (0), int64 producer id, int64 first offset, int64 last offset (of the marker), int64 last stable offset at
that time.

The format has no checksum. This object keeps the CRC of the expected content, and every read compares it with the
file. At a start the log's `txn-index-checkpoint` confirms the content, or it is rebuilt from the segment
(`recovery.py`).

Threads: written by the log under its lock; read by any thread, without a lock as long as the file has the expected
content.

Source: Kafka's TransactionIndex and AbortedTxn, 4.3 (KIP-98).
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.broker.storage.directories.names import shared_parts
from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.common.disk.files import FileSystem
from barnabas.protocol.records.crc import crc32c

log = logging.getLogger("barnabas.storage.log")

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
VERSION = 0
_EMPTY = (0, crc32c(b""))


class AbortedTxn(NamedTuple):
    """An entry; `last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_directory", "_fs", "_is_flushed", "_last_offset", "_lock", "_name", "_whole", "base_offset")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, is_new: bool = False) -> None:
        """Read the file, if there may be one: with `is_new` there is none."""
        data = fs.read_bytes(path) if not is_new and fs.exists(path) else b""
        self._directory, self._name = shared_parts(path)
        self.base_offset = base_offset  # fixed before start
        self._fs = fs
        self._lock = threading.Lock()  # guards renaming and cutting the file; no other lock is taken while it is held
        # As expected; replaced whole under _lock, read without it.
        self._whole = (len(data), crc32c(data)) if data else _EMPTY
        self._last_offset = _last_offset(data)  # under the log's lock
        self._is_flushed = True  # reset by changes under the log's lock, set by `flush` before the fsync

    @property
    def path(self) -> str:
        """The path of the file; replaced by renames, under _lock."""
        return f"{self._directory}/{self._name}"

    @path.setter
    def path(self, path: str) -> None:
        """Set the path."""
        self._directory, self._name = shared_parts(path)

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self._whole == _EMPTY

    @property
    def checksum(self) -> int:
        """The CRC-32C of the expected content; 0 if there is no entry."""
        return self._whole[1]

    def expect(self, checksum: int) -> None:
        """Require another checksum: reads of a file that does not match it fail (it could not be rebuilt)."""
        self._whole = (self._whole[0], checksum)

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry; creates the file if needed."""
        assert entry.last_offset > self._last_offset, (
            f"{entry} appended to {self.path} does not come after offset {self._last_offset}"
        )
        packed = _ENTRY.pack(VERSION, *entry)
        size, checksum = self._whole
        handle = self._fs.open(self.path, create=True)
        try:
            handle.pwrite(packed, size)
        finally:
            handle.close()
        with self._lock:
            self._whole = (size + ENTRY_SIZE, crc32c(packed, checksum))
        self._last_offset = entry.last_offset
        self._is_flushed = False

    def entries(self) -> Iterator[AbortedTxn]:
        """Yield every entry in order; raises CorruptIndexError if the file has other content than expected."""
        if self.is_empty:
            return
        data = self._content()
        if len(data) % ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path} holds part of an entry")
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != VERSION:
                raise CorruptIndexError(f"{self.path}: an entry of version {version}")
            yield AbortedTxn(*fields)

    def _content(self) -> bytes:
        """Return the expected content, without an entry that is just being written; raises CorruptIndexError."""
        whole = self._whole
        data = self._first_bytes(whole[0])
        if crc32c(data) != whole[1]:
            with self._lock:  # it may have been cut or renamed meanwhile
                whole = self._whole
                data = self._first_bytes(whole[0])
            if crc32c(data) != whole[1]:
                raise CorruptIndexError(f"{self.path} does not have the content that was written")
        return data

    def _first_bytes(self, size: int) -> bytes:
        try:
            return self._fs.read_bytes(self.path)[:size]
        except FileNotFoundError:
            return b""

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Return the transactions that touch [fetch_offset, upper_bound_offset), and whether the log has no others."""
        found: list[AbortedTxn] = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that ended at or after `offset`."""
        try:
            entries = list(self.entries())
        except CorruptIndexError as error:
            log.warning("%s; it is refused until a start rebuilds it", error)
            self._last_offset = min(self._last_offset, offset - 1)
            return
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._cut(b"".join(_ENTRY.pack(VERSION, *entry) for entry in kept))

    def reset(self) -> None:
        """Drop all entries."""
        if self._fs.exists(self.path):
            self._cut(b"")
        else:
            self._whole = _EMPTY

    def _cut(self, kept: bytes) -> None:
        """Cut the file to its beginning, `kept`."""
        with self._lock:
            self._whole = (len(kept), crc32c(kept))
            handle = self._fs.open(self.path)
            try:
                handle.truncate(len(kept))
            finally:
                handle.close()
        self._last_offset = _last_offset(kept)
        self._is_flushed = False

    def replace(self, entries: Iterable[AbortedTxn]) -> None:
        """Replace all entries, while there are no readers."""
        data = b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)
        if data != self._first_bytes(len(data) + 1):
            self._fs.write_bytes(self.path, data, sync=False)
            self._is_flushed = False
        self._whole = (len(data), crc32c(data))
        self._last_offset = _last_offset(data)

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if an entry cannot belong to this segment."""
        last_offset, stable = self.base_offset - 1, -1
        for entry in self.entries():
            if entry.last_offset <= last_offset or entry.first_offset < 0:
                raise CorruptIndexError(f"{self.path}: {entry} began before offset 0 or ended before {last_offset + 1}")
            if not max(stable, 0) <= entry.last_stable_offset <= entry.last_offset + 1:
                raise CorruptIndexError(f"{self.path}: {entry} has an impossible last stable offset")
            last_offset, stable = entry.last_offset, entry.last_stable_offset

    def flush(self) -> bool:
        """Make the file's content durable; returns whether it was not. The file's name may be new, too."""
        if self._is_flushed:
            return False
        self._is_flushed = True
        try:
            handle = self._fs.open(self.path)
            try:
                handle.fsync()
            finally:
                handle.close()
        except OSError:
            self._is_flushed = False
            raise
        return True

    def rename(self, path: str) -> None:
        """Rename the file, if it exists, and use the new name."""
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rename(self.path, path)
            self.path = path

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self._fs.unlink(self.path)


def _last_offset(data: bytes) -> int:
    """Return the last offset of the last entry; -1 if there is none."""
    whole = len(data) - len(data) % ENTRY_SIZE
    last_offset: int = _ENTRY.unpack_from(data, whole - ENTRY_SIZE)[3] if whole else -1
    return last_offset
