"""Tests disk_faults.py, and what disk.py does with it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from barnabas.testing.simulation.machine.disk import SimulatedDisk
from barnabas.testing.simulation.machine.disk_faults import FLUSH, READ, WRITE, Failing, torn
from barnabas.testing.simulation.machine.scheduler import NS_PER_S
from tests.barnabas.testing.simulation.machine.conftest import Machine


def fails(number: int, operation: Callable[[], object]) -> None:
    with pytest.raises(OSError) as raised:
        operation()
    assert raised.value.errno == number


def disk_with(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir("/a")
    disk.write_bytes("/a/log", content, sync=False)
    return disk


def test_a_full_disk_takes_what_fits(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    file = disk.open("/a/log")
    disk.faults.fill(4)
    assert disk.usage("/a")[1] == 0
    file.pwrite(b"x" * 10, 0)
    fails(errno.ENOSPC, lambda: file.pwrite(b"y" * 8, 8))
    assert disk.read_bytes("/a/log") == b"x" * 8 + b"y" * 6
    fails(errno.ENOSPC, lambda: disk.open("/a/other", create=True))
    fails(errno.ENOSPC, lambda: disk.mkdir("/b"))
    fails(errno.ENOSPC, lambda: disk.write_bytes("/a/log", b"z" * 15, sync=False))
    assert disk.read_bytes("/a/log") == b"z" * 14
    assert disk.faults.hits == 4


def test_what_is_removed_gives_its_space_back(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    disk.write_bytes("/a/other", b"01234", sync=False)
    disk.faults.fill(0)
    disk.unlink("/a/other")
    disk.open("/a/log").truncate(8)
    disk.write_bytes("/a/new", b"0123456", sync=False)
    fails(errno.ENOSPC, lambda: disk.write_bytes("/a/newer", b"0", sync=False))
    disk.remove_tree("/a")
    disk.mkdir("/b")
    disk.faults.repair()
    disk.write_bytes("/b/log", b"0" * 100, sync=False)


def test_operations_fail_below_a_path(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    disk.mkdir("/b")
    disk.faults.fail(Failing("/a", frozenset({READ, WRITE, FLUSH}), 1.0))
    disk.write_bytes("/b/log", b"0", sync=True)
    fails(errno.EIO, lambda: disk.open("/a/log"))
    fails(errno.EIO, lambda: disk.read_bytes("/a/log"))
    fails(errno.EIO, lambda: disk.map("/a/log", 5))
    fails(errno.EIO, lambda: disk.listdir("/a"))
    fails(errno.EIO, lambda: disk.rename("/a/log", "/a/new"))
    fails(errno.EIO, lambda: disk.unlink("/a/log"))
    fails(errno.EIO, lambda: disk.fsync_dir("/a"))


def test_handles_fail_that_were_open_before(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    file, mapped = disk.open("/a/log"), disk.map("/a/log", 5)
    disk.faults.fail(Failing("/a", frozenset({READ, WRITE, FLUSH}), 1.0))
    fails(errno.EIO, lambda: file.pread(1, 0))
    fails(errno.EIO, lambda: mapped.read(1, 0))
    fails(errno.EIO, lambda: file.pwrite(b"0", 0))
    fails(errno.EIO, lambda: file.truncate(0))
    fails(errno.EIO, lambda: file.slice(0, 1))
    fails(errno.EIO, file.fsync)


def test_a_failed_flush_makes_nothing_durable(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    disk.faults.fail(Failing("/a", frozenset({FLUSH}), 1.0))
    fails(errno.EIO, disk.open("/a/log").fsync)
    assert disk.crash().read_bytes("/a/log") == b""


def test_a_slow_disk_takes_seconds(machine: Machine) -> None:
    disk = disk_with(b"0")
    disk.faults.slow_down(1000 * NS_PER_S)

    def body() -> None:
        disk.open("/a/log").fsync()

    machine.run(body)
    assert machine.scheduler.now_ns > 3 * NS_PER_S


def test_faults_stay_when_a_process_ends(machine: Machine) -> None:
    disk = disk_with(b"0")
    disk.faults.fill(0)
    assert disk.kill().faults.is_full
    assert disk.crash(random.Random(1)).faults.is_full


def test_a_torn_file_has_old_and_new_sectors() -> None:
    old, new = b"a" * 20_000, b"b" * 30_000
    results = [torn(new, old, random.Random(seed)) for seed in range(300)]
    assert {20_000, 30_000} <= {len(each) for each in results}
    assert old in results
    for result in results:
        sectors = {result[begin : begin + 512][:100] for begin in range(0, 20_000 - 512, 512)}
        assert sectors <= {b"a" * 100, b"b" * 100}
        assert set(result[20_000:]) <= set(b"\0b")
    mixed = [each for each in results if b"a" in each and b"b" in each[:20_000]]
    assert any(each.index(b"b") < each.rindex(b"a") for each in mixed)


def test_a_torn_tail_may_be_a_prefix() -> None:
    old, new = b"a" * 10, b"a" * 10 + bytes(range(100))
    results = {torn(new, old, random.Random(seed)) for seed in range(300)}
    assert all(len(old) <= len(each) <= len(new) for each in results)
    assert sum(new.startswith(each) for each in results) > 20
    assert torn(new, new, random.Random(1)) == new


def test_unflushed_names_of_a_directory_survive_together(machine: Machine) -> None:
    disk = disk_with(b"")
    disk.write_bytes("/a/old", b"0", sync=True)
    disk.fsync_dir("/a")
    disk.rename("/a/old", "/a/new")
    names = {tuple(entry.name for entry in disk.crash(random.Random(seed)).listdir("/a")) for seed in range(50)}
    assert names == {("log", "new"), ("log", "old")}


def test_emptied_files(machine: Machine) -> None:
    disk = disk_with(b"0123456789")
    disk.empty(["/a/log"])
    assert disk.files() == ["/a/log"]
    assert disk.read_bytes("/a/log") == disk.crash().read_bytes("/a/log") == b""
