"""The three file systems have one contract; that of the OS shares descriptors with slices."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import FileSystem, OsFileSystem


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "os":
        return OsFileSystem(), str(tmp_path)
    fs = MemoryFileSystem()
    fs.mkdir("/data")
    return fs, "/data"


def test_positional_reads_and_writes(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    handle = fs.open(f"{root}/a", create=True)
    handle.pwrite(b"hello", 0)
    handle.pwrite(memoryview(b"world"), 7)
    assert handle.pread(100, 0) == b"hello\0\0world"
    assert handle.pread(3, 7) == b"wor"
    assert handle.pread(3, 99) == b""
    handle.truncate(5)
    handle.fsync()
    assert (handle.size(), fs.size(f"{root}/a"), fs.read_bytes(f"{root}/a")) == (5, 5, b"hello")
    handle.preallocate(10)
    handle.read_ahead()
    assert handle.pread(10, 0) == b"hello" + bytes(5)
    handle.close()
    handle.close()
    handle.read_ahead()
    with pytest.raises(OSError):
        handle.pread(1, 0)


def test_a_slice_outlives_closing_and_deleting(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    handle = fs.open(f"{root}/a", create=True)
    handle.pwrite(b"0123456789", 0)
    kept = handle.slice(2, 5)
    handle.close()
    assert fs.unlink(f"{root}/a")
    part = kept.part(1, 3)
    assert (kept.position, kept.size, kept.read()) == (2, 5, b"23456")
    del kept
    assert (part.position, part.size, part.read()) == (3, 3, b"345")


def test_names_and_directories(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    assert fs.mkdir(f"{root}/d/e")
    assert not fs.mkdir(f"{root}/d/e")
    fs.write_bytes(f"{root}/d/b", b"bb", sync=True)
    fs.atomic_write(f"{root}/d/a", b"a")
    fs.atomic_write(f"{root}/d/a", b"aaa")
    assert [(e.name, e.is_dir, e.size) for e in fs.listdir(f"{root}/d")] == [
        ("a", False, 3),
        ("b", False, 2),
        ("e", True, 0),
    ]
    fs.rename(f"{root}/d/a", f"{root}/d/b")
    assert fs.read_bytes(f"{root}/d/b") == b"aaa"
    fs.rename(f"{root}/d", f"{root}/f")
    assert (fs.is_dir(f"{root}/d"), fs.exists(f"{root}/f/b")) == (False, True)
    fs.fsync_dir(f"{root}/f")
    fs.remove_tree(f"{root}/f")
    fs.remove_tree(f"{root}/f")
    assert not fs.exists(f"{root}/f/b")
    assert not fs.unlink(f"{root}/f/b")
    assert fs.usage(root)[0] > 0


@pytest.mark.parametrize(
    "job",
    [
        lambda fs, path: fs.open(path),
        lambda fs, path: fs.size(path),
        lambda fs, path: fs.read_bytes(path),
        lambda fs, path: fs.rename(path, path + "x"),
        lambda fs, path: fs.listdir(path),
        lambda fs, path: fs.mtime_ms(path),
    ],
)
def test_a_missing_file_is_an_error(disk: tuple[FileSystem, str], job: Callable[[FileSystem, str], object]) -> None:
    with pytest.raises(FileNotFoundError):
        job(disk[0], f"{disk[1]}/missing")


def test_a_lock_is_exclusive(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    held = fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")
    held.release()
    fs.lock(f"{root}/.lock").release()


def test_the_last_reference_closes_the_descriptor(tmp_path: Path) -> None:
    handle = OsFileSystem().open(str(tmp_path / "a"), create=True)
    kept = handle.slice(0, 0)
    fd = kept.fileno()
    handle.close()
    os.fstat(fd)
    del kept
    with pytest.raises(OSError):
        os.fstat(fd)


def test_new_files_are_not_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "new"
    OsFileSystem().write_bytes(str(path), b"secret", sync=False)
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def test_the_boot_id_is_the_kernels() -> None:
    fs = OsFileSystem()
    assert fs.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert len(fs.boot_id()) == 36
    memory = MemoryFileSystem()
    assert memory.kill().boot_id() == memory.boot_id() != memory.crash().boot_id()


def test_a_tree_is_removed_without_what_its_links_lead_to(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    (kept / "file").touch()
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "file").touch()
    (tree / "link").symlink_to(kept)
    OsFileSystem().remove_tree(str(tree))
    assert not tree.exists()
    (tmp_path / "link").symlink_to(kept)
    with pytest.raises(OSError, match="a link"):
        OsFileSystem().remove_tree(str(tmp_path / "link"))
    assert (kept / "file").exists()
