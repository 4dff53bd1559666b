"""Memory-mapped files, in which the logs' indexes are searched.

A read of a map needs no system call, so the interpreter's lock stays with the thread during a binary search. But when
the disk fails, or the file is truncated, the kernel ends a process that reads a missing page. The map must prevent
that.

Rules
1. A map is read-only and never longer than its file was when it was mapped. The caller requests the size that it
   expects, and gets a shorter map if the file is shorter.
2. A mapped file is never truncated. To shorten it, replace it by another file (`SparseIndex`). The map keeps the old
   content until it is dropped.
3. The compiled `_file_map.c` needs no descriptor, and turns the read of a missing page into OSError(EIO). Without a C
   compiler nothing can catch that signal. Then the fallback is `PositionalReads`, which reads by pread.
4. The number of maps is bounded (`FileSystem.open_maps`): a holder drops its map when `let_go` is called, and maps the
   file again when it needs it. A map exists while it is referenced.

*Threads*: any; a map never changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

try:
    from barnabas.common.disk._file_map import FileMap as _CompiledMap
except ImportError:  # not compiled
    _CompiledMap = None  # type: ignore[assignment, misc]


class FileMap(Protocol):
    """The first `size` bytes of a file, with the content at the time of each read."""

    @property
    def size(self) -> int:
        """The number of mapped bytes."""
        ...

    def read(self, size: int, position: int, /) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the map. Raises OSError."""


class PositionalReads:
    """A `FileMap` by pread; it keeps a descriptor open."""

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int, size: int) -> None:
        self.size = size  # fixed before start
        self._fd = os.dup(fd)  # fixed before start

    def read(self, size: int, position: int, /) -> bytes:
        """See FileMap."""
        return os.pread(self._fd, max(0, min(size, self.size - position)), position)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)


def is_compiled() -> bool:
    """Return whether files are mapped into memory."""
    return _CompiledMap is not None


def map_descriptor(fd: int, size_wanted: int) -> FileMap:
    """Map up to `size_wanted` first bytes of an open file; the caller may then close `fd`. Raises OSError."""
    size = min(size_wanted, os.fstat(fd).st_size)
    make: Callable[[int, int], FileMap] = PositionalReads if _CompiledMap is None else _CompiledMap
    return make(fd, size)
