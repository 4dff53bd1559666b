"""Producer state: snapshot bytes, loading, truncation, open transactions.

Tests `storage/producers/producer_state.py`, `storage/producers/producer_entry.py`,
`storage/producers/producer_append.py`, `storage/producers/snapshots.py` and `storage/producers/log_producers.py`.
"""

from __future__ import annotations

import struct

import crc32c
import pytest

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.producers.snapshots import CorruptSnapshotError, format_snapshot, read_snapshot
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import ControlType, EndTxnMarker, SimpleRecord, build_batch, read_header

CLOCK = FakeClock()


@pytest.fixture
def fs() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    return disk


@pytest.fixture
def state(fs: MemoryFileSystem) -> ProducerStateManager:
    return manager(fs)


def manager(fs: MemoryFileSystem) -> ProducerStateManager:
    return ProducerStateManager(fs, "/d", TopicPartition("flights", 0), CLOCK)


def append(
    state: ProducerStateManager,
    offset: int,
    sequence: int,
    *,
    epoch: int = 0,
    producer_id: int = 1,
    transactional: bool = False,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> None:
    batch = build_batch(
        [SimpleRecord(CLOCK.wall_ms(), None, b"v")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    header = read_header(batch)
    change = state.prepare(producer_id, origin)
    change.append_data(header, offset, offset, CLOCK.wall_ms())
    state.apply(change)
    state.map_end_offset = offset + 1


def end(
    state: ProducerStateManager,
    offset: int,
    kind: ControlType,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    version: int = 0,
) -> int | None:
    header = read_header(build_batch([SimpleRecord(0, None, None)], producer_id=producer_id, producer_epoch=epoch))
    change = state.prepare(producer_id, AppendOrigin.COORDINATOR)
    done = change.append_marker(EndTxnMarker(kind, 0), header, offset, CLOCK.wall_ms(), version)
    state.apply(change)
    state.map_end_offset = offset + 1
    if done is None:
        return None
    stable = state.last_stable_offset_after(done)
    state.complete(done)
    return stable


def test_golden_snapshot() -> None:
    entry = ProducerEntry(5, 2, 7, 1000, 40)
    entry.batches.append(BatchMetadata(9, 44, 3, 1000))
    body = (
        "00000001"
        + "0000000000000005"
        + "0002"
        + "00000009"
        + "000000000000002c"
        + "00000003"
        + "00000000000003e8"
        + "00000007"
        + "0000000000000028"
    )
    crc = crc32c.crc32c(bytes.fromhex(body))
    data = format_snapshot([entry])
    assert data.hex() == "0001" + f"{crc:08x}" + body
    (read,) = read_snapshot(data)
    assert (read.producer_id, read.epoch, read.coordinator_epoch, read.last_timestamp, read.txn_first_offset) == (
        5,
        2,
        7,
        1000,
        40,
    )
    assert list(read.batches) == [BatchMetadata(9, 44, 3, 1000)]


def test_a_producer_without_batches() -> None:
    (read,) = read_snapshot(format_snapshot([ProducerEntry(5, 1)]))
    assert (read.last_sequence, read.last_offset, list(read.batches)) == (-1, -1, [])


def test_any_damage_to_a_snapshot_is_found() -> None:
    data = format_snapshot([ProducerEntry(5, 1), ProducerEntry(6, 1)])
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 1
        for bad in (bytes(damaged), data[:index]):
            with pytest.raises(CorruptSnapshotError):
                read_snapshot(bad)
    body = struct.pack(">i", 99)
    with pytest.raises(CorruptSnapshotError):
        read_snapshot(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)


def test_snapshots_are_written_once_and_loaded(fs: MemoryFileSystem, state: ProducerStateManager) -> None:
    assert not state.take_snapshot()
    append(state, 0, 0)
    assert state.take_snapshot()
    assert not state.take_snapshot()
    append(state, 1, 1, transactional=True)
    assert state.take_snapshot()
    again = manager(fs)
    assert again.snapshot_offsets == (1, 2)
    again.truncate_and_reload(0, 2, CLOCK.wall_ms())
    entry = again.entry(1)
    assert entry is not None
    assert (entry.last_sequence, entry.txn_first_offset, again.map_end_offset) == (1, 1, 2)
    assert again.first_unstable_offset == 1


def test_an_older_snapshot_replaces_a_damaged_one(fs: MemoryFileSystem, state: ProducerStateManager) -> None:
    for offset in range(3):
        append(state, offset, offset)
        state.take_snapshot()
    fs.write_bytes("/d/00000000000000000003.snapshot", b"x", sync=True)
    again = manager(fs)
    again.truncate_and_reload(0, 3, CLOCK.wall_ms())
    assert again.map_end_offset == 2
    assert again.snapshot_offsets == (1, 2)


def test_expired_producers_are_not_loaded(fs: MemoryFileSystem, state: ProducerStateManager) -> None:
    append(state, 0, 0)
    state.take_snapshot()
    again = manager(fs)
    again.truncate_and_reload(0, 1, CLOCK.wall_ms() + 86_400_000)
    assert again.is_empty


def test_truncation_drops_snapshots_outside(fs: MemoryFileSystem, state: ProducerStateManager) -> None:
    for offset in range(4):
        append(state, offset, offset)
        state.take_snapshot()
    state.truncate_and_reload(1, 3, CLOCK.wall_ms())
    assert state.snapshot_offsets == (2, 3)
    state.truncate_fully_and_start_at(50)
    assert (state.snapshot_offsets, state.map_end_offset, state.is_empty) == ((), 50, True)


def test_stray_snapshots(fs: MemoryFileSystem) -> None:
    for offset in (5, 10, 12, 20, 25):
        fs.write_bytes(f"/d/{offset:020d}.snapshot", b"", sync=True)
    state = manager(fs)
    state.remove_stray_snapshots([0, 10, 20])
    assert state.snapshot_offsets == (10, 20, 25)
    state.remove_stray_snapshots([0, 10, 30])
    assert state.snapshot_offsets == (10,)


def test_the_last_stable_offset_follows_transactions(state: ProducerStateManager) -> None:
    append(state, 0, 0, producer_id=1, transactional=True)
    append(state, 1, 0, producer_id=2, transactional=True)
    assert state.first_unstable_offset == 0
    assert end(state, 2, ControlType.ABORT, producer_id=1) == 1
    assert state.first_unstable_offset == 0, "its marker is not replicated yet"
    state.on_high_watermark(3)
    assert state.first_unstable_offset == 1
    assert end(state, 3, ControlType.COMMIT, producer_id=2) == 4
    state.on_high_watermark(4)
    assert state.first_unstable_offset is None


def test_a_marker_without_a_transaction(state: ProducerStateManager) -> None:
    assert end(state, 0, ControlType.COMMIT) is None


def test_markers_of_transactions_version_2_must_bump_the_epoch(state: ProducerStateManager) -> None:
    append(state, 0, 0, epoch=3, transactional=True)
    with pytest.raises(ApiError) as caught:
        end(state, 1, ControlType.COMMIT, epoch=3, version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(state, 1, ControlType.COMMIT, epoch=4, version=2) == 2
    assert end(state, 2, ControlType.COMMIT, epoch=4, version=2) is None, "a repeated marker"
    entry = state.entry(1)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence) == (4, -1)


def test_a_failed_check_changes_nothing(state: ProducerStateManager) -> None:
    append(state, 0, 0)
    with pytest.raises(ApiError):
        append(state, 1, 5)
    entry = state.entry(1)
    assert entry is not None
    assert entry.last_sequence == 0


def test_a_follower_refuses_no_epoch(state: ProducerStateManager) -> None:
    append(state, 0, 0, epoch=2)
    append(state, 1, 9, epoch=1, origin=AppendOrigin.REPLICATION)
