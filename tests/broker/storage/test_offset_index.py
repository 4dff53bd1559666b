"""The offset index: golden bytes, lookups in file and tail, truncation, damage."""

from __future__ import annotations

import pytest

from barnabas.common.faulty_files import MemoryFileSystem
from broker.storage.index import TAIL_ENTRIES_MAX, CorruptIndexError
from broker.storage.offset_index import OffsetIndex

PATH = "/d/00000000000000000100.index"


@pytest.fixture
def fs() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    return disk


def filled(fs: MemoryFileSystem, count: int, size_max: int = 1 << 20) -> OffsetIndex:
    index = OffsetIndex(fs, PATH, 100, size_max)
    for number in range(count):
        index.append(110 + number * 10, number * 1000)
    return index


def test_golden_bytes(fs: MemoryFileSystem) -> None:
    index = filled(fs, 3)
    index.close()
    assert fs.read_bytes(PATH).hex() == "0000000a00000000" + "00000014000003e8" + "0000001e000007d0"


@pytest.mark.parametrize("count", [0, 1, 5, TAIL_ENTRIES_MAX - 1, TAIL_ENTRIES_MAX, 3 * TAIL_ENTRIES_MAX + 7])
@pytest.mark.parametrize("reopened", [False, True])
def test_lookups(fs: MemoryFileSystem, count: int, reopened: bool) -> None:
    index = filled(fs, count)
    if reopened:
        index.close()
        index = OffsetIndex(fs, PATH, 100, 1 << 20)
    assert index.entry_count == count
    assert index.lookup(109) == (100, 0)
    for number in {0, 1, count // 2, count - 2, count - 1} & set(range(count)):
        for offset in (110 + number * 10, 119 + number * 10):
            assert index.lookup(offset) == (110 + number * 10, number * 1000)
    if count:
        assert index.lookup(10**9) == index.last_entry == (100 + count * 10, (count - 1) * 1000)
        assert index.upper_bound(0, 1000) == ((120, 1000) if count > 1 else None)


@pytest.mark.parametrize(
    "kept", [0, 1, TAIL_ENTRIES_MAX - 1, TAIL_ENTRIES_MAX, TAIL_ENTRIES_MAX + 5, TAIL_ENTRIES_MAX + 20]
)
def test_truncation(fs: MemoryFileSystem, kept: int) -> None:
    index = filled(fs, TAIL_ENTRIES_MAX + 20)
    index.truncate_to(110 + kept * 10)
    assert index.entry_count == kept
    assert index.last_offset == (100 + kept * 10 if kept else 100)
    index.append(10**6, 10**6)
    index.close()
    assert list(OffsetIndex(fs, PATH, 100, 1 << 20).entries())[-1] == (10**6, 10**6)
    index.reset()
    assert fs.size(PATH) == 0


def test_it_fills_up(fs: MemoryFileSystem) -> None:
    index = filled(fs, 2, size_max=17)
    assert index.is_full
    with pytest.raises(AssertionError):
        index.append(10**6, 1)
    index.resize(100)
    assert not index.is_full


def test_offsets_ascend(fs: MemoryFileSystem) -> None:
    index = filled(fs, 2)
    with pytest.raises(AssertionError):
        index.append(120, 5000)


def test_sanity(fs: MemoryFileSystem) -> None:
    index = OffsetIndex(fs, PATH, 100, 1 << 20)
    with pytest.raises(FileNotFoundError):
        index.sanity_check()
    fs.write_bytes(PATH, b"123", sync=True)
    with pytest.raises(CorruptIndexError):
        OffsetIndex(fs, PATH, 100, 1 << 20).sanity_check()
    fs.write_bytes(PATH, b"\xff" * 8, sync=True)
    with pytest.raises(CorruptIndexError):
        OffsetIndex(fs, PATH, 100, 1 << 20).sanity_check()
    fs.write_bytes(PATH, bytes(8), sync=True)
    OffsetIndex(fs, PATH, 100, 1 << 20).sanity_check()


def test_a_lookup_survives_deletion(fs: MemoryFileSystem) -> None:
    index = filled(fs, TAIL_ENTRIES_MAX)
    index.delete()
    assert index.lookup(500) == (100, 0)


def test_renaming_takes_the_file_along(fs: MemoryFileSystem) -> None:
    index = filled(fs, 3)
    index.rename(PATH + ".deleted")
    index.write_tail()
    assert fs.exists(PATH + ".deleted")
    index.rename(PATH)
    assert fs.exists(PATH)
