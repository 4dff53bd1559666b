"""Slow, broken and full disks: the file layer of a node with faults.

`OPERATIONS_OF` maps each operation of `barnabas.common.disk.files` to one of a fault's `operations`. The kernel reads
the bytes that `sendfile` sends to a consumer, so a fault of reading fires when the broker prepares the slice.

Threads: any. A delay blocks the thread that uses the disk, with the locks that it holds, as a slow disk does.
"""

from __future__ import annotations

import errno
import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from barnabas.common.disk.faulty_files import DiskFaultError, FaultyFileSystem

if TYPE_CHECKING:
    from barnabas.broker.faults.armed import Armed
    from barnabas.common.disk.files import Buffer, FileHandle, FileSlice, FileSystem

OPERATIONS_OF: Final = {
    "read": "read",
    "write": "write",
    "preallocate": "write",
    "truncate": "write",
    "set_mtime": "write",
    "fsync": "fsync",
    "fsync_dir": "fsync",
    "create": "create",
    "mkdir": "create",
    "rename": "rename",
    "unlink": "delete",
    "remove_tree": "delete",
}
#: The operations that need space, and fail on a full disk.
NEEDS_SPACE: Final = frozenset({"write", "preallocate", "create", "mkdir"})


class FaultableFileSystem(FaultyFileSystem):
    """A file system on top of another one, with the active faults of the disk."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self._faults: tuple[Armed, ...] = ()  # replaced whole, by one thread at a time (the engine's lock)

    def add(self, armed: Armed) -> None:
        """Apply a fault until `remove`."""
        self._faults += (armed,)

    def remove(self, armed: Armed) -> None:
        """Stop applying a fault."""
        self._faults = tuple(other for other in self._faults if other is not armed)

    def step(self, operation: str, path: str) -> None:
        """Apply the matching faults before an operation: wait, or raise OSError."""
        for armed in self._faults:
            if _concerns(armed, operation, path) and armed.fires({"operation": operation, "path": path}):
                _suffer(armed, operation, path)

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        return _File(self, super().open(path, create=create))

    def read_bytes(self, path: str) -> bytes:
        """See FileSystem."""
        self.step("read", path)
        return super().read_bytes(path)

    def usage(self, path: str) -> tuple[int, int]:
        """See FileSystem; a full disk has no usable bytes."""
        total, usable = super().usage(path)
        is_full = any(armed.action == "disk_full" and armed.is_time() for armed in self._faults)
        return total, 0 if is_full else usable


def _concerns(armed: Armed, operation: str, path: str) -> bool:
    fault = armed.fault
    if fault.path is not None and not fnmatchcase(path, fault.path):
        return False
    if armed.action == "disk_full":
        return operation in NEEDS_SPACE
    return fault.operations is None or OPERATIONS_OF[operation] in fault.operations


def _suffer(armed: Armed, operation: str, path: str) -> None:
    fault = armed.fault
    if fault.disk_delay_ms is not None:
        armed.removed.wait(fault.disk_delay_ms / 1000)
        return
    number = errno.ENOSPC if fault.disk_full else getattr(errno, str(fault.disk_error))
    raise DiskFaultError(number, f"{os.strerror(number)} (fault {armed.id}, {operation})", path)


class _File:
    """A file handle that applies faults to reads. The inner handle applies them to changes of the disk."""

    __slots__ = ("_disk", "_inner")

    def __init__(self, disk: FaultableFileSystem, inner: FileHandle) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    def pread(self, size: int, position: int) -> bytes:
        self._disk.step("read", self.path)
        return self._inner.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._inner.pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def fsync(self) -> None:
        self._inner.fsync()

    def size(self) -> int:
        return self._inner.size()

    def preallocate(self, size: int) -> None:
        self._inner.preallocate(size)

    def read_ahead(self) -> None:
        self._inner.read_ahead()

    def slice(self, position: int, size: int) -> FileSlice:
        self._disk.step("read", self.path)
        return self._inner.slice(position, size)

    def close(self) -> None:
        self._inner.close()
