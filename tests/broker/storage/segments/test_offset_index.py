"""The offset index: golden bytes, lookups in file and tail, truncation, damage.

Tests `storage/segments/offset_index.py` and its base, `storage/segments/index.py`.
"""

from __future__ import annotations

import random
import threading

import pytest

from barnabas.broker.storage.segments.index import TAIL_ENTRIES_MAX, CorruptIndexError
from barnabas.broker.storage.segments.offset_index import OffsetIndex
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem

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


def test_renaming_renames_the_file(fs: MemoryFileSystem) -> None:
    index = filled(fs, 3)
    index.rename(PATH + ".deleted")
    index.write_tail()
    assert fs.exists(PATH + ".deleted")
    index.rename(PATH)
    assert fs.exists(PATH)


def test_entries_in_the_file_are_found_through_a_map(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(fs, 3 * TAIL_ENTRIES_MAX)
    assert len(fs.open_maps) == 0, "not before the first lookup"
    monkeypatch.setattr(fs, "open", None)
    made = []
    real = fs.map
    monkeypatch.setattr(fs, "map", lambda path, size: made.append(size) or real(path, size))
    for number in range(0, 3 * TAIL_ENTRIES_MAX, 7):
        assert index.lookup(115 + number * 10) == (110 + number * 10, number * 1000)
    assert index.upper_bound(0, 1) == (120, 1000)
    assert made == [3 * TAIL_ENTRIES_MAX * 8]
    assert len(fs.open_maps) == 1
    index.release()
    assert len(fs.open_maps) == 0


def test_the_map_grows_with_the_file(fs: MemoryFileSystem) -> None:
    index = filled(fs, TAIL_ENTRIES_MAX)
    for number in range(TAIL_ENTRIES_MAX, 4 * TAIL_ENTRIES_MAX):
        assert index.lookup(110) == (110, 0)
        index.append(110 + number * 10, number * 1000)
        assert index.lookup(10**9) == (110 + number * 10, number * 1000)
        assert index.lookup(115 + (number - 1) * 10) == (110 + (number - 1) * 10, (number - 1) * 1000)


def test_an_index_that_dropped_its_map_maps_again(fs: MemoryFileSystem) -> None:
    fs.open_maps.limit = 2
    indexes = [OffsetIndex(fs, f"/d/{number:020d}.index", 0, 1 << 20) for number in range(4)]
    for index in indexes:
        for number in range(TAIL_ENTRIES_MAX):
            index.append(number + 1, number)
    for _ in range(3):
        for index in indexes:
            assert index.lookup(7) == (7, 6)
            assert len(fs.open_maps) <= 2


def test_a_file_that_is_missing_or_too_short_costs_a_scan(fs: MemoryFileSystem) -> None:
    index = filled(fs, TAIL_ENTRIES_MAX)
    fs.open(PATH).truncate(80)
    assert index.lookup(10**6) == (100, 0)
    assert index.upper_bound(0, 1) is None
    index.truncate_to(500)
    assert index.entry_count == 0


def test_a_disk_error_is_raised(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyFileSystem(fs)
    index = OffsetIndex(disk, PATH, 100, 1 << 20)
    for number in range(TAIL_ENTRIES_MAX):
        index.append(110 + number, number)

    class Broken:
        size = TAIL_ENTRIES_MAX * 8

        def read(self, _size: int, _position: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "map", lambda _path, _size: Broken())
    with pytest.raises(OSError, match="Input/output"):
        index.lookup(200)


def test_lookups_continue_while_the_index_is_truncated(tmp_path: object) -> None:
    """On a real disk: a read of a map past its file's end would kill this process."""
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/00000000000000000000.index", 0, 1 << 20)
    stop = threading.Event()
    wrong: list[object] = []

    def look() -> None:
        chance = random.Random(threading.get_ident())
        while not stop.is_set():
            offset = chance.randrange(40_000)
            found, position = index.lookup(offset)
            if found > offset or position != found * 3:
                wrong.append((offset, found, position))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    chance = random.Random(1)
    last = 0
    for _ in range(150):
        for _ in range(chance.randrange(400)):
            last += 10
            index.append(last, last * 3)
        last = chance.randrange(last + 1)
        index.truncate_to(last)
        last = index.last_offset
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
