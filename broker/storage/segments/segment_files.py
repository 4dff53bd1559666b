"""The files of one segment: the `.log` file of batches and three indexes, under names that change together.

The `.log` file is opened on the first read or write. It is held until the segment is closed, or until too many files
are open (`open_files.py`).

Threads: `size` and the names are changed by the log under its lock. Reads take no lock.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.storage.directories.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from barnabas.broker.storage.log.log_types import LogConfig
from barnabas.broker.storage.segments.offset_index import OffsetIndex
from barnabas.broker.storage.segments.time_index import TimeIndex
from barnabas.broker.storage.segments.txn_index import TransactionIndex
from barnabas.common.disk.files import FileHandle, FileSystem

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentFiles:
    """The `.log` file and the indexes of one segment."""

    __slots__ = (
        "_fs",
        "_handle",
        "_was_opened",
        "base_offset",
        "directory",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str,
        create: bool,
        is_new: bool = False,
    ) -> None:
        """Open the files of the segment at `base_offset`; creates the `.log` file if `create` is set.

        With `is_new` none of its files is there. Raises FileNotFoundError if there is no `.log` file and none is
        created.
        """
        self.base_offset = base_offset  # fixed before start
        self.directory = directory  # replaced by `move_to`
        self.suffix = suffix  # replaced by `change_suffix`
        self._fs = fs
        self._handle: FileHandle | None = None  # opened on first use; reset by `let_go` and `release`
        self._was_opened = False  # before that, this process has written nothing
        path = self.path
        is_created = create and (is_new or not fs.exists(path))
        self.size = self._create(path, config) if is_created else fs.size(path)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes, is_new=is_new)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes, is_new=is_new)
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset, is_new=is_new)

    def _path(self, suffix: str) -> str:
        return segment_file(self.directory, self.base_offset, suffix + self.suffix)

    def _create(self, path: str, config: LogConfig) -> int:
        self._handle = self._fs.open(path, create=True)
        self._was_opened = True
        self._fs.open_files.add(self)
        if config.preallocate:
            self._handle.preallocate(config.segment_bytes)
        return 0

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return self._path(LOG_SUFFIX)

    @property
    def file(self) -> FileHandle:
        """The `.log` file; opens it if it is not open."""
        handle = self._handle
        if handle is None:
            # Why no lock: two readers may both open it. One handle is kept, the other closes with its last reference.
            handle = self._handle = self._fs.open(self.path)
            handle.read_ahead()
            self._was_opened = True
            self._fs.open_files.add(self)
        return handle

    @property
    def is_open(self) -> bool:
        """Whether the `.log` file is open now."""
        return self._handle is not None

    def let_go(self) -> None:
        """Drop the open file, on any thread: too many are open. The next use opens it again."""
        self._handle = None

    def mtime_ms(self) -> int:
        """Return when the `.log` file was last written; raises FileNotFoundError."""
        return self._fs.mtime_ms(self.path)

    # Writing

    def truncate(self, size: int) -> None:
        """Cut the `.log` file to `size` bytes and make that durable."""
        self.size = size
        self.file.truncate(size)
        self.file.fsync()

    def cut_preallocated(self) -> None:
        """Cut what the `.log` file holds past `size`."""
        if not self._was_opened:
            return
        handle = self._handle  # None: it was let go
        if (self._fs.size(self.path) if handle is None else handle.size()) > self.size:
            self.file.truncate(self.size)

    def read_ahead(self) -> None:
        """Expect reads of the `.log` file from the disk, one after the other."""
        if (handle := self._handle) is not None:  # else that is done when it is opened
            handle.read_ahead()

    def write_index_tails(self) -> None:
        """Write the entries of both sparse indexes that are only in memory."""
        self.offset_index.write_tail()
        self.time_index.write_tail()

    def flush_sparse_indexes(self) -> None:
        """Make the offset index and the time index durable, without their tails."""
        self.offset_index.flush()
        self.time_index.flush()

    # Names and end of life

    def change_suffix(self, new: str) -> None:
        """Rename all files of the segment; readers with an open file are not disturbed."""
        _ = self.file  # later readers need the descriptor, too
        self._fs.open_files.remove(self)
        source = self.path
        self.suffix = new
        self._fs.rename(source, self.path)
        self.offset_index.rename(self._path(INDEX_SUFFIX))
        self.time_index.rename(self._path(TIME_INDEX_SUFFIX))
        self.txn_index.rename(self._path(TXN_INDEX_SUFFIX))

    def move_to(self, directory: str) -> None:
        """Follow the partition's directory to a new path."""
        self.directory = directory
        self.offset_index.path = self._path(INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._path(TXN_INDEX_SUFFIX)

    def release(self) -> None:
        """Close the `.log` file and the maps of the indexes without writing."""
        self._fs.open_files.remove(self)
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()
        self.offset_index.release()
        self.time_index.release()

    def delete(self) -> None:
        """Close and remove all files."""
        self.release()
        self._fs.unlink(self.path)
        self.offset_index.delete()
        self.time_index.delete()
        self.txn_index.delete()
