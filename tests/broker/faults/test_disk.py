"""Slow, broken and full disks."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.broker.faults.armed import Armed
from barnabas.broker.faults.disk import OPERATIONS_OF, FaultableFileSystem
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.faults.definition import Fault


@pytest.fixture
def disk() -> FaultableFileSystem:
    made = FaultableFileSystem(MemoryFileSystem())
    made.mkdir("/d/t-0")
    made.mkdir("/d/t-1")
    made.write_bytes("/d/t-0/log", b"0123456789", sync=True)
    return made


def suffer(disk: FaultableFileSystem, clock: FakeClock | None = None, **fault: Any) -> Armed:
    armed = Armed("f1", Fault(**fault), clock or FakeClock())
    disk.add(armed)
    return armed


def attempt(disk: FaultableFileSystem, operation: str, path: str = "/d/t-0/log") -> str | None:
    """Run an operation on the disk; return the name of its error, if there is one."""
    deeds = {
        "read": lambda: disk.open(path).pread(4, 0),
        "slice": lambda: disk.open(path).slice(0, 4).read(),
        "read_bytes": lambda: disk.read_bytes(path),
        "write": lambda: disk.open(path).pwrite(b"ab", 0),
        "fsync": lambda: disk.open(path).fsync(),
        "create": lambda: disk.open(path + ".new", create=True),
        "rename": lambda: disk.rename(path, path),
        "delete": lambda: disk.unlink(path + ".nothing"),
        "truncate": lambda: disk.open(path).truncate(10),
        "preallocate": lambda: disk.open(path).preallocate(10),
        "atomic_write": lambda: disk.atomic_write(path, b"0123456789"),
    }
    try:
        deeds[operation]()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return None


@pytest.mark.parametrize(
    ("operations", "failing"),
    [
        (None, {"read", "slice", "read_bytes", "write", "fsync", "create", "rename", "delete"}),
        (["read"], {"read", "slice", "read_bytes"}),
        (["write"], {"write", "truncate", "preallocate", "atomic_write"}),
        (["fsync"], {"fsync", "atomic_write"}),
        (["create", "rename"], {"create", "rename", "atomic_write"}),
        (["delete"], {"delete"}),
    ],
)
def test_errors_by_operation(disk: FaultableFileSystem, operations: list[str] | None, failing: set[str]) -> None:
    armed = suffer(disk, disk_error="EIO", operations=operations)
    every = {"read", "slice", "read_bytes", "write", "fsync", "create", "rename", "delete"}
    every |= failing
    assert {operation for operation in every if attempt(disk, operation) == "EIO"} == failing
    disk.remove(armed)
    assert {operation for operation in every if attempt(disk, operation)} == set()


def test_every_operation_of_the_file_layer_is_mapped(disk: FaultableFileSystem) -> None:
    steps = ("create", "write", "fsync", "set_mtime", "mkdir", "rename", "unlink", "remove_tree", "fsync_dir")
    assert {*steps, "truncate", "preallocate", "read"} == OPERATIONS_OF.keys()


def test_a_fault_matches_the_paths_of_its_pattern(disk: FaultableFileSystem) -> None:
    disk.write_bytes("/d/t-1/log", b"", sync=False)
    suffer(disk, disk_error="EROFS", path="*/t-0/*")
    assert attempt(disk, "write") == "EROFS"
    assert attempt(disk, "write", "/d/t-1/log") is None


def test_a_full_disk_accepts_nothing_but_deletions(disk: FaultableFileSystem) -> None:
    total, usable = disk.usage("/d")
    armed = suffer(disk, disk_full=True)
    assert {deed: attempt(disk, deed) for deed in ("write", "create", "preallocate", "atomic_write")} == dict.fromkeys(
        ("write", "create", "preallocate", "atomic_write"), "ENOSPC"
    )
    assert {attempt(disk, deed) for deed in ("read", "fsync", "rename", "delete", "truncate")} == {None}
    assert disk.usage("/d") == (total, 0)
    assert armed.trigger.fired == 4
    disk.remove(armed)
    assert disk.usage("/d") == (total, usable)
    assert attempt(disk, "write") is None


def test_a_failing_write_leaves_a_part(disk: FaultableFileSystem) -> None:
    suffer(disk, disk_full=True, path="*log")
    assert attempt(disk, "write") == "ENOSPC"
    assert disk.read_bytes("/d/t-0/log")[:2] == b"a1"


def test_a_slow_disk_is_slow_until_the_fault_is_removed(disk: FaultableFileSystem) -> None:
    armed = suffer(disk, disk_delay_ms=1, operations=["fsync"], times=2)
    for _ in range(3):
        assert attempt(disk, "fsync") is None
    assert (armed.trigger.fired, armed.describe()["events"][0]["operation"]) == (2, "fsync")
    slow = suffer(disk, disk_delay_ms=3_600_000, operations=["write"])
    slow.remove()
    assert attempt(disk, "write") is None, "what is removed delays nobody"


def test_a_fault_of_the_disk_has_its_time(disk: FaultableFileSystem) -> None:
    clock = FakeClock()
    suffer(disk, clock, disk_full=True, after_ms=100, for_ms=100)
    told = []
    for _ in range(3):
        told.append((attempt(disk, "write"), disk.usage("/d")[1] == 0))
        clock.advance_ms(100)
    assert told == [(None, False), ("ENOSPC", True), (None, False)]
