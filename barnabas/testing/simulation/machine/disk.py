"""The disk of a simulated process: `MemoryFileSystem` with time, descriptors and faults.

A flush takes time, in which other tasks run. Unflushed data may be lost when the machine loses power (`crash`), and
survives when only the process is killed (`kill`). `faults` has the faults of the disk (disk_faults.py).

Threads: any task.
"""

from __future__ import annotations

import os
import random
from typing import Any, Final, Self

from barnabas.common.disk.faulty_files import MemoryFile, MemoryFileSlice, MemoryFileSystem, MemoryMap
from barnabas.common.disk.file_maps import FileMap
from barnabas.common.disk.files import Buffer, FileHandle, FileSlice
from barnabas.testing.simulation.machine.disk_faults import FLUSH, READ, WRITE, DiskFaults, torn
from barnabas.testing.simulation.machine.network.polling import current_process
from barnabas.testing.simulation.machine.scheduler import active

FLUSH_NS: Final = 200_000
SLOW_FLUSH_NS: Final = 30_000_000
#: How often the unflushed names of a directory survive a power failure, as a journalling file system keeps them.
NAMES_SURVIVE_CHANCE: Final = 0.7


class SlicedFile:
    """The descriptor of a file from which slices are sent. It lasts as long as the process."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Any) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def pread(self, size: int, position: int) -> bytes:
        """See os.pread."""
        self._disk.faults.check(READ, self._path)
        return bytes(self._inode.content[position : position + size])

    def release(self) -> None:
        """See Descriptor."""


class SimulatedSlice(MemoryFileSlice):
    """A slice with a descriptor of the process."""

    __slots__ = ("_number",)

    def __init__(self, inode: Any, position: int, size: int, number: int) -> None:
        super().__init__(inode, position, size)
        self._number = number

    def fileno(self) -> int:
        """See FileSlice."""
        return self._number

    def part(self, start: int, size: int) -> SimulatedSlice:
        """See FileSlice."""
        return SimulatedSlice(self._inode, self.position + start, size, self._number)


class SimulatedMap(MemoryMap):
    """A map whose pages may be unreadable."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Any, size: int) -> None:
        super().__init__(inode, size)
        self._disk = disk
        self._path = path

    def read(self, size: int, position: int, /) -> bytes:
        """See FileMap."""
        self._disk.faults.check(READ, self._path)
        return super().read(size, position)


class SimulatedFile(MemoryFile):
    """A file whose flush takes time, and whose operations may fail."""

    __slots__ = ("_disk",)

    def __init__(self, disk: SimulatedDisk, path: str, inode: Any) -> None:
        super().__init__(path, inode, disk._lock)
        self._disk = disk

    def pread(self, size: int, position: int) -> bytes:
        """See FileHandle."""
        self._disk.faults.check(READ, self.path)
        return super().pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """See FileHandle."""
        if self._disk.faults.is_sound:
            super().pwrite(data, position)
        else:
            self._disk.before_write()
            self._pwrite_on_a_bad_disk(data, position)

    def _pwrite_on_a_bad_disk(self, data: Buffer, position: int) -> None:
        faults = self._disk.faults
        try:
            faults.check(WRITE, self.path)
        except OSError:
            super().pwrite(memoryview(data)[: faults.part(len(data))], position)
            raise
        grown = max(0, position + len(data) - len(self._open_inode().content))
        missing = grown - faults.grow(grown)
        super().pwrite(memoryview(data)[: max(0, len(data) - missing)], position)
        if missing:
            raise faults.out_of_space(self.path)

    def truncate(self, size: int) -> None:
        """See FileHandle."""
        faults = self._disk.faults
        if not faults.is_sound:
            faults.check(WRITE, self.path)
            faults.grow(min(0, size - len(self._open_inode().content)))
        super().truncate(size)

    def fsync(self) -> None:
        """See FileHandle."""
        # Why the content of now: what is written while the disk flushes need not be durable afterwards.
        inode = self._open_inode()
        content = bytes(inode.content)
        number = self._disk.begin_flush()
        self._disk.spend(self.path, len(content))
        self._disk.faults.check(FLUSH, self.path)
        self._disk.end_flush(inode, content, number)

    def preallocate(self, size: int) -> None:
        """See FileHandle."""
        self._disk.faults.check_space(self.path)
        super().preallocate(size)

    def slice(self, position: int, size: int) -> FileSlice:
        """See FileHandle."""
        self._disk.faults.check(READ, self.path)
        inode = self._open_inode()
        return SimulatedSlice(inode, position, size, self._disk.number_of(self.path, inode))


class SimulatedDisk(MemoryFileSystem):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._scheduler = active()
        self._random = random.Random(self._scheduler.random.random())
        self._slow_chance = self._random.choice((0.0, 0.01, 0.1))
        self._numbers: dict[Any, int] = {}  # inode -> descriptor
        self._flushes = 0  # begun
        self._flushed: dict[Any, int] = {}  # inode -> the number of the latest flush that ended
        self.faults = DiskFaults(self._random)  # replaced whole, by those of the disk before

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        faults = self.faults
        if not faults.is_sound:
            is_new = create and path not in self._files
            faults.check(WRITE if is_new else READ, path)
            if is_new:
                faults.check_space(path)
        with self._lock:
            return SimulatedFile(self, path, self._inode(path, create=create))

    def map(self, path: str, size: int) -> FileMap:
        """See FileSystem."""
        self.faults.check(READ, path)
        with self._lock:
            inode = self._inode(path)
            return SimulatedMap(self, path, inode, min(size, len(inode.content)))

    def read_bytes(self, path: str) -> bytes:
        """See FileSystem."""
        self.faults.check(READ, path)
        return super().read_bytes(path)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See FileSystem."""
        if self.faults.is_sound:
            super().write_bytes(path, data, sync=False)
        else:
            self._write_bytes_on_a_bad_disk(path, data)
        if sync:
            self.spend(path, len(data))
            self.faults.check(FLUSH, path)
            super().write_bytes(path, data, sync=True)

    def _write_bytes_on_a_bad_disk(self, path: str, data: Buffer) -> None:
        faults = self.faults
        self.before_write()
        try:
            faults.check(WRITE, path)
        except OSError:
            super().write_bytes(path, memoryview(data)[: faults.part(len(data))], sync=False)
            raise
        faults.grow(-len(self._files[path].content) if path in self._files else 0)
        fits = faults.grow(len(data))
        super().write_bytes(path, memoryview(data)[:fits], sync=False)
        if fits < len(data):
            raise faults.out_of_space(path)

    def listdir(self, path: str) -> list[Any]:
        """See FileSystem."""
        self.faults.check(READ, path)
        return super().listdir(path)

    def mkdir(self, path: str) -> bool:
        """See FileSystem."""
        if path not in self._dirs:
            self.faults.check(WRITE, path)
            self.faults.check_space(path)
        return super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        self.faults.check(WRITE, source)
        super().rename(source, target)

    def unlink(self, path: str) -> bool:
        """See FileSystem."""
        self.faults.check(WRITE, path)
        inode = self._files.get(path)
        if inode is not None:
            self.faults.grow(-len(inode.content))
        return super().unlink(path)

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        self.faults.check(WRITE, path)
        if self.faults.is_full:
            inside = [inode for name, inode in self._files.items() if name.startswith(path + "/")]
            self.faults.grow(-sum(len(inode.content) for inode in inside))
        super().remove_tree(path)

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.spend(path, 0)
        self.faults.check(FLUSH, path)
        super().fsync_dir(path)

    def usage(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        total, usable = super().usage(path)
        return total, 0 if self.faults.is_full else usable

    def kill(self) -> Self:
        """See MemoryFileSystem."""
        return self._succeeded_by(super().kill())

    def crash(self, chance: random.Random | None = None, *, names_survive: bool = True) -> Self:
        """Return the disk after a power failure, with the sectors and names that `chance` chose (disk_faults.py)."""
        if chance is None:
            return self._succeeded_by(super().crash(names_survive=names_survive))
        after = type(self)()
        after._dirs = set(self._dirs)
        has_new_names: dict[str, bool] = {}
        for path in dict.fromkeys((*self._files, *self._durable_names)):
            parent = os.path.dirname(path)
            if parent not in has_new_names:
                has_new_names[parent] = chance.random() < NAMES_SURVIVE_CHANCE
            names = self._files if has_new_names[parent] else self._durable_names
            if path in names and parent in self._dirs:
                inode = after._inode(path, create=True)
                inode.durable = torn(bytes(names[path].content), names[path].durable, chance)
                inode.content[:] = inode.durable
        after._durable_names = dict(after._files)
        return self._succeeded_by(after)

    def empty(self, paths: list[str]) -> None:
        """Truncate files to zero, as a file system does that has lost their blocks."""
        for path in paths:
            inode = self._files[path]
            inode.content.clear()
            inode.durable = b""

    def files(self) -> list[str]:
        """Return the paths of all files, for a view from outside."""
        return list(self._files)

    def written(self, path: str) -> bytes:
        """Return what was written to a file, for a view from outside."""
        return bytes(self._files[path].content)

    def flushed(self, path: str) -> bytes:
        """Return what a power failure would leave of a file at least, for a view from outside; empty without it."""
        inode = self._durable_names.get(path)
        return b"" if inode is None else bytes(inode.durable)

    def _succeeded_by(self, after: Self) -> Self:
        after.faults, after._random, after._slow_chance = self.faults, self._random, self._slow_chance
        return after

    def begin_flush(self) -> int:
        """Return the number of a flush that begins."""
        self._flushes += 1
        return self._flushes

    def end_flush(self, inode: Any, content: bytes, number: int) -> None:
        """Make the content durable that a file had when its flush began, unless a later flush ended before."""
        if number > self._flushed.get(inode, 0):
            self._flushed[inode] = number
            inode.durable = content

    def spend(self, path: str, size_bytes: int) -> None:
        """Take the time of a flush."""
        scheduler = self._scheduler
        task = scheduler.current
        if task is None:
            return
        scheduler.digest.note(scheduler.now_ns, f"{task.process.name} flush {path} {size_bytes}")
        is_slow = self._slow_chance and self._random.random() < self._slow_chance
        usual_ns = int(self._random.random() * (SLOW_FLUSH_NS if is_slow else FLUSH_NS))
        scheduler.sleep_ns(usual_ns + self.faults.flush_ns())

    def before_write(self) -> None:
        """Take the time of a write on a slow disk."""
        duration_ns = self.faults.write_ns()
        if duration_ns and self._scheduler.current is not None:
            self._scheduler.sleep_ns(duration_ns)

    def number_of(self, path: str, inode: Any) -> int:
        """Return the descriptor of a file whose slices are sent."""
        number = self._numbers.get(inode)
        if number is None:
            number = self._numbers[inode] = current_process().open(SlicedFile(self, path, inode))
        return number
