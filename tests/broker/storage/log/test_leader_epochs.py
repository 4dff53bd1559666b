"""Leader epochs: assigning, end offsets as in KIP-279, truncation, the file."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.directories.checksums import add_to_entries
from barnabas.broker.storage.log.leader_epochs import LeaderEpochCache
from barnabas.common.disk.faulty_files import MemoryFileSystem

PATH = "/d/leader-epoch-checkpoint"


@pytest.fixture
def fs() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    return disk


@pytest.fixture
def cache(fs: MemoryFileSystem) -> LeaderEpochCache:
    made = LeaderEpochCache(fs, PATH)
    for epoch, start in ((2, 6), (3, 8), (4, 11)):
        made.assign(epoch, start)
    return made


def test_golden_file(fs: MemoryFileSystem, cache: LeaderEpochCache) -> None:
    cache.flush()
    assert fs.read_bytes(PATH) == add_to_entries(b"0\n3\n2 6\n3 8\n4 11\n")
    assert LeaderEpochCache(fs, PATH).entries == [(2, 6), (3, 8), (4, 11)]


def test_an_empty_cache(fs: MemoryFileSystem) -> None:
    empty = LeaderEpochCache(fs, PATH)
    assert (empty.latest_epoch, empty.earliest, empty.epoch_for_offset(3)) == (-1, None, -1)
    assert empty.end_offset_for(0, 10) == (-1, -1)
    assert not fs.exists(PATH)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 6)), (1, (1, 6)), (2, (2, 8)), (3, (3, 11)), (4, (4, 20)), (5, (-1, -1))],
)
def test_end_offsets(cache: LeaderEpochCache, epoch: int, answer: tuple[int, int]) -> None:
    assert cache.end_offset_for(epoch, 20) == answer


def test_the_largest_epoch_not_above(fs: MemoryFileSystem) -> None:
    cache = LeaderEpochCache(fs, PATH)
    cache.assign(1, 0)
    cache.assign(7, 5)
    assert cache.end_offset_for(4, 20) == (1, 5)


def test_assigning_again_changes_nothing(cache: LeaderEpochCache) -> None:
    cache.assign(4, 15)
    assert cache.entries[-1] == (4, 11)


def test_assigning_drops_contradicting_epochs(cache: LeaderEpochCache) -> None:
    cache.assign(5, 9)
    assert cache.entries == [(2, 6), (3, 8), (5, 9)]
    cache.assign(3, 20)
    assert cache.entries == [(2, 6), (3, 20)]


def test_several_changes_schedule_one_flush(fs: MemoryFileSystem) -> None:
    scheduled: list[None] = []
    cache = LeaderEpochCache(fs, PATH)
    cache.flush_by(lambda: scheduled.append(None))
    cache.assign(1, 0)
    cache.assign(2, 5)
    assert (len(scheduled), fs.exists(PATH)) == (1, False)
    cache.flush()
    assert LeaderEpochCache(fs, PATH).entries == [(1, 0), (2, 5)]
    before = fs.read_bytes(PATH)
    fs.unlink(PATH)
    cache.flush()
    assert not fs.exists(PATH), "nothing has changed since"
    cache.truncate_from_end(5)
    assert len(scheduled) == 2
    assert before == add_to_entries(b"0\n2\n1 0\n2 5\n")


def test_changes_before_flush_by_schedule_a_flush_then(cache: LeaderEpochCache) -> None:
    scheduled: list[None] = []
    cache.flush_by(lambda: scheduled.append(None))
    assert len(scheduled) == 1


def test_lookups(cache: LeaderEpochCache) -> None:
    assert [cache.epoch_for_offset(offset) for offset in (5, 6, 7, 8, 11, 99)] == [-1, 2, 2, 3, 4, 4]
    assert (cache.latest_epoch, cache.earliest) == (4, (2, 6))


def test_truncation(fs: MemoryFileSystem, cache: LeaderEpochCache) -> None:
    cache.truncate_from_end(11)
    cache.flush()
    assert cache.entries == LeaderEpochCache(fs, PATH).entries == [(2, 6), (3, 8)]
    cache.truncate_from_start(7)
    assert cache.entries == [(2, 7), (3, 8)]
    cache.truncate_from_start(9)
    assert cache.entries == [(3, 9)]
    cache.truncate_from_start(2)
    assert cache.entries == [(3, 9)]
    cache.clear()
    assert cache.entries == LeaderEpochCache(fs, PATH).entries == []


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_negative_values_are_refused(cache: LeaderEpochCache, epoch: int, start: int) -> None:
    with pytest.raises(ValueError):
        cache.assign(epoch, start)
