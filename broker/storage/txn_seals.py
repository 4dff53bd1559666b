"""What a log's transaction indexes have to hold: a checksum of each, in a file of their own.

The file, `txn-index-checkpoint` in the partition's directory, has the format of the offset checkpoints, sealed like
them: a line with base offset and CRC-32C for each segment in which a transaction was aborted. There is none while there
was no such transaction, and it is not opened but at a start, so that logs without transactions pay nothing.

Why not in the indexes: Apache Kafka appends to them, and an index that was emptied or lost would have gone with its
checksum. Why not look at the batches instead, at every start: that is the log, read whole.

A checksum is a shortcut and never the truth. An index that it does not confirm, because either is damaged or a crash
or Apache Kafka came in between, is made anew from the batches of its segment (recovery.py). So the file may be out of
date, and is written when it is convenient: when segments that are not appended to any more are flushed, when the
cleaner has replaced some, when the log is closed. An index that is lost whole in a directory that Apache Kafka has
written is missed by nobody.

Threads: written under the log's flush lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.broker.storage.checkpoints import CorruptCheckpointError, read_txn_checksums, write_txn_checksums
from barnabas.broker.storage.names import TXN_INDEX_FILE
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.txn_index import TransactionIndex
from barnabas.common.files import FileSystem

log = logging.getLogger("barnabas.storage.log")


class TransactionSeals:
    """The checksums of one log's transaction indexes."""

    __slots__ = ("_by_base", "_fs", "_written")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._by_base: dict[int, int] = {}  # what is known to be right; loading adds to it
        self._written: dict[int, int] | None = None  # what the file says; None if nobody knows
        try:
            self._by_base = read_txn_checksums(fs, f"{directory}/{TXN_INDEX_FILE}")
            self._written = self._by_base.copy()
        except CorruptCheckpointError as error:
            log.warning("%s; what was aborted is read from the batches", error)

    def confirm(self, index: TransactionIndex) -> bool:
        """Tell whether an index is what was sealed; one that is empty need not have been."""
        return self._by_base.get(index.base_offset, 0) == index.checksum

    def of(self, index: TransactionIndex) -> int | None:
        """Return the checksum that a segment's index should have; None if it is not known."""
        return self._by_base.get(index.base_offset)

    def note(self, index: TransactionIndex) -> None:
        """Take note that an index has been found to be right."""
        self._by_base[index.base_offset] = index.checksum

    def update(self, directory: str, segments: Iterable[LogSegment]) -> None:
        """Have the file say what the indexes of these segments, all of a log's, hold; raises OSError."""
        sealed = {each.base_offset: each.txn_index.checksum for each in segments if not each.txn_index.is_empty}
        if sealed != self._written:
            write_txn_checksums(self._fs, f"{directory}/{TXN_INDEX_FILE}", sealed)
            self._written = sealed
