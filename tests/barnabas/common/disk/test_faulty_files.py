"""The memory disk loses unsynced data in a power failure; the faulty disk fails the chosen operation."""

from __future__ import annotations

import random

import pytest

from barnabas.common.disk.faulty_files import DiskFaultError, FaultyFileSystem, MemoryFileSystem


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    return fs


def test_a_power_failure_drops_unsynced_data() -> None:
    fs = disk()
    handle = fs.open("/d/a", create=True)
    handle.pwrite(b"safe", 0)
    handle.fsync()
    fs.fsync_dir("/d")
    handle.pwrite(b"lost", 4)
    fs.write_bytes("/d/new", b"x", sync=True)
    assert fs.crash().read_bytes("/d/a") == b"safe"
    assert not fs.crash(names_survive=False).exists("/d/new")
    assert fs.crash(names_survive=False).read_bytes("/d/a") == b"safe"
    assert fs.read_bytes("/d/a") == b"safelost", "the running disk is left alone"


def test_a_power_failure_may_tear_the_unsynced_tail() -> None:
    fs = disk()
    handle = fs.open("/d/a", create=True)
    handle.pwrite(b"safe", 0)
    handle.fsync()
    handle.pwrite(b"torn", 4)
    seen = {fs.crash(random.Random(seed)).read_bytes("/d/a") for seed in range(50)}
    assert seen == {b"safe", b"safet", b"safeto", b"safetor", b"safetorn"}


def test_a_killed_process_keeps_the_page_cache_and_releases_locks() -> None:
    fs = disk()
    fs.lock("/d/.lock")
    fs.open("/d/a", create=True).pwrite(b"kept", 0)
    after = fs.kill()
    assert after.read_bytes("/d/a") == b"kept"
    after.lock("/d/.lock")


def test_atomic_write_is_old_or_new_at_every_fault() -> None:
    counted = FaultyFileSystem(disk())
    counted.atomic_write("/d/a", b"new content")
    for fail_at in range(1, counted.operations + 1):
        inner = disk()
        inner.atomic_write("/d/a", b"old")
        with pytest.raises(DiskFaultError):
            FaultyFileSystem(inner, fail_at=fail_at).atomic_write("/d/a", b"new content")
        for after in (inner.crash(), inner.crash(names_survive=False), inner.kill()):
            assert after.read_bytes("/d/a") in (b"old", b"new content")


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
def test_an_atomic_write_that_fails_leaves_nothing_on_a_full_disk(operation: str) -> None:
    inner = disk()
    inner.atomic_write("/d/a", b"old")
    with pytest.raises(DiskFaultError):
        FaultyFileSystem(inner, fail_at=1, matches=lambda each, _: each == operation).atomic_write("/d/a", b"new")
    assert [(entry.name, entry.size) for entry in inner.listdir("/d")] == [("a", 3)]
    assert inner.read_bytes("/d/a") == b"old"


def test_a_failing_write_writes_a_part() -> None:
    inner = disk()
    handle = FaultyFileSystem(inner, fail_at=2).open("/d/a", create=True)
    with pytest.raises(DiskFaultError):
        handle.pwrite(b"12345678", 0)
    assert inner.read_bytes("/d/a") == b"1234"
    with pytest.raises(DiskFaultError):
        handle.fsync()


def test_a_fault_that_is_not_sticky() -> None:
    fs = FaultyFileSystem(disk(), fail_at=1, sticky=False, matches=lambda operation, _path: operation == "fsync")
    handle = fs.open("/d/a", create=True)
    with pytest.raises(DiskFaultError):
        handle.fsync()
    handle.fsync()
