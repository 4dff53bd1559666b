"""Starting after crashes: every failing operation in turn, torn tails, damaged files, interrupted swaps."""

from __future__ import annotations

import os
import random
import struct
import threading
from pathlib import Path

import pytest

from barnabas.broker.storage.directories.checksums import add_to_entries
from barnabas.broker.storage.log.log import Log
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem
from barnabas.protocol.errors import ApiError
from barnabas.protocol.records.batch import HEADER_SIZE, iter_headers
from tests.support.broker.storage_bench import Bench, contents

SETTINGS = {"segment_bytes": 500, "index_interval_bytes": 60}


def write_story(bench: Bench, acknowledged: list[tuple[int, str]], flush_messages: int) -> None:
    """Append, roll, truncate and delete on a disk that may fail; `acknowledged` is what appends returned."""
    target = bench.open(flush_messages=flush_messages, **SETTINGS)
    for number in range(14):
        value = f"v{number}"
        first = bench.append(
            target, value, leader_epoch=number // 6, producer_id=3, producer_epoch=0, base_sequence=number
        )
        acknowledged.append((first, value))
        bench.scheduler.run_due()
        if number == 9:
            target.truncate_to(8)
            del acknowledged[8:]
            bench.append(target, "w8", leader_epoch=3)
            acknowledged.append((8, "w8"))
            return
    target.close()


def checked(after: MemoryFileSystem, acknowledged: list[tuple[int, str]], *, exact: bool) -> Log:
    """Open the log after a crash and compare it with the acknowledged records."""
    bench = Bench(after)
    target = bench.open(**SETTINGS)
    found = contents(target)
    assert found[: len(acknowledged)] == acknowledged if exact else acknowledged[: len(found)] == found
    assert [offset for offset, _ in found] == list(range(len(found)))
    target.invariants()
    bench.append(target, "later", leader_epoch=9)
    assert contents(target)[-1][1] == "later"
    target.close()
    assert contents(bench.open(clean=True, **SETTINGS))[-1][1] == "later"
    return target


def faults(flush_messages: int) -> int:
    disk = FaultyFileSystem(MemoryFileSystem())
    write_story(Bench(disk), [], flush_messages)
    return disk.operations


@pytest.mark.parametrize("fail_at", range(1, faults(1) + 1))
def test_every_operation_fails_once(fail_at: int) -> None:
    inner = MemoryFileSystem()
    acknowledged: list[tuple[int, str]] = []
    before_truncation: list[tuple[int, str]] = []
    try:
        bench = Bench(FaultyFileSystem(inner, fail_at=fail_at))
        write_story(bench, acknowledged, flush_messages=1)
    except (ApiError, OSError):
        before_truncation = list(acknowledged)
    if len(acknowledged) == 10:
        acknowledged = acknowledged[:8]  # the truncation failed somewhere: what it was to drop may be there or not
    for after in (inner.kill(), inner.crash(), inner.crash(random.Random(fail_at))):
        if not after.is_dir("/data/flights-0"):
            assert not before_truncation
            continue
        # flush.messages=1: acknowledged records were fsynced, so they survive a power cut.
        target = Bench(after).open(**SETTINGS)
        found = contents(target)
        assert found[: len(acknowledged)] == acknowledged
        assert [offset for offset, _ in found] == list(range(len(found)))
        target.invariants()
        checked(after, acknowledged, exact=True)


def test_killing_the_process_loses_nothing(bench: Bench) -> None:
    acknowledged: list[tuple[int, str]] = []
    write_story(bench, acknowledged, 2**63 - 1)
    assert isinstance(bench.fs, MemoryFileSystem)
    checked(bench.fs.kill(), acknowledged, exact=True)


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_without_flushes_keeps_a_prefix(bench: Bench, seed: int) -> None:
    acknowledged: list[tuple[int, str]] = []
    write_story(bench, acknowledged, 2**63 - 1)
    assert isinstance(bench.fs, MemoryFileSystem)
    target = Bench(bench.fs.crash(random.Random(seed))).open(**SETTINGS)
    found = contents(target)
    assert [offset for offset, _ in found] == list(range(len(found)))
    target.invariants()


def filled(bench: Bench, count: int = 10, **settings: object) -> str:
    """Write a log and leave it as a killed process does; returns the path of its only segment."""
    target = bench.open(**settings)
    for number in range(count):
        bench.append(target, f"v{number}", producer_id=1, producer_epoch=0, base_sequence=number)
    return target.active_segment.path


def test_every_torn_tail_is_cut(bench: Bench) -> None:
    path = filled(bench, 3)
    data = bench.fs.read_bytes(path)
    size = len(data) // 3
    for cut in range(len(data) + 1):
        bench.fs.write_bytes(path, data[:cut], sync=True)
        target = bench.open()
        assert len(contents(target)) == cut // size
        assert bench.fs.size(path) == cut // size * size


@pytest.mark.parametrize(
    "tail", [bytes(3000), b"\xff" * 100, b"garbage", struct.pack(">qi", 10, 2**31 - 1) + bytes(100)]
)
def test_garbage_after_the_last_batch_is_cut(bench: Bench, tail: bytes) -> None:
    path = filled(bench)
    size = bench.fs.size(path)
    bench.fs.open(path).pwrite(tail, size)
    assert len(contents(bench.open())) == 10
    assert bench.fs.size(path) == size


def test_any_flipped_bit_cuts_from_its_batch_on(bench: Bench) -> None:
    path = filled(bench, 4)
    data = bench.fs.read_bytes(path)
    size = len(data) // 4
    for index in range(2 * size + 16, 3 * size):
        damaged = bytearray(data)
        damaged[index] ^= 4
        bench.fs.write_bytes(path, damaged, sync=True)
        assert [value for _, value in contents(bench.open())] == ["v0", "v1"], index


def test_only_records_above_the_recovery_point_are_checked(bench: Bench) -> None:
    filled(bench, 40, **SETTINGS)
    bench.scheduler.run_due()
    first = "/data/flights-0/00000000000000000000.log"
    damaged = bytearray(bench.fs.read_bytes(first))
    damaged[HEADER_SIZE + 3] ^= 1
    bench.fs.write_bytes(first, damaged, sync=True)
    assert bench.open(recovery_point=35, **SETTINGS).log_end_offset == 40
    assert bench.open(recovery_point=0, **SETTINGS).log_end_offset == 0


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("may_have_holes", [False, True])
def test_a_segment_that_lost_its_end_leaves_no_hole(bench: Bench, kept: int, may_have_holes: bool) -> None:
    """A loss of power may take all of a segment, or its last batches, and leave the next one."""
    target = bench.open(**SETTINGS)
    for number in range(14):
        bench.append(target, f"v{number}")
    segments = list(target.segments)
    lost, following = segments[1], segments[2]
    whole = [offset for offset, _ in contents(target)]
    path = f"{target.directory}/{lost.base_offset:020d}.log"
    after = bench.fs.kill()
    data = after.read_bytes(path)
    headers = list(iter_headers(memoryview(data)))
    after.open(path).truncate(headers[kept][0])
    offsets = [offset for offset, _ in contents(Bench(after).open(may_have_holes=may_have_holes, **SETTINGS))]
    if may_have_holes:
        assert offsets == list(range(lost.base_offset + kept))
    else:
        assert offsets[-1] == whole[-1], "the gap may be the cleaner's"
    assert following.base_offset > lost.base_offset + kept


def test_segments_after_a_corrupt_one_are_deleted(bench: Bench) -> None:
    filled(bench, 40, **SETTINGS)
    bases = [s.base_offset for s in bench.open(**SETTINGS).segments]
    path = f"/data/flights-0/{bases[2]:020d}.log"
    bench.fs.write_bytes(path, bench.fs.read_bytes(path)[:-1], sync=True)
    target = bench.open(**SETTINGS)
    assert target.active_segment.base_offset == bases[2]
    assert [offset for offset, _ in contents(target)] == list(range(bases[3] - 1))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [None, b"", b"123", bytes(240), b"\xff" * 240], ids=str)
def test_indexes_are_rebuilt(bench: Bench, suffix: str, damage: bytes | None) -> None:
    target = bench.open(**SETTINGS)
    for number in range(40):
        bench.append(target, f"v{number}")
    target.flush()
    target.close()
    golden = {e.name: bench.fs.read_bytes(f"/data/flights-0/{e.name}") for e in bench.fs.listdir("/data/flights-0")}
    for name in golden:
        if name.endswith(suffix):
            path = f"/data/flights-0/{name}"
            bench.fs.unlink(path) if damage is None else bench.fs.write_bytes(path, damage, sync=True)
    again = bench.open(recovery_point=0, **SETTINGS)
    again.close()
    for name, data in golden.items():
        if name.endswith(suffix):
            assert bench.fs.read_bytes(f"/data/flights-0/{name}") == data, name


@pytest.mark.parametrize("damage", [b"", b"garbage", b"0\n2\n0 0\n", b"7\n0\n", b"0\nx\n", b"\xff"])
def test_a_damaged_epoch_checkpoint_is_rebuilt(bench: Bench, damage: bytes) -> None:
    target = bench.open()
    bench.append(target, "a", leader_epoch=1)
    bench.append(target, "b", leader_epoch=4)
    target.close()
    bench.fs.write_bytes("/data/flights-0/leader-epoch-checkpoint", damage, sync=True)
    again = bench.open(clean=True)
    assert again.leader_epoch_cache.entries == [(1, 0), (4, 1)]


def test_epochs_missing_from_the_checkpoint_after_a_kill_are_read_from_the_batches(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a", leader_epoch=1)
    bench.append(target, "b", leader_epoch=4)
    assert not bench.fs.exists("/data/flights-0/leader-epoch-checkpoint")
    assert bench.open().leader_epoch_cache.entries == [(1, 0), (4, 1)]


def test_the_epoch_checkpoint_is_written_before_the_recovery_point_moves(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a", leader_epoch=1)
    target.flush()
    assert bench.fs.read_bytes("/data/flights-0/leader-epoch-checkpoint") == add_to_entries(b"0\n1\n1 0\n")
    bench.append(target, "b", leader_epoch=4)
    bench.clock.advance_ms(1000)
    bench.scheduler.run_due()
    assert bench.fs.read_bytes("/data/flights-0/leader-epoch-checkpoint") == add_to_entries(b"0\n2\n1 0\n4 1\n")


def test_epochs_truncated_after_the_checkpoint_was_written_do_not_come_back(bench: Bench) -> None:
    target = bench.open()
    for value, epoch in (("a", 1), ("b", 1), ("c", 3)):
        bench.append(target, value, leader_epoch=epoch)
    target.flush()  # the file says: 3 from 2 on
    target.truncate_to(2)
    for value, epoch in (("d", 1), ("e", 4)):  # as its new leader has it
        bench.append(target, value, leader_epoch=epoch)
    again = bench.open(recovery_point=target.recovery_point)
    assert again.leader_epoch_cache.entries == target.leader_epoch_cache.entries == [(1, 0), (4, 3)]


def test_producers_are_rebuilt_from_the_log_when_snapshots_are_damaged(bench: Bench) -> None:
    filled(bench, 30, **SETTINGS)
    for entry in bench.fs.listdir("/data/flights-0"):
        if entry.name.endswith(".snapshot"):
            bench.fs.write_bytes(f"/data/flights-0/{entry.name}", b"\x00\x01garbage", sync=True)
    target = bench.open(recovery_point=30, **SETTINGS)
    state = target.producer_state.entry(1)
    assert state is not None
    assert (state.last_sequence, state.last_offset) == (29, 29)


def test_the_first_segment_is_recovered_although_nothing_tells_of_the_producers_before_it(bench: Bench) -> None:
    """The simulator's seed 19 (2026-11-23): the directory went offline at the start, and the broker ended.

    Retention deleted the segments up to 215 with their snapshots, and the broker was killed before the log's start was
    checkpointed. So the next start looked for the producers as of 215 from offset 0 on, in no segment.
    """
    target = bench.open(**SETTINGS)
    for value in map(str, range(30)):
        bench.append(target, value)
    first = target.segments.bases[2]
    for entry in bench.fs.listdir("/data/flights-0"):
        base = entry.name.split(".")[0]
        if base.isdecimal() and (int(base) < first or entry.name.endswith(".snapshot")):
            bench.fs.unlink(f"/data/flights-0/{entry.name}")
    again = bench.open(**SETTINGS)
    assert (again.log_start_offset, again.log_end_offset) == (first, 30)
    assert [value for _, value in contents(again)] == [str(value) for value in range(first, 30)]


def test_a_log_whose_start_is_above_its_end_begins_again(bench: Bench) -> None:
    filled(bench, 3)
    target = bench.open(log_start_offset=50)
    assert (target.log_start_offset, target.log_end_offset) == (50, 50)
    bench.append(target, "new")
    assert contents(target) == [(50, "new")]


# Remains of the cleaner and of deletions


def renamed(bench: Bench, base: int, old: str, new: str) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = f"/data/flights-0/{base:020d}{suffix}"
        if bench.fs.exists(path + old):
            bench.fs.rename(path + old, path + new)


def two_segments(bench: Bench) -> None:
    target = bench.open()
    for value in "ab":
        bench.append(target, value)
        target.roll()
    target.flush()
    target.close()


def test_deleted_and_cleaned_files_are_removed(bench: Bench) -> None:
    two_segments(bench)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.cleaned", b"half", sync=True)
    bench.fs.write_bytes("/data/flights-0/00000000000000000007.log.deleted", b"old", sync=True)
    assert contents(bench.open(clean=True)) == [(0, "a"), (1, "b")]
    assert not [e.name for e in bench.fs.listdir("/data/flights-0") if e.name.endswith((".cleaned", ".deleted"))]


def test_a_complete_swap_file_replaces_the_segments_it_covers(bench: Bench) -> None:
    two_segments(bench)
    merged = b"".join(bench.fs.read_bytes(f"/data/flights-0/{base:020d}.log") for base in (0, 1))
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.swap", merged, sync=True)
    target = bench.open(clean=True)
    assert contents(target) == [(0, "a"), (1, "b")]
    assert [segment.base_offset for segment in target.segments] == [0, 2]


def test_a_swap_file_beside_a_cleaned_file_is_discarded(bench: Bench) -> None:
    two_segments(bench)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.swap", b"", sync=True)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.cleaned", b"", sync=True)
    assert contents(bench.open(clean=True)) == [(0, "a"), (1, "b")]


def test_orphaned_indexes_are_removed(bench: Bench) -> None:
    two_segments(bench)
    for suffix in (".index", ".timeindex", ".txnindex"):
        bench.fs.write_bytes(f"/data/flights-0/00000000000000000009{suffix}", b"", sync=True)
    bench.open(clean=True)
    assert not [e.name for e in bench.fs.listdir("/data/flights-0") if "0009" in e.name]


def test_a_damaged_tail_is_cut_even_after_a_clean_stop(bench: Bench) -> None:
    path = filled(bench, 3)
    bench.open().close()
    bench.fs.open(path).pwrite(bytes(100), bench.fs.size(path))
    target = bench.open(clean=True)
    assert len(contents(target)) == 3


def test_a_loaded_log_opens_no_file_until_it_is_used(tmp_path: Path) -> None:
    bench = Bench(OsFileSystem(), str(tmp_path / "flights-0"))
    filled(bench, 20, **SETTINGS)
    before = len(os.listdir("/proc/self/fd"))
    target = bench.open(**SETTINGS)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert len(contents(target)) == 20


def test_an_empty_swap_file_replaces_its_predecessor(bench: Bench) -> None:
    """The cleaner kept no record of a segment; the old indexes must go, too."""
    two_segments(bench)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.txnindex", bytes(34), sync=True)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.swap", b"", sync=True)
    target = bench.open(clean=True)
    assert contents(target) == [(1, "b")]
    assert target.segments.first.txn_index.is_empty


def test_a_log_with_a_damaged_swap_file_starts(bench: Bench) -> None:
    two_segments(bench)
    bench.fs.write_bytes("/data/flights-0/00000000000000000000.log.swap", b"\xff" * 100, sync=True)
    assert bench.open(clean=True).log_end_offset == 2


def test_the_producers_as_of_a_segments_end_survive_a_power_cut(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise recovery would read the log from its beginning to rebuild them."""
    target = bench.open()
    bench.append(target, "a", producer_id=7, producer_epoch=0, base_sequence=0)
    target.roll()
    bench.scheduler.run_due()
    bench.append(target, "b")
    assert isinstance(bench.fs, MemoryFileSystem)
    after = Bench(bench.fs.crash())
    again = after.open(recovery_point=target.recovery_point)
    assert "snapshot" not in caplog.text
    entry = again.producer_state.entry(7)
    assert entry is not None
    assert entry.last_sequence == 0


def after_a_truncation_without_checkpoint(bench: Bench) -> MemoryFileSystem:
    """A log that is truncated below its recovery point and goes on in a later segment, before any job has run."""
    size = len(bench.batch("v0"))
    target = bench.open(segment_bytes=10 * size)
    for number in range(30):
        bench.append(target, f"v{number % 10}", leader_epoch=1 if number < 5 else 2)
    target.flush()
    bench.scheduler.run_due()
    assert target.recovery_point == 30
    target.note_checkpointed(target.point_to_checkpoint())
    target.truncate_to(3)
    for number in range(3, 15):
        bench.append(target, f"w{number % 10}", leader_epoch=5)
    assert target.segments.bases == (0, 10)
    assert isinstance(bench.fs, MemoryFileSystem)
    return bench.fs


def test_a_killed_process_leaves_right_epochs_after_a_truncation_without_checkpoint(bench: Bench) -> None:
    """Recovery does not look at the first segment, since the checkpoint has a recovery point above it."""
    after = Bench(after_a_truncation_without_checkpoint(bench).kill())
    target = after.open(recovery_point=30, segment_bytes=10 * len(bench.batch("v0")))
    assert target.log_end_offset == 15
    assert target.leader_epoch_cache.entries == [(1, 0), (5, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_a_prefix_after_a_truncation_without_checkpoint(bench: Bench, seed: int) -> None:
    after = Bench(after_a_truncation_without_checkpoint(bench).crash(random.Random(seed)))
    target = after.open(recovery_point=30, may_have_holes=True, segment_bytes=10 * len(bench.batch("v0")))
    expected = [(n, f"v{n}" if n < 3 else f"w{n % 10}") for n in range(15)]
    assert contents(target) == expected[: target.log_end_offset]
    assert target.log_end_offset >= 3
    assert target.leader_epoch_cache.entries == [(1, 0), (5, 3)][: 1 if target.log_end_offset == 3 else 2]


def test_a_truncation_that_is_interrupted_leaves_no_hole() -> None:
    """Recovery begins at the recovery point, so it would not see a hole below it."""
    for failing in range(1, 100):
        memory = MemoryFileSystem()
        disk = FaultyFileSystem(memory)
        bench = Bench(disk)
        segment_bytes = 10 * len(bench.batch("v0"))
        target = bench.open(segment_bytes=segment_bytes)
        for number in range(30):
            bench.append(target, f"v{number % 10}", leader_epoch=1)
        target.flush()
        bench.scheduler.run_due()
        disk.operations, disk.fail_at = 0, failing
        try:
            target.truncate_to(3)
        except ApiError:
            pass
        else:
            if disk.operations < failing:
                break
        for after, may_have_holes in ((memory.kill(), False), (memory.crash(random.Random(failing)), True)):
            again = Bench(after).open(recovery_point=30, may_have_holes=may_have_holes, segment_bytes=segment_bytes)
            assert [offset for offset, _ in contents(again)] == list(range(again.log_end_offset)), failing
    assert failing > 5


def test_a_truncation_into_a_segment_that_is_being_flushed_has_it_flushed_again() -> None:
    """What is appended after the cut is not on disk, although the flush ends after it."""
    cuts: list[int] = []

    def cut_meanwhile(operation: str, path: str) -> bool:
        if cuts and operation == "fsync" and path.endswith(".log"):
            target.truncate_to(cuts.pop())
        return False

    memory = MemoryFileSystem()
    bench = Bench(FaultyFileSystem(memory, matches=cut_meanwhile))
    segment_bytes = 10 * len(bench.batch("v0"))
    target = bench.open(segment_bytes=segment_bytes)
    for number in range(15):
        bench.append(target, f"v{number % 10}", leader_epoch=1)
    cuts.append(3)
    bench.scheduler.run_due()  # the flush of the first segment
    assert target.log_end_offset == 3
    target.note_checkpointed(target.point_to_checkpoint())
    for number in range(3, 25):
        bench.append(target, f"w{number % 10}", leader_epoch=5)
    bench.scheduler.run_due()
    assert (target.segments.bases, target.recovery_point) == ((0, 10, 20), 20)
    for seed in range(5):
        after = Bench(memory.crash(random.Random(seed)))
        again = after.open(recovery_point=20, may_have_holes=True, segment_bytes=segment_bytes)
        assert [offset for offset, _ in contents(again)] == list(range(again.log_end_offset))
        assert again.log_end_offset >= 20


def test_what_is_appended_during_a_flush_is_flushed_after_the_roll() -> None:
    """The flush of the active segment ends when that is the active one no more, but does not have all of it."""
    more = [7, 8, 9, 0, 1]
    is_flushing = False

    def append_meanwhile(operation: str, path: str) -> bool:
        if is_flushing and operation == "fsync" and path.endswith("0.log"):
            while more:
                bench.append(target, f"v{more.pop(0)}", leader_epoch=1)
        return False

    memory = MemoryFileSystem()
    bench = Bench(FaultyFileSystem(memory, matches=append_meanwhile))
    segment_bytes = 10 * len(bench.batch("v0"))
    target = bench.open(segment_bytes=segment_bytes)
    for number in range(7):
        bench.append(target, f"v{number}", leader_epoch=1)
    is_flushing = True
    target.flush()
    assert not more
    assert [segment.indexes_flushed for segment in target.segments] == [False, False]
    target.flush()
    assert target.recovery_point == 12
    for seed in range(5):
        after = Bench(memory.crash(random.Random(seed)))
        again = after.open(recovery_point=12, may_have_holes=True, segment_bytes=segment_bytes)
        assert [offset for offset, _ in contents(again)] == list(range(12))


def test_a_flush_up_to_an_offset_that_was_cut_off_covers_no_later_record_of_that_offset() -> None:
    """It waited for another flush, or in the scheduler, while the log was truncated."""
    more = [4, 5, 6, 7, 8, 9]
    is_flushing = False

    def append_meanwhile(operation: str, path: str) -> bool:
        if is_flushing and operation == "fsync" and path.endswith("0.log"):
            while more:
                bench.append(target, f"w{more.pop(0)}", leader_epoch=2)
        return False

    memory = MemoryFileSystem()
    bench = Bench(FaultyFileSystem(memory, matches=append_meanwhile))
    target = bench.open()
    for number in range(10):
        bench.append(target, f"v{number}", leader_epoch=1)
    target.truncate_to(3)
    bench.append(target, "w3", leader_epoch=2)
    is_flushing = True
    target._flusher.flush_to(10)
    assert not more
    assert target.recovery_point == 4
    target.flush()
    assert target.recovery_point == 10


def test_segments_below_a_new_log_start_are_flushed_though_nobody_reads_them() -> None:
    """Otherwise recovery from an older checkpoint finds them torn, and drops what follows."""
    memory = MemoryFileSystem()
    bench = Bench(memory)
    target = bench.open(segment_bytes=10 * len(bench.batch("v0")))
    for number in range(35):
        bench.append(target, f"v{number % 10}", leader_epoch=1)
    target.maybe_increment_log_start_offset(32, "DeleteRecords")
    target.flush()
    assert target.recovery_point == 35
    for start in (0, 32):
        again = Bench(memory.crash()).open(recovery_point=0, log_start_offset=start, may_have_holes=True)
        assert [offset for offset, _ in contents(again)] == list(range(start, 35))


def test_a_segment_that_a_truncation_made_active_is_flushed_again_though_a_later_one_is_gone() -> None:
    """The flush begins again then, and must not take the first segment for flushed."""
    cuts: list[int] = []

    def cut_meanwhile(operation: str, path: str) -> bool:
        if cuts and operation == "fsync" and path.endswith("0.index"):
            target.truncate_to(cuts.pop())
            for segment in cut:
                segment.delete()
        return False

    bench = Bench(FaultyFileSystem(MemoryFileSystem(), matches=cut_meanwhile))
    target = bench.open(segment_bytes=10 * len(bench.batch("v0")))
    for number in range(25):
        bench.append(target, f"v{number % 10}", leader_epoch=1)
    cut = target.segments.all[1:]
    cuts.append(3)
    target.flush()
    for number in range(3, 15):
        bench.append(target, f"w{number % 10}", leader_epoch=5)
    assert [(s.base_offset, s.indexes_flushed) for s in target.segments] == [(0, False), (10, False)]


def test_a_flush_writes_no_index_of_a_segment_that_a_truncation_made_active() -> None:
    """Others append to it meanwhile, who write the ends of its indexes under the log's lock."""
    cuts: list[int] = []
    written: list[str] = []

    def cut_meanwhile(operation: str, path: str) -> bool:
        if cuts and operation == "fsync" and path.endswith(".log"):
            target.truncate_to(cuts.pop())
            for number in range(5):
                bench.append(target, f"w{number}", leader_epoch=5)
            written.clear()
        elif operation == "write":
            written.append(path)
        return False

    bench = Bench(FaultyFileSystem(MemoryFileSystem(), matches=cut_meanwhile))
    target = bench.open(segment_bytes=10 * len(bench.batch("v0")), index_interval_bytes=100)
    for number in range(15):
        bench.append(target, f"v{number % 10}", leader_epoch=1)
    cuts.append(3)
    bench.scheduler.run_due()  # the flush of the first segment
    assert target.segments.bases == (0,)
    assert target.segments.active.offset_index.entry_count > 2
    assert not [path for path in written if path.endswith("index")]


def test_a_flush_waits_for_a_truncation_that_is_under_way() -> None:
    """Otherwise it would count the records that replace the cut ones as flushed."""
    flush = threading.Thread(target=lambda: target.flush(), daemon=True)
    is_truncating = False
    of_the_flush: list[str] = []

    def flush_meanwhile(operation: str, _path: str) -> bool:
        if threading.current_thread() is flush:
            of_the_flush.append(operation)
        elif is_truncating and operation == "fsync_dir":
            flush.start()
            flush.join(0.05)
            assert of_the_flush == []
        return False

    bench = Bench(FaultyFileSystem(MemoryFileSystem(), matches=flush_meanwhile))
    target = bench.open(segment_bytes=10 * len(bench.batch("v0")))
    for number in range(30):
        bench.append(target, f"v{number % 10}", leader_epoch=1)
    is_truncating = True
    target.truncate_to(3)
    is_truncating = False
    flush.join(10)
    assert of_the_flush
    assert target.recovery_point == 3


def test_a_new_replica_that_begins_at_its_leaders_start_waits_for_no_disk(bench: Bench) -> None:
    seen: list[str] = []
    disk = FaultyFileSystem(MemoryFileSystem(), matches=lambda operation, _path: bool(seen.append(operation)))
    empty = Bench(disk).open()
    seen.clear()
    empty.truncate_fully_and_start_at(1_000)
    assert [operation for operation in seen if "fsync" in operation] == []
    Bench(disk).append(empty, "v", leader_epoch=1)
    empty.truncate_fully_and_start_at(2_000)
    assert "fsync_dir" in seen
