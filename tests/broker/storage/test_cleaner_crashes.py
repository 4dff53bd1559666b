"""The cleaner on a disk that fails, loses power, or is left by a killed process at any step: `cleaner.py`,
`Log.replace_segments` and `recovery.py` together.

Afterwards the log must start and hold each key's latest acknowledged record. Every other record was written at its
offset, no record is there twice, and a later round succeeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from barnabas.broker.storage.cleaner.cleaner import CleaningAbortedError
from barnabas.broker.storage.log.log import AppendOrigin, Log
from barnabas.broker.storage.log.retention import delete_old_segments
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.protocol.errors import ApiError
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from tests.support.broker.compaction import append_keyed, compact, keyed_contents
from tests.support.broker.storage_bench import Bench
from tests.support.sample import sample

SETTINGS = {
    "compact": True,
    "delete": False,
    "segment_bytes": 420,
    "index_interval_bytes": 60,
    "flush_messages": 1,
    "file_delete_delay_ms": 50,
}
Record = tuple[int, str | None, str | None]


class Story:
    """Appends, rolls and rounds of cleaning; `acknowledged` holds the acknowledged records.

    Faults come while segments are rolled, cleaned, swapped and deleted; those of plain appends are in test_recovery.
    """

    def __init__(self, fs: FileSystem, fail_at: int = 0) -> None:
        self.is_upkeep = False
        self.disk = FaultyFileSystem(fs, fail_at=fail_at, matches=self.matches)
        self.acknowledged: list[Record] = []
        self.clean = 0

    def matches(self, _operation: str, _path: str) -> bool:
        return self.is_upkeep

    def run(self) -> None:
        self.bench = Bench(self.disk)
        target = self.bench.open(**SETTINGS)
        for number in range(30):
            # Some keys occur once, so that joined segments have records to lose.
            self.append(target, (f"k{number % 4}", f"v{number}"), (f"j{number if number % 3 else number % 7}", "w"))
            if number == 10:
                self.abort_transaction(target)
            if number in (12, 22, 29):
                self.upkeep(target, delete_below=6 if number == 22 else 0)
        target.close()

    def upkeep(self, target: Log, delete_below: int) -> None:
        self.is_upkeep = True
        target.roll()
        target.maybe_increment_log_start_offset(delete_below, "test")
        delete_old_segments(target, self.bench.clock.wall_ms())
        self.clean = compact(target, self.bench, first_dirty=self.clean)
        self.bench.clock.advance_ms(100)
        self.bench.scheduler.run_due()
        self.is_upkeep = False

    def append(self, target: Log, *pairs: tuple[str, str]) -> None:
        first = append_keyed(target, self.bench, *pairs)
        self.acknowledged += [(first + index, key, value) for index, (key, value) in enumerate(pairs)]

    def abort_transaction(self, target: Log) -> None:
        append_keyed(
            target,
            self.bench,
            ("k0", "aborted"),
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        marker = end_txn_marker(ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
        target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        target.update_high_watermark(target.log_end_offset)


def disks_after(disk: MemoryFileSystem, seed: int) -> Iterator[tuple[str, MemoryFileSystem]]:
    """Yield the disk after a killed process, and after several kinds of power cuts in turn."""
    yield "killed", disk.kill()
    if seed % 3 == 0:
        yield "power cut", disk.crash()
    elif seed % 3 == 1:
        yield "power cut, torn", disk.crash(random.Random(seed))
    else:
        yield "power cut, names lost", disk.crash(names_survive=False)


def check(fs: MemoryFileSystem, story: Story) -> None:
    if not fs.is_dir("/data/flights-0"):
        assert not story.acknowledged
        return
    bench = Bench(fs)
    target = bench.open(**SETTINGS)
    check_contents(target, story)
    names = [entry.name for entry in fs.listdir("/data/flights-0")]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    target.update_high_watermark(target.log_end_offset)
    target.roll()
    compact(target, bench)  # from the beginning, as without a checkpoint
    check_contents(target, story)
    append_keyed(target, bench, ("k0", "later"))
    target.flush()
    target.close()
    check_contents(bench.open(clean=True, **SETTINGS), story)


def check_contents(target: Log, story: Story) -> None:
    target.invariants()
    found = keyed_contents(target)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    promised = {offset: (key, value) for offset, key, value in story.acknowledged}
    for offset, key, value in found:
        if offset in promised:
            assert promised[offset] == (key, value)
    latest = {key: offset for offset, key, _ in story.acknowledged}
    there = set(offsets)
    superseded = {key: max(offset for offset, found_key, _ in found if found_key == key) for _, key, _ in found}
    for key, offset in latest.items():
        assert offset in there or superseded.get(key, -1) > offset or offset < target.log_start_offset, (key, offset)
    assert target.log_end_offset > max((offset for offset, _, _ in story.acknowledged), default=-1)


def operations() -> int:
    story = Story(MemoryFileSystem())
    story.run()
    return story.disk.operations


def test_the_story_cleans_what_it_should() -> None:
    fs = MemoryFileSystem()
    story = Story(fs)
    story.run()
    found = keyed_contents(Bench(fs).open(clean=True, log_start_offset=6, **SETTINGS))
    latest = {key: offset for offset, key, _ in story.acknowledged}
    assert [offset for offset, _, _ in found] == sorted(offset for offset in latest.values() if offset >= 6)
    check(fs.kill(), story)


@pytest.mark.parametrize("fail_at", sample(range(1, operations() + 1), 4))
def test_every_operation_fails_once(fail_at: int) -> None:
    inner = MemoryFileSystem()
    story = Story(inner, fail_at=fail_at)
    with pytest.raises((ApiError, OSError, CleaningAbortedError)):
        story.run()
    for kind, after in disks_after(inner, fail_at):
        try:
            check(after, story)
        except BaseException as error:
            error.add_note(f"operation {fail_at} failed, then: {kind}")
            raise


class SnapshotStory(Story):
    """A story without faults that copies the disk before each change by background work."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        super().__init__(fs)
        self.inner = fs
        self.snapshots: list[tuple[str, MemoryFileSystem, list[Record]]] = []

    def matches(self, operation: str, path: str) -> bool:
        if self.is_upkeep:
            self.snapshots.append((f"before {operation} of {path}", self.inner.kill(), list(self.acknowledged)))
        return self.is_upkeep


def test_power_is_cut_before_each_operation() -> None:
    story = SnapshotStory(MemoryFileSystem())
    story.run()
    assert len(story.snapshots) == operations()
    for number, (what, disk, acknowledged) in sample(enumerate(story.snapshots), 4):
        copied = Story(disk)
        copied.acknowledged = acknowledged
        for kind, after in disks_after(disk, number):
            try:
                check(after, copied)
            except BaseException as error:
                error.add_note(f"{kind} {what}")
                raise
