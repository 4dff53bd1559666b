"""The checksums of a log's transaction indexes, in a file of their own.

The file, `txn-index-checkpoint` in the partition's directory, has the format of the offset checkpoints: a line with
base offset and CRC-32C for each segment with an aborted transaction. The file is created with the first such
transaction and is read only at a start, so logs without transactions pay nothing.

Why not in the indexes: Apache Kafka appends to them, and an emptied or lost index would take its checksum with it. Why
not check the batches instead: every start would read the whole log.

A checksum is a shortcut. An index that does not match its checksum is rebuilt from the batches of its segment
(`recovery.py`): either may be damaged, or a crash or Apache Kafka changed one of them. So the file may be out of date.
It is written when segments that are no longer appended to are flushed, when the cleaner has replaced some, and when
the log is closed. A lost index in a directory that Apache Kafka wrote goes unnoticed.

Threads: written under the log's flush lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.broker.storage.directories.checkpoints import (
    CorruptCheckpointError,
    read_txn_checksums,
    write_txn_checksums,
)
from barnabas.broker.storage.directories.names import TXN_INDEX_FILE
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.txn_index import TransactionIndex
from barnabas.common.disk.files import FileSystem

log = logging.getLogger("barnabas.storage.log")


_NONE: Final[dict[int, int]] = {}  # never changed


class TransactionChecksums:
    """The checksums of one log's transaction indexes."""

    __slots__ = ("_by_base", "_fs", "_written")

    def __init__(self, fs: FileSystem, directory: str, *, is_new: bool = False) -> None:
        """Read the file in a partition's directory, unless the log is new; a damaged one counts as empty."""
        self._fs = fs
        self._by_base: dict[int, int] = _NONE  # those known to be right; loading adds to them
        self._written: dict[int, int] | None = None  # the file's content; None if unknown
        if is_new:
            self._written = _NONE
            return
        try:
            self._by_base = read_txn_checksums(fs, f"{directory}/{TXN_INDEX_FILE}") or _NONE
            self._written = self._by_base.copy() or _NONE
        except CorruptCheckpointError as error:
            log.warning("%s; the aborted transactions are read from the batches", error)

    def matches(self, index: TransactionIndex) -> bool:
        """Return whether an index has its recorded checksum; an empty index needs none."""
        return self._by_base.get(index.base_offset, 0) == index.checksum

    def of(self, index: TransactionIndex) -> int | None:
        """Return the checksum that an index must have; None if it is unknown."""
        return self._by_base.get(index.base_offset)

    def add(self, index: TransactionIndex) -> None:
        """Record the checksum of an index that is right."""
        if not self._by_base:
            self._by_base = {}
        self._by_base[index.base_offset] = index.checksum

    def write(self, directory: str, segments: Iterable[LogSegment]) -> None:
        """Write the checksums of these segments' indexes, all of a log's, if they changed; raises OSError."""
        current = {each.base_offset: each.txn_index.checksum for each in segments if not each.txn_index.is_empty}
        if current != self._written:
            write_txn_checksums(self._fs, f"{directory}/{TXN_INDEX_FILE}", current)
            self._written = current
