"""Tests disk.py, times.py and randomness.py."""

from __future__ import annotations

from barnabas.testing.simulation.machine import randomness, times
from barnabas.testing.simulation.machine.disk import SimulatedDisk
from barnabas.testing.simulation.machine.scheduler import NS_PER_S
from tests.barnabas.testing.simulation.machine.conftest import Machine


def test_a_flush_keeps_what_was_written_before_it_began(machine: Machine) -> None:
    disk = SimulatedDisk()
    seen: list[bytes] = []

    def body() -> None:
        file = disk.open("/log", create=True)
        file.pwrite(b"before", 0)
        now_ns = machine.scheduler.now_ns
        machine.scheduler.call_at(now_ns + 1, lambda: disk._files["/log"].content.extend(b" and during"))
        file.fsync()
        assert machine.scheduler.now_ns > now_ns
        seen.append(disk.read_bytes("/log"))
        seen.append(disk.crash().read_bytes("/log"))
        seen.append(disk.kill().read_bytes("/log"))

    machine.run(body)
    assert seen == [b"before and during", b"before", b"before and during"]


def test_a_disk_after_a_crash_is_of_the_same_kind(machine: Machine) -> None:
    assert isinstance(SimulatedDisk().crash(), SimulatedDisk)


def test_a_slice_has_a_descriptor_of_the_process(machine: Machine) -> None:
    disk = SimulatedDisk()

    def body() -> None:
        assert machine.scheduler.current is not None
        process = machine.scheduler.current.process
        file = disk.open("/log", create=True)
        file.pwrite(b"0123456789", 0)
        number = file.slice(2, 3).fileno()
        assert file.slice(5, 1).fileno() == number
        assert file.slice(5, 3).part(1, 1).fileno() == number
        found = process.find(number)
        assert found.pread(3, 2) == b"234"  # type: ignore[attr-defined]

    machine.run(body)


def test_clocks_of_a_process(machine: Machine) -> None:
    process = machine.process()
    process.wall_offset_ns = 3600 * NS_PER_S
    seen: list[float] = []

    def body() -> None:
        before = times.monotonic()
        times.sleep(10)
        seen.append(times.monotonic() - before)
        seen.append(times.time_ns() - times.WALL_START_NS - machine.scheduler.now_ns)

    machine.scheduler.run(process, body)
    assert 10 <= seen[0] < 10.1
    assert seen[1] == process.wall_offset_ns


def test_randomness_comes_from_the_seed() -> None:
    def drawn() -> tuple[bytes, float, float]:
        randomness.seed_with(5)
        return randomness.urandom(8), randomness.SeededRandom().random(), randomness.SeededRandom(1).random()

    assert drawn() == drawn()
    assert drawn()[0] != randomness.urandom(8)
