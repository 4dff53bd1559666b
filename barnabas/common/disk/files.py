"""Files: the only module that opens one, so that tests can replace the disk by memory or by a failing disk.

Rules
1. Every file of a data directory goes through a `FileSystem`. `OsFileSystem` is the real one; `MemoryFileSystem` and
   `FaultyFileSystem` are in `barnabas/common/disk/faulty_files.py`.
2. A `FileHandle` is positional: `pread` and `pwrite` take the position, so threads can share a handle without seeks.
3. Handles and `FileSlice`s share a descriptor, which closes when the last of them drops it. A slice that is being sent
   therefore stays readable after its segment was closed, renamed or deleted.
4. Data that must survive a crash is written with `atomic_write` (temporary file, fsync, rename, fsync of the directory)
   or fsynced by its writer.

*Threads*: any; a handle's owner (a log, under its lock) is its only writer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import Final, Protocol

from barnabas.common.disk.file_maps import FileMap, map_descriptor
from barnabas.common.disk.open_files import OpenFiles, limit_of_maps

Buffer = bytes | bytearray | memoryview

#: Of a file that is being written, and replaces another one; a kill can leave it.
TEMPORARY_SUFFIX: Final = ".tmp"
#: Of new files: data is for the owner and its group. The metadata log holds passwords that were set at run time.
_MODE: Final = 0o640
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Entry:
    """A directory entry as plain values; `size` is in bytes, 0 for a directory."""

    __slots__ = ("is_dir", "name", "size")

    def __init__(self, name: str, is_dir: bool, size: int) -> None:
        self.name = name
        self.is_dir = is_dir
        self.size = size


class FileHandle(Protocol):
    """An open file."""

    @property
    def path(self) -> str:
        """The path it was opened by; it may have been renamed since."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`; after an OSError, part of the data may have been written."""

    def truncate(self, size: int) -> None:
        """Truncate (or extend with zeros) to `size` bytes."""

    def fsync(self) -> None:
        """Flush written data to the disk, where it survives a power failure."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def preallocate(self, size: int) -> None:
        """Reserve `size` bytes, reading as zeros."""

    def read_ahead(self) -> None:
        """Expect reads of one piece after the other."""

    def slice(self, position: int, size: int) -> FileSlice:
        """Return a `FileSlice`, which keeps the file open."""

    def close(self) -> None:
        """Drop the descriptor; a second call does nothing."""


class FileSlice(Protocol):
    """`size` bytes at `position` of a file, for sendfile without a copy through user space."""

    @property
    def position(self) -> int:
        """The offset of the first byte in the file."""
        ...

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def fileno(self) -> int:
        """Return a descriptor for `os.sendfile`; valid while the slice exists."""

    def read(self) -> bytes:
        """Return the bytes, for callers that need them in memory."""

    def part(self, start: int, size: int) -> FileSlice:
        """Return `size` of these bytes, from the one with index `start` on."""


class DirectoryLock(Protocol):
    """A lock between processes."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class FileSystem(Protocol):
    """The operations that storage needs. Paths are absolute strings; errors are OSError."""

    @property
    def open_files(self) -> OpenFiles:
        """The holders of open files, within the process's limit."""

    @property
    def open_maps(self) -> OpenFiles:
        """The holders of mapped files, within the process's limit."""

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """Open for reading and writing; raises FileNotFoundError unless `create`."""

    def map(self, path: str, size: int) -> FileMap:
        """Map up to `size` first bytes of a file; raises FileNotFoundError."""

    def read_bytes(self, path: str) -> bytes:
        """Read a whole small file."""

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Write a whole file in place (not atomic)."""

    def atomic_write(self, path: str, data: Buffer) -> None:
        """Replace a file so that a crash leaves either the old or the new content."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory."""
        ...

    def is_dir(self, path: str) -> bool:
        """Return whether there is a directory."""
        ...

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raises FileNotFoundError."""

    def mtime_ms(self, path: str) -> int:
        """Return the last modification time in milliseconds since the epoch."""

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the last modification time."""

    def listdir(self, path: str) -> list[Entry]:
        """Return the entries of a directory, sorted by name."""

    def mkdir(self, path: str) -> bool:
        """Create a directory and its parents; False if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Move atomically, replacing a file at `target`."""

    def unlink(self, path: str) -> bool:
        """Remove a file; False if there was none."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content; no effect if it does not exist."""

    def fsync_dir(self, path: str) -> None:
        """Flush the names in a directory to the disk, where they survive a power failure."""

    def boot_id(self) -> str:
        """Return what changes when the machine starts anew, and the page cache is lost; empty if that is not known."""

    def lock(self, path: str) -> DirectoryLock:
        """Take the exclusive lock of a lock file; raises BlockingIOError if another process holds it."""

    def usage(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume that holds `path`."""


class _Descriptor:
    """An OS descriptor that closes when the last handle or slice drops it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd  # fixed before start

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.fd)


class OsFileSlice:
    """A `FileSlice` of a real file."""

    __slots__ = ("_descriptor", "position", "size")

    def __init__(self, descriptor: _Descriptor, position: int, size: int) -> None:
        self._descriptor = descriptor
        self.position = position
        self.size = size

    def fileno(self) -> int:
        """See FileSlice."""
        return self._descriptor.fd

    def read(self) -> bytes:
        """See FileSlice."""
        return _pread_fully(self._descriptor.fd, self.size, self.position)

    def part(self, start: int, size: int) -> OsFileSlice:
        """See FileSlice."""
        return OsFileSlice(self._descriptor, self.position + start, size)


class OsFile:
    """A `FileHandle` of a real file."""

    __slots__ = ("_descriptor", "_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._descriptor: _Descriptor | None = _Descriptor(fd)  # owner: the thread that closes it
        self._fd = fd  # -1 once closed

    def pread(self, size: int, position: int) -> bytes:
        """See FileHandle."""
        # Why a local: it keeps the descriptor open, and its number from being reused, during the read.
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        try:
            return _pread_fully(descriptor.fd, size, position)
        except OSError as error:
            _name(error, self.path)
            raise

    def pwrite(self, data: Buffer, position: int) -> None:
        """See FileHandle."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                _pwrite_rest(self._fd, data, position, written)
        except OSError as error:
            _name(error, self.path)
            raise

    def truncate(self, size: int) -> None:
        """See FileHandle."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            _name(error, self.path)
            raise

    def fsync(self) -> None:
        """See FileHandle."""
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        try:
            os.fsync(descriptor.fd)
        except OSError as error:
            _name(error, self.path)
            raise

    def size(self) -> int:
        """See FileHandle."""
        return os.fstat(self._fd).st_size

    def preallocate(self, size: int) -> None:
        """See FileHandle."""
        os.ftruncate(self._fd, size)

    def read_ahead(self) -> None:
        """See FileHandle; the kernel then reads twice as far ahead."""
        if not hasattr(os, "posix_fadvise"):  # as on macOS
            return
        try:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        except OSError:  # Why ignored: it is advice, and not every file system takes it
            return

    def slice(self, position: int, size: int) -> FileSlice:
        """See FileHandle."""
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return OsFileSlice(descriptor, position, size)

    def close(self) -> None:
        """See FileHandle."""
        self._fd = -1
        self._descriptor = None


def _name(error: OSError, path: str) -> None:
    """Add the path to an error of a descriptor."""
    if error.filename is None:
        error.filename = path


def _pread_fully(fd: int, size: int, position: int) -> bytes:
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    total = len(data)
    while total < size:
        data = os.pread(fd, size - total, position + total)
        if not data:
            break
        parts.append(data)
        total += len(data)
    return b"".join(parts)


def _pwrite_rest(fd: int, data: Buffer, position: int, written: int) -> None:
    """Finish a short write (a nearly full disk, a signal)."""
    view = memoryview(data)
    while written < len(view):
        count = os.pwrite(fd, view[written:], position + written)
        if count == 0:
            raise OSError(errno.EIO, "a write made no progress")
        written += count


class _OsLock:
    """An flock on a lock file; the file is never removed."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """See DirectoryLock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The machine's files."""

    __slots__ = ("open_files", "open_maps")

    def __init__(self) -> None:
        self.open_files = OpenFiles()  # fixed before start
        self.open_maps = OpenFiles(limit_of_maps())  # fixed before start

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        return OsFile(path, self._open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def map(self, path: str, size: int) -> FileMap:
        """See FileSystem."""
        fd = self._open(path, os.O_RDONLY)
        try:
            return map_descriptor(fd, size)
        except OSError as error:
            _name(error, path)
            raise
        finally:
            os.close(fd)

    def _open(self, path: str, flags: int) -> int:
        """Open a file; without free descriptors, let other holders drop theirs and try again."""
        try:
            return os.open(path, flags | os.O_CLOEXEC, _MODE)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        self.open_files.shrink()
        return os.open(path, flags | os.O_CLOEXEC, _MODE)

    def read_bytes(self, path: str) -> bytes:
        """See FileSystem."""
        fd = self._open(path, os.O_RDONLY)
        try:
            return _pread_fully(fd, os.fstat(fd).st_size, 0)
        except OSError as error:
            _name(error, path)
            raise
        finally:
            os.close(fd)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See FileSystem."""
        fd = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _pwrite_rest(fd, data, 0, 0)
            if sync:
                os.fsync(fd)
        except OSError as error:
            _name(error, path)
            raise
        finally:
            os.close(fd)

    def atomic_write(self, path: str, data: Buffer) -> None:
        """See FileSystem."""
        replace_atomically(self, path, data)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """See FileSystem."""
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """See FileSystem."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See FileSystem."""
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def listdir(self, path: str) -> list[Entry]:
        """See FileSystem."""
        entries = []
        with os.scandir(path) as scan:
            for found in scan:
                try:
                    is_dir = found.is_dir()
                    entries.append(Entry(found.name, is_dir, 0 if is_dir else found.stat().st_size))
                except FileNotFoundError:
                    continue  # removed by another thread since
        entries.sort(key=lambda entry: entry.name)
        return entries

    def mkdir(self, path: str) -> bool:
        """See FileSystem."""
        try:
            try:
                os.mkdir(path)
            except FileNotFoundError:  # of a parent; one that is there and refuses (/proc) raises it again
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mkdir(path)
            return True
        except FileExistsError:
            if os.path.isdir(path):
                return False
            raise

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        os.replace(source, target)

    def unlink(self, path: str) -> bool:
        """See FileSystem."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        # Why not shutil.rmtree: that module loads readers of archives.
        if os.path.islink(path):
            raise OSError(errno.ENOTDIR, "not a directory, but a link", path)
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(path)):
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
            os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            _name(error, path)
            raise
        finally:
            os.close(fd)

    def boot_id(self) -> str:
        """See FileSystem."""
        # Why not `read_bytes`: the kernel's files have no size.
        with contextlib.suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
        return ""

    def lock(self, path: str) -> DirectoryLock:
        """See FileSystem."""
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return _OsLock(fd)

    def usage(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize


def replace_atomically(fs: FileSystem, path: str, data: Buffer) -> None:
    """Write `path`.tmp, fsync it, rename it over `path`, fsync the directory."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        fs.write_bytes(temporary, data, sync=True)
        fs.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(temporary)  # Why: on a full disk it would take what others need
        raise
    fs.fsync_dir(os.path.dirname(path))
