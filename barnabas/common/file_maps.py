"""Files as memory: what the indexes of the logs are looked up in.

A read of a map costs no system call, and so never hands the interpreter's lock to another thread in the midst of a
binary search. What it must not do is end the process, which is what the kernel does to those who touch a page that
cannot be had: the disk broke, or the file was cut.

Rules
1. A map is read only, and never longer than its file was when it was made. Its maker asks for the size that it knows
   to be there, and gets less if that is not true (any more).
2. Nobody cuts a file that may be mapped: who wants it shorter puts another in its place (`SparseIndex`). The map keeps
   the old one, whole, until it goes.
3. Compiled, `_file_map.c` maps: it needs no descriptor, and turns a page that cannot be had into OSError(EIO). Without
   a C compiler nothing could catch that signal, so `PositionalReads` stands in: the same to its callers, by pread.
4. How many there are is bounded (`FileSystem.open_maps`): whoever keeps one lets go of it when told, and maps anew when
   it needs to. A map lives as long as somebody refers to it.

Threads: any; a map is never changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

try:
    from barnabas.common._file_map import FileMap as _CompiledMap
except ImportError:  # not compiled
    _CompiledMap = None  # type: ignore[assignment, misc]


class FileMap(Protocol):
    """The first `size` bytes of a file, as they are when they are read."""

    @property
    def size(self) -> int: ...

    def read(self, size: int, position: int, /) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the map. Raises OSError."""


class PositionalReads:
    """A `FileMap` without memory; it keeps a descriptor."""

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int, size: int) -> None:
        self.size = size  # fixed before start
        self._fd = os.dup(fd)  # fixed before start

    def read(self, size: int, position: int, /) -> bytes:
        return os.pread(self._fd, max(0, min(size, self.size - position)), position)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)


def is_compiled() -> bool:
    """Tell whether files are really mapped."""
    return _CompiledMap is not None


def map_descriptor(fd: int, size_wanted: int) -> FileMap:
    """Map the first bytes of an open file, as far as it has them; the descriptor may be closed then. Raises OSError."""
    size = min(size_wanted, os.fstat(fd).st_size)
    make: Callable[[int, int], FileMap] = PositionalReads if _CompiledMap is None else _CompiledMap
    return make(fd, size)
