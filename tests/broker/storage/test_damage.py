"""Flipped bits and torn or zeroed pages in every kind of file: found by a CRC, repaired, or without effect.

Readers always get the records that were written.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, OffsetCheckpoint
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.broker.storage.log.retention import delete_old_segments
from barnabas.broker.storage.producers.snapshots import CorruptSnapshotError, read_snapshot
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.protocol.errors import ApiError, MalformedMessageError
from barnabas.protocol.records.batch import ControlType, end_txn_marker, iter_headers, verify_crc
from tests.support.broker.storage_bench import TP, Bench, contents

SETTINGS = {"segment_bytes": 3000, "index_interval_bytes": 150}
COUNT = 90


def written() -> tuple[MemoryFileSystem, Bench]:
    """A log of three segments with a producer and an aborted transaction, cleanly stopped."""
    bench = Bench()
    target = bench.open(**SETTINGS)
    for number in range(COUNT):
        bench.append(
            target, f"v{number}", producer_id=1, producer_epoch=0, base_sequence=number, leader_epoch=number // 40
        )
        bench.clock.advance_ms(1000)
        if number == 20:
            aborted = bench.batch("gone", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
            target.append_as_leader(aborted, leader_epoch=0)
            marker = end_txn_marker(
                ControlType.ABORT,
                producer_id=2,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=bench.clock.wall_ms(),
            )
            target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
            target.update_high_watermark(target.log_end_offset)
    target.flush()
    target.close()
    assert isinstance(bench.fs, MemoryFileSystem)
    return bench.fs, bench


FS, BENCH = written()
NAMES = [entry.name for entry in FS.listdir(BENCH.directory)]
NOW_MS = BENCH.clock.wall_ms()


def opened(fs: MemoryFileSystem, *, clean: bool = True, recovery_point: int = 0) -> Log:
    bench = Bench(fs)
    bench.clock.advance_ms(NOW_MS - bench.clock.wall_ms())
    target = bench.open(clean=clean, recovery_point=recovery_point, **SETTINGS)
    target.update_high_watermark(target.log_end_offset)
    return target


def answers(target: Log) -> list[object]:
    """Read a log in every way: from any offset, by time, its aborted transactions, the age of its segments."""
    found: list[object] = [segment.largest_timestamp for segment in target.segments]
    for offset in range(0, target.log_end_offset, 3):
        data = target.read(offset, 200, isolation=FetchIsolation.TXN_COMMITTED, min_one_message=True)
        assert data.slice is not None
        raw = data.slice.read()
        first = next(header for _, header in iter_headers(raw))
        found.append((offset, first.base_offset, len(raw)))
        if first.producer_id == 2 and not first.is_control:
            found.append(data.aborted_transactions)
    found += [target.fetch_offset_by_timestamp(stamp) for stamp in range(NOW_MS - COUNT * 1000 - 500, NOW_MS, 2500)]
    found.append(target.fetch_offset_by_timestamp(-3))
    return found


GOLDEN = answers(opened(FS.kill()))
GOLDEN_CONTENTS = contents(opened(FS.kill()))


def names_with(suffix: str) -> list[str]:
    found = [name for name in NAMES if name.endswith(suffix) and FS.size(f"{BENCH.directory}/{name}")]
    assert found, suffix
    return found


def flips(size: int, step: int = 1) -> list[tuple[int, int]]:
    chance = random.Random(size)
    return [(index, 1 << chance.randrange(8)) for index in range(0, size, step)]


@pytest.mark.parametrize("name", names_with(".index") + names_with(".timeindex"))
def test_a_flipped_bit_in_an_index_changes_no_result_and_is_repaired(name: str) -> None:
    path = f"{BENCH.directory}/{name}"
    whole = FS.read_bytes(path)
    repaired = 0
    for index, bit in flips(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= bit
        fs = FS.kill()
        fs.write_bytes(path, damaged, sync=True)
        target = opened(fs)
        assert answers(target) == GOLDEN, (name, index, bit)
        if any(segment.has_damaged_index for segment in target.segments):
            target.update_config(Bench().settings(**SETTINGS, retention_ms=-1))
            delete_old_segments(target, NOW_MS)
            assert fs.read_bytes(path) == whole, (name, index, bit)
            assert not any(segment.has_damaged_index for segment in target.segments)
            repaired += 1
    assert repaired > len(whole) / 16


def zeroed(data: bytes) -> bytes:
    return data[: len(data) // 3] + bytes(len(data) - len(data) // 3)


def torn(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3 + 1]


def overwritten(data: bytes) -> bytes:
    return random.Random(1).randbytes(len(data))


@pytest.mark.parametrize("damage", [zeroed, torn, overwritten])
@pytest.mark.parametrize("name", names_with(".index") + names_with(".timeindex"))
def test_torn_and_zeroed_indexes(name: str, damage: Callable[[bytes], bytes]) -> None:
    path = f"{BENCH.directory}/{name}"
    fs = FS.kill()
    fs.write_bytes(path, damage(FS.read_bytes(path)), sync=True)
    assert answers(opened(fs)) == GOLDEN


@pytest.mark.parametrize("name", names_with(".log"))
def test_a_flipped_bit_in_the_log_is_found_by_a_checksum(name: str) -> None:
    """After a crash recovery cuts it off; after a clean stop readers find the CRC of the batch wrong.

    Base offset and leader epoch are not under the CRC: in Kafka's format, too, what is wrong in them is not found.
    """
    path = f"{BENCH.directory}/{name}"
    whole = FS.read_bytes(path)
    bare = {at + byte for at, _ in iter_headers(whole) for byte in (*range(8), *range(12, 16))}
    for index, bit in flips(len(whole), step=7):
        if index in bare:
            continue
        damaged = bytearray(whole)
        damaged[index] ^= bit
        fs = FS.kill()
        fs.write_bytes(path, damaged, sync=True)
        recovered = contents(opened(fs.kill(), clean=False))
        assert recovered == GOLDEN_CONTENTS[: len(recovered)], (name, index)
        try:
            assert damage_is_refused(opened(fs), index, name), (name, index)
        except ApiError:
            continue


def damage_is_refused(target: Log, index: int, name: str) -> bool:
    """Return whether a consumer that checks CRCs accepts no batch with the damaged byte."""
    segment = next(segment for segment in target.segments if segment.path.endswith(name))
    raw = segment.read_slice(0, segment.size).read()
    try:
        for position, header in iter_headers(raw):  # ends before a batch that is cut short
            verify_crc(raw, position, header)
            if position <= index < position + header.size_in_bytes:
                return False
    except MalformedMessageError:
        return True
    return True


@pytest.mark.parametrize("damage", [zeroed, torn, overwritten])
@pytest.mark.parametrize("name", names_with(".log"))
def test_torn_and_zeroed_logs(name: str, damage: Callable[[bytes], bytes]) -> None:
    path = f"{BENCH.directory}/{name}"
    fs = FS.kill()
    fs.write_bytes(path, damage(FS.read_bytes(path)), sync=True)
    found = contents(opened(fs, clean=False))
    assert found == GOLDEN_CONTENTS[: len(found)]


def test_a_flipped_bit_in_a_snapshot_is_found_by_its_checksum() -> None:
    for name in names_with(".snapshot"):
        path = f"{BENCH.directory}/{name}"
        whole = FS.read_bytes(path)
        for index, bit in flips(len(whole)):
            damaged = bytearray(whole)
            damaged[index] ^= bit
            with pytest.raises(CorruptSnapshotError):
                read_snapshot(bytes(damaged))
    fs = FS.kill()
    for name in names_with(".snapshot"):
        fs.write_bytes(f"{BENCH.directory}/{name}", b"\0" * 40, sync=True)
    state = opened(fs).producer_state.entry(1)
    assert state is not None
    assert state.last_sequence == COUNT - 1


@pytest.mark.parametrize("damage", [zeroed, torn, overwritten])
def test_a_damaged_transaction_index_is_rebuilt(damage: Callable[[bytes], bytes]) -> None:
    (name,) = names_with(".txnindex")
    path = f"{BENCH.directory}/{name}"
    whole = FS.read_bytes(path)
    fs = FS.kill()
    fs.write_bytes(path, damage(whole), sync=True)
    assert answers(opened(fs)) == GOLDEN
    assert fs.read_bytes(path) == whole


def test_a_flipped_bit_in_a_transaction_index_changes_no_result() -> None:
    (name,) = names_with(".txnindex")
    path = f"{BENCH.directory}/{name}"
    whole = FS.read_bytes(path)
    rebuilt = 0
    for index in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[index] ^= 1 << bit
            fs = FS.kill()
            fs.write_bytes(path, damaged, sync=True)
            assert answers(opened(fs)) == GOLDEN, (index, bit)
            rebuilt += fs.read_bytes(path) == whole
    assert rebuilt > len(whole) * 8 * 3 / 4


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(".index", zeroed), (".index", torn), (".index", overwritten), (".timeindex", zeroed), (".timeindex", torn)],
)
def test_indexes_that_end_wrongly_are_rebuilt_at_start(suffix: str, damage: Callable[[bytes], bytes]) -> None:
    """A start compares the index with the batch that its last entry points at."""
    for name in names_with(suffix):
        path = f"{BENCH.directory}/{name}"
        whole = FS.read_bytes(path)
        fs = FS.kill()
        fs.write_bytes(path, damage(whole), sync=True)
        target = opened(fs)
        assert fs.read_bytes(path) == whole, name
        assert not any(segment.has_damaged_index for segment in target.segments)


@pytest.mark.parametrize("damage", [zeroed, torn, overwritten])
def test_damaged_checkpoints_are_noticed(damage: Callable[[bytes], bytes]) -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/a")
    checkpoint = OffsetCheckpoint(fs, "/a/cleaner-offset-checkpoint")
    checkpoint.write({TP: 123456})
    fs.write_bytes("/a/cleaner-offset-checkpoint", damage(fs.read_bytes("/a/cleaner-offset-checkpoint")), sync=True)
    with pytest.raises(CorruptCheckpointError):
        checkpoint.read()


def test_batches_out_of_order_are_cut_off() -> None:
    """Recovery checks that base offsets ascend."""
    (name, *_) = names_with(".log")
    path = f"{BENCH.directory}/{name}"
    whole = FS.read_bytes(path)
    positions = [position for position, _ in iter_headers(whole)]
    damaged = bytearray(whole)
    damaged[positions[5] + 7] = 2  # the sixth batch claims offset 2
    fs = FS.kill()
    fs.write_bytes(path, damaged, sync=True)
    assert contents(opened(fs, clean=False)) == GOLDEN_CONTENTS[:5]


def test_a_flipped_leader_epoch_in_a_reindexed_segment_has_no_effect() -> None:
    """It is not under the CRC of its batch; the checkpoint has a checksum and the right epoch."""
    (name, *_) = names_with(".log")
    fs = FS.kill()
    fs.unlink(f"{BENCH.directory}/{name.replace('.log', '.index')}")
    epochs = opened(fs.kill()).leader_epoch_cache.entries
    whole = fs.read_bytes(f"{BENCH.directory}/{name}")
    for position, _ in list(iter_headers(whole))[:5]:
        damaged = fs.kill()
        damaged.open(f"{BENCH.directory}/{name}").pwrite(b"\x40", position + 12)
        target = opened(damaged)
        assert target.leader_epoch_cache.entries == epochs
        assert contents(target) == GOLDEN_CONTENTS


@pytest.mark.parametrize("name", names_with(".log"))
def test_a_flipped_leader_epoch_that_the_next_batch_contradicts_has_no_effect(name: str) -> None:
    path = f"{BENCH.directory}/{name}"
    epochs = opened(FS.kill(), clean=False).leader_epoch_cache.entries
    assert [epoch for epoch, _ in epochs] == [0, 1, 2]
    batches = list(iter_headers(FS.read_bytes(path)))
    for position, header in batches[:-1]:
        fs = FS.kill()
        fs.open(path).pwrite(b"\x40", position + 12)
        target = opened(fs, clean=False)
        late = [(epoch, start + (start == header.base_offset)) for epoch, start in epochs]  # known from the next batch
        assert target.leader_epoch_cache.entries in (epochs, late)
        assert contents(target) == GOLDEN_CONTENTS


def with_damaged_base_offset(bench: Bench, bit: int) -> Log:
    """A log whose batch 6 has the greatest timestamp, and an offset that is too large. No checksum covers that."""
    target = bench.open(index_interval_bytes=200)
    began_ms = bench.clock.wall_ms()
    positions = []
    for number in range(12):
        positions.append(target.segments.active.size)
        bench.append(target, "x" * 150, timestamp=began_ms + (5_000 if number == 6 else 0))
    bench.fs.open(target.segments.active.path).pwrite(struct.pack(">q", 6 | 1 << bit), positions[6])
    return target


@pytest.mark.parametrize("bit", [40, 20, 5])
def test_appends_go_on_after_the_base_offset_of_a_batch_was_damaged(bit: int) -> None:
    bench = Bench()
    target = with_damaged_base_offset(bench, bit)
    target.segments.active.translate(6, target.segments.active.size)  # a lookup finds the damage
    assert target.rebuild_damaged_indexes() == 1
    for _ in range(40):
        bench.append(target, "y" * 150)
    assert target.log_end_offset == 52
    assert target.segments.active.offset_index.last_offset > 49
    target.close()


@pytest.mark.parametrize("bit", [40, 20, 5])
def test_appends_go_on_after_indexes_were_rebuilt_from_a_damaged_base_offset(bit: int) -> None:
    bench = Bench()
    target = with_damaged_base_offset(bench, bit)
    path = target.segments.active.path
    target.close()
    bench.fs.unlink(path.replace(".log", ".timeindex"))
    target = bench.open(index_interval_bytes=200, clean=True)
    end = target.log_end_offset
    for _ in range(40):
        bench.append(target, "y" * 150)
    target.roll()
    assert target.log_end_offset == end + 40


def test_no_flush_runs_while_indexes_are_rebuilt() -> None:
    """It would open an index that is being replaced, and take its log directory offline."""
    were_locked = []

    def note(operation: str, path: str) -> bool:
        if operation == "unlink" and path.endswith("index"):
            were_locked.append(target._state.flush_lock.locked())
        return False

    bench = Bench(FaultyFileSystem(MemoryFileSystem(), matches=note))
    target = with_damaged_base_offset(bench, 5)
    target.flush()
    target.segments.active.write_index_tails()
    target.segments.active.translate(6, target.segments.active.size)
    assert target.rebuild_damaged_indexes() == 1
    assert were_locked
    assert all(were_locked)


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize("interval", [200, 4096])
def test_a_truncation_keeps_what_is_below_it_though_a_base_offset_before_is_damaged(
    interval: int, is_rebuilt: bool
) -> None:
    """Batch 1 claims offset 9, so that it looks like the first that is to be cut."""
    bench = Bench()
    target = bench.open(index_interval_bytes=interval)
    positions = []
    for _ in range(12):
        positions.append(target.segments.active.size)
        bench.append(target, "x" * 150)
    bench.fs.open(target.segments.active.path).pwrite(struct.pack(">q", 9), positions[1])
    if is_rebuilt:
        target.segments.active.translate(1, target.segments.active.size)
        target.rebuild_damaged_indexes()
    target.truncate_to(8)
    assert (target.log_end_offset, target.segments.active.size) == (8, positions[8])


def test_a_rebuilt_time_index_has_the_greatest_timestamp_though_a_base_offset_before_is_damaged() -> None:
    bench = Bench()
    target = bench.open(index_interval_bytes=200, message_timestamp_after_max_ms=2**62)
    began_ms = bench.clock.wall_ms()
    positions = []
    for number in range(12):
        positions.append(target.segments.active.size)
        bench.append(target, "x" * 150, timestamp=began_ms + {1: 1_000, 3: 9_000}.get(number, 0))
    bench.fs.open(target.segments.active.path).pwrite(struct.pack(">q", 9), positions[1])
    target.segments.active.translate(1, target.segments.active.size)
    assert target.rebuild_damaged_indexes() == 1
    target.roll()
    target.flush()
    target.close()
    again = bench.open(index_interval_bytes=200, clean=True)
    assert again.segments.first.largest_timestamp == began_ms + 9_000
    found = again.fetch_offset_by_timestamp(began_ms + 2_000)
    assert found is not None
    assert found.offset == 3
