"""File systems for tests: one in memory that can lose power, one that fails a chosen operation.

`MemoryFileSystem` stores for each file the written and the durable content (durable after fsync; names after fsync of
the directory). `crash()` returns the disk after a power failure: every unsynced change is lost. With a `random.Random`,
each file keeps a random prefix of its unsynced tail, like a torn write.

`FaultyFileSystem` wraps another one, counts the operations that change the disk, and fails the N-th one (and, like a
broken disk, all later ones while `sticky`). A failing write writes a part of its data.

*Threads*: any; one lock guards the whole disk.
"""

from __future__ import annotations

import errno
import io
import os
import random
import threading
from collections.abc import Callable
from typing import Self

from barnabas.common.disk.file_maps import FileMap
from barnabas.common.disk.files import (
    Buffer,
    DirectoryLock,
    Entry,
    FileHandle,
    FileSlice,
    FileSystem,
    replace_atomically,
)
from barnabas.common.disk.open_files import OpenFiles


def _parent(path: str) -> str:
    return path[: path.rfind("/")] or "/"  # Why not os.path: it would take most of the crash tests' time


class _Inode:
    """A file's content, now and as of its last fsync."""

    __slots__ = ("content", "durable", "mtime_ms")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.mtime_ms = 0


class MemoryFileSlice:
    """A `FileSlice` of a file in memory; it has no descriptor."""

    __slots__ = ("_inode", "position", "size")

    def __init__(self, inode: _Inode, position: int, size: int) -> None:
        self._inode = inode
        self.position = position
        self.size = size

    def fileno(self) -> int:
        """See FileSlice."""
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def read(self) -> bytes:
        """See FileSlice."""
        return bytes(self._inode.content[self.position : self.position + self.size])

    def part(self, start: int, size: int) -> MemoryFileSlice:
        """See FileSlice."""
        return MemoryFileSlice(self._inode, self.position + start, size)


class MemoryMap:
    """A `FileMap` of a file in memory; asserts where the kernel would end the process."""

    __slots__ = ("_inode", "size")

    def __init__(self, inode: _Inode, size: int) -> None:
        self._inode = inode
        self.size = size

    def read(self, size: int, position: int, /) -> bytes:
        """See FileMap."""
        end = min(position + size, self.size)
        assert end <= len(self._inode.content), "SIGBUS: a file was truncated while it was mapped"
        return bytes(self._inode.content[position:end])


class MemoryFile:
    """A `FileHandle` of a file in memory."""

    __slots__ = ("_inode", "_lock", "path")

    def __init__(self, path: str, inode: _Inode, lock: threading.RLock) -> None:
        self.path = path
        self._inode: _Inode | None = inode
        self._lock = lock

    def _open_inode(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._inode

    def pread(self, size: int, position: int) -> bytes:
        """See FileHandle."""
        with self._lock:
            return bytes(self._open_inode().content[position : position + size])

    def pwrite(self, data: Buffer, position: int) -> None:
        """See FileHandle."""
        with self._lock:
            content = self._open_inode().content
            if len(content) < position:
                content.extend(bytes(position - len(content)))
            content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        """See FileHandle."""
        with self._lock:
            content = self._open_inode().content
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))

    def fsync(self) -> None:
        """See FileHandle."""
        with self._lock:
            inode = self._open_inode()
            inode.durable = bytes(inode.content)

    def size(self) -> int:
        """See FileHandle."""
        return len(self._open_inode().content)

    def preallocate(self, size: int) -> None:
        """See FileHandle."""
        self.truncate(size)

    def read_ahead(self) -> None:
        """See FileHandle; there is nothing to wait for."""

    def slice(self, position: int, size: int) -> FileSlice:
        """See FileHandle."""
        return MemoryFileSlice(self._open_inode(), position, size)

    def close(self) -> None:
        """See FileHandle."""
        self._inode = None


class _MemoryLock:
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """See DirectoryLock."""
        self._held.discard(self._path)


class MemoryFileSystem:
    """A disk in memory."""

    def __init__(self) -> None:
        # Why two tables: a name is durable only after an fsync of its directory, so a crash can lose content and names
        # independently.
        self._lock = threading.RLock()
        self._files: dict[str, _Inode] = {}  # guarded by: _lock
        self._durable_names: dict[str, _Inode] = {}  # guarded by: _lock
        self._dirs: set[str] = {"/"}  # guarded by: _lock
        self._held: set[str] = set()  # guarded by: _lock
        self.open_files = OpenFiles()  # fixed before start
        self.open_maps = OpenFiles()  # fixed before start
        self._boots = 1  # fixed before start

    def boot_id(self) -> str:
        """See FileSystem."""
        return f"boot-{self._boots}"

    def map(self, path: str, size: int) -> FileMap:
        """See FileSystem."""
        with self._lock:
            inode = self._inode(path)
            return MemoryMap(inode, min(size, len(inode.content)))

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        with self._lock:
            return MemoryFile(path, self._inode(path, create=create), self._lock)

    def _inode(self, path: str, *, create: bool = False) -> _Inode:
        inode = self._files.get(path)
        if inode is None:
            if not create or _parent(path) not in self._dirs:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = self._files[path] = _Inode()
        return inode

    def read_bytes(self, path: str) -> bytes:
        """See FileSystem."""
        with self._lock:
            return bytes(self._inode(path).content)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See FileSystem."""
        with self._lock:
            inode = self._inode(path, create=True)
            inode.content[:] = data
            if sync:
                inode.durable = bytes(data)

    def atomic_write(self, path: str, data: Buffer) -> None:
        """See FileSystem."""
        replace_atomically(self, path, data)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._files or path in self._dirs

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._dirs

    def size(self, path: str) -> int:
        """See FileSystem."""
        with self._lock:
            return len(self._inode(path).content)

    def mtime_ms(self, path: str) -> int:
        """See FileSystem."""
        with self._lock:
            return self._inode(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See FileSystem."""
        with self._lock:
            self._inode(path).mtime_ms = mtime_ms

    def listdir(self, path: str) -> list[Entry]:
        """See FileSystem."""
        with self._lock:
            if path not in self._dirs:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            found = [
                Entry(os.path.basename(name), False, len(inode.content))
                for name, inode in self._files.items()
                if _parent(name) == path
            ]
            found += [
                Entry(os.path.basename(name), True, 0) for name in self._dirs if name != path and _parent(name) == path
            ]
        return sorted(found, key=lambda entry: entry.name)

    def mkdir(self, path: str) -> bool:
        """See FileSystem."""
        with self._lock:
            is_made = path not in self._dirs
            while path not in self._dirs:
                self._dirs.add(path)
                path = _parent(path)
            return is_made

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        with self._lock:
            if source in self._dirs:
                self._rename_dir(source, target)
                return
            inode = self._inode(source)
            del self._files[source]
            self._files[target] = inode

    def _rename_dir(self, source: str, target: str) -> None:
        def moved(name: str) -> str:
            return target + name[len(source) :] if name == source or name.startswith(source + "/") else name

        self._dirs = {moved(name) for name in self._dirs}
        self._files = {moved(name): inode for name, inode in self._files.items()}
        # Why: moving a directory changes one entry of its parent; the durability of its files stays the same.
        self._durable_names = {moved(name): inode for name, inode in self._durable_names.items()}

    def unlink(self, path: str) -> bool:
        """See FileSystem."""
        with self._lock:
            return self._files.pop(path, None) is not None

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        with self._lock:
            prefix = path + "/"
            self._dirs = {name for name in self._dirs if name != path and not name.startswith(prefix)}
            self._files = {name: node for name, node in self._files.items() if not name.startswith(prefix)}
            # Why also these: after a crash they would be in no directory, or in a new one of that name.
            self._durable_names = {
                name: inode for name, inode in self._durable_names.items() if not name.startswith(prefix)
            }

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        with self._lock:
            for name in [name for name in self._durable_names if _parent(name) == path]:
                del self._durable_names[name]
            for name, inode in self._files.items():
                if _parent(name) == path:
                    self._durable_names[name] = inode

    def lock(self, path: str) -> DirectoryLock:
        """See FileSystem."""
        with self._lock:
            if path in self._held:
                raise BlockingIOError(errno.EAGAIN, "the lock is held", path)
            self._inode(path, create=True)
            self._held.add(path)
            return _MemoryLock(self._held, path)

    def usage(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        return 1 << 40, 1 << 39

    def crash(self, chance: random.Random | None = None, *, names_survive: bool = True) -> Self:
        """Return the disk after a power failure; this one does not change.

        `names_survive` keeps files whose directory was not fsynced, with their durable content, as a journalling file
        system usually does.
        """
        after = type(self)()
        after._boots = self._boots + 1
        with self._lock:
            after._dirs = set(self._dirs)
            names = self._files if names_survive else self._durable_names
            for name, inode in names.items():
                survivor = _Inode()
                survivor.content = bytearray(_surviving(inode, chance))
                survivor.durable = bytes(survivor.content)
                after._files[name] = survivor
            after._durable_names = dict(after._files)
        return after

    def kill(self) -> Self:
        """Return the disk after kill -9 of the process: the page cache survives, locks are released."""
        after = type(self)()
        after._boots = self._boots
        with self._lock:
            after._dirs = set(self._dirs)
            for name, inode in self._files.items():
                copy = after._files[name] = _Inode()
                copy.content = bytearray(inode.content)
                copy.durable = inode.durable
            after._durable_names = {name: after._files[name] for name in self._durable_names if name in after._files}
        return after


def _surviving(inode: _Inode, chance: random.Random | None) -> bytes:
    if chance is None or bytes(inode.content[: len(inode.durable)]) != inode.durable:
        return inode.durable
    return bytes(inode.content[: chance.randint(len(inode.durable), len(inode.content))])


class DiskFaultError(OSError):
    """The injected fault of a `FaultyFileSystem`."""


class FaultyFileSystem:
    """Another file system whose N-th changing operation fails.

    `fail_at` counts from 1; 0 never fails. `operations` is the number so far: a test can run once without a fault, and
    then fail each operation in turn. Only operations for which `matches(operation, path)` is true are counted.
    """

    def __init__(
        self,
        inner: FileSystem,
        *,
        fail_at: int = 0,
        sticky: bool = True,
        matches: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.operations = 0  # guarded by: _lock
        self._sticky = sticky
        self._matches = matches
        self._lock = threading.Lock()

    @property
    def open_files(self) -> OpenFiles:
        """See FileSystem."""
        return self.inner.open_files

    @property
    def open_maps(self) -> OpenFiles:
        """See FileSystem."""
        return self.inner.open_maps

    def boot_id(self) -> str:
        """See FileSystem."""
        return self.inner.boot_id()

    def map(self, path: str, size: int) -> FileMap:
        """See FileSystem."""
        return self.inner.map(path, size)

    def step(self, operation: str, path: str) -> None:
        """Count one operation; raises DiskFaultError if it must fail."""
        if self._matches is not None and not self._matches(operation, path):
            return
        with self._lock:
            self.operations += 1
            count = self.operations
        if self.fail_at and (count == self.fail_at or (self._sticky and count > self.fail_at)):
            raise DiskFaultError(errno.EIO, f"injected fault: {operation}", path)

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        if create and not self.inner.exists(path):
            self.step("create", path)
        return _FaultyFile(self, self.inner.open(path, create=create))

    def read_bytes(self, path: str) -> bytes:
        """See FileSystem."""
        return self.inner.read_bytes(path)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See FileSystem."""
        try:
            self.step("write", path)
        except DiskFaultError:
            self.inner.write_bytes(path, memoryview(data)[: len(data) // 2], sync=False)
            raise
        self.inner.write_bytes(path, data, sync=False)
        if sync:
            self.step("fsync", path)
            self.inner.write_bytes(path, data, sync=True)

    def atomic_write(self, path: str, data: Buffer) -> None:
        """See FileSystem."""
        replace_atomically(self, path, data)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return self.inner.is_dir(path)

    def size(self, path: str) -> int:
        """See FileSystem."""
        return self.inner.size(path)

    def mtime_ms(self, path: str) -> int:
        """See FileSystem."""
        return self.inner.mtime_ms(path)

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See FileSystem."""
        self.step("set_mtime", path)
        self.inner.set_mtime_ms(path, mtime_ms)

    def listdir(self, path: str) -> list[Entry]:
        """See FileSystem."""
        return self.inner.listdir(path)

    def mkdir(self, path: str) -> bool:
        """See FileSystem."""
        self.step("mkdir", path)
        return self.inner.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        self.step("rename", target)
        self.inner.rename(source, target)

    def unlink(self, path: str) -> bool:
        """See FileSystem."""
        self.step("unlink", path)
        return self.inner.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        self.step("remove_tree", path)
        self.inner.remove_tree(path)

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.step("fsync_dir", path)
        self.inner.fsync_dir(path)

    def lock(self, path: str) -> DirectoryLock:
        """See FileSystem."""
        return self.inner.lock(path)

    def usage(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        return self.inner.usage(path)


class _FaultyFile:
    """A handle that reports each change to its file system first."""

    __slots__ = ("_disk", "_inner")

    def __init__(self, disk: FaultyFileSystem, inner: FileHandle) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> str:
        """See FileHandle."""
        return self._inner.path

    def pread(self, size: int, position: int) -> bytes:
        """See FileHandle."""
        return self._inner.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """See FileHandle."""
        try:
            self._disk.step("write", self.path)
        except DiskFaultError:
            self._inner.pwrite(memoryview(data)[: len(data) // 2], position)
            raise
        self._inner.pwrite(data, position)

    def truncate(self, size: int) -> None:
        """See FileHandle."""
        self._disk.step("truncate", self.path)
        self._inner.truncate(size)

    def fsync(self) -> None:
        """See FileHandle."""
        self._disk.step("fsync", self.path)
        self._inner.fsync()

    def size(self) -> int:
        """See FileHandle."""
        return self._inner.size()

    def preallocate(self, size: int) -> None:
        """See FileHandle."""
        self._disk.step("preallocate", self.path)
        self._inner.preallocate(size)

    def read_ahead(self) -> None:
        """See FileHandle."""
        self._inner.read_ahead()

    def slice(self, position: int, size: int) -> FileSlice:
        """See FileHandle."""
        return self._inner.slice(position, size)

    def close(self) -> None:
        """See FileHandle."""
        self._inner.close()
