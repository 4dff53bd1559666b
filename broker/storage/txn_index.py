"""The transaction index: the aborted transactions that ended in a segment.

Format (`<base offset>.txnindex`, made with the first entry): entries of 34 bytes, ascending by last offset: int16
version (0), int64 producer id, int64 first offset, int64 last offset (of the marker), int64 last stable offset at
that time.

It has no checksum. At start each entry is held against the batches in its own segment that it points at (segment.py),
and against the producer snapshots at the segment's two ends, which have one (`is_borne_out`).

Threads: written by the log under its lock; read by any thread.

Source: Kafka's TransactionIndex and AbortedTxn, 4.3 (KIP-98).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.common.files import FileSystem
from broker.storage.index import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
VERSION = 0


class AbortedTxn(NamedTuple):
    """An entry; `last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def is_borne_out(
    entries: Sequence[AbortedTxn], base_offset: int, open_before: Mapping[int, int], open_after: Mapping[int, int]
) -> bool:
    """Tell whether a segment's entries agree with the transactions that were open at its beginning and at its end.

    These are given as {producer id: first offset}. An entry that began before the segment must be one of the former.
    No transaction that ends behind an entry, here or in a later segment, began before its last stable offset: where
    `collect` stops, nothing is missed.
    """
    for entry in entries:
        if entry.first_offset < base_offset and open_before.get(entry.producer_id) != entry.first_offset:
            return False
    begins = min(open_after.values(), default=None)  # the earliest of those that end later
    for entry in reversed(entries):
        if begins is not None and entry.last_stable_offset > begins:
            return False
        begins = entry.first_offset if begins is None else min(begins, entry.first_offset)
    return True


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_count", "_fs", "_last_offset", "base_offset", "path")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self.path = path  # replaced by renames, under the log's lock
        self.base_offset = base_offset  # fixed before start
        self._fs = fs
        self._count = fs.size(path) // ENTRY_SIZE if fs.exists(path) else 0  # under the log's lock
        entries = list(self.entries())
        self._last_offset = entries[-1].last_offset if entries else -1  # under the log's lock

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry, making the file if needed."""
        assert entry.last_offset > self._last_offset, (
            f"{entry} appended to {self.path} does not come after offset {self._last_offset}"
        )
        handle = self._fs.open(self.path, create=True)
        try:
            handle.pwrite(_ENTRY.pack(VERSION, *entry), self._count * ENTRY_SIZE)
        finally:
            handle.close()
        self._count += 1
        self._last_offset = entry.last_offset

    def entries(self) -> Iterator[AbortedTxn]:
        """Yield every entry in order."""
        count = self._count  # Why before the file is read: an entry that is being written then is left out
        if not count:
            return
        try:
            data = self._fs.read_bytes(self.path)
        except FileNotFoundError:
            return
        for version, *fields in _ENTRY.iter_unpack(data[: count * ENTRY_SIZE]):
            if version != VERSION:
                raise CorruptIndexError(f"{self.path}: an entry of version {version}")
            yield AbortedTxn(*fields)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Return the transactions that touch [fetch_offset, upper_bound_offset), and whether later segments need no
        look.
        """
        found: list[AbortedTxn] = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that ended at or after `offset`."""
        kept = 0
        last_offset = -1
        for entry in self.entries():
            if entry.last_offset >= offset:
                break
            kept += 1
            last_offset = entry.last_offset
        if kept != self._count:
            self._truncate_file(kept)
            self._last_offset = last_offset

    def reset(self) -> None:
        """Drop all entries."""
        if self._fs.exists(self.path):
            self._truncate_file(0)
        self._last_offset = -1

    def _truncate_file(self, count: int) -> None:
        handle = self._fs.open(self.path)
        try:
            handle.truncate(count * ENTRY_SIZE)
        finally:
            handle.close()
        self._count = count

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if an entry cannot be this segment's."""
        if self._fs.exists(self.path) and self._fs.size(self.path) % ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path} holds part of an entry")
        last_offset, stable = self.base_offset - 1, -1
        for entry in self.entries():
            if entry.last_offset <= last_offset or entry.first_offset < 0:
                raise CorruptIndexError(f"{self.path}: {entry} began before offset 0 or ended before {last_offset + 1}")
            if not max(stable, 0) <= entry.last_stable_offset <= entry.last_offset + 1:
                raise CorruptIndexError(f"{self.path}: {entry} cannot have left the stable offset where it says")
            last_offset, stable = entry.last_offset, entry.last_stable_offset

    def flush(self) -> None:
        """Make the file durable, if there is one."""
        if not self._count:
            return
        handle = self._fs.open(self.path)
        try:
            handle.fsync()
        finally:
            handle.close()

    def rename(self, path: str) -> None:
        """Move to a new name; the file is moved too if it exists."""
        try:
            self._fs.rename(self.path, path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        self.path = path

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self._fs.unlink(self.path)
