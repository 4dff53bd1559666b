"""The time index: golden bytes, appends, lookups, truncation."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.broker.storage.segments.time_index import TimeIndex
from barnabas.common.disk.faulty_files import MemoryFileSystem

PATH = "/d/00000000000000000100.timeindex"


@pytest.fixture
def index() -> TimeIndex:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    return TimeIndex(fs, PATH, 100, 12 * 5)


def test_golden_bytes(index: TimeIndex) -> None:
    index.maybe_append(1357034400000, 107)
    index.close()
    assert index._fs.read_bytes(PATH).hex() == "0000013bf58da900" + "00000007"


def test_only_greater_timestamps_are_kept(index: TimeIndex) -> None:
    for timestamp, offset in ((10, 101), (10, 102), (5, 103), (-1, 104), (11, 105)):
        index.maybe_append(timestamp, offset)
    assert list(index.entries()) == [(10, 101), (11, 105)]
    assert [index.lookup(timestamp) for timestamp in (9, 10, 11, 99)] == [(-1, 100), (10, 101), (11, 105), (11, 105)]


def test_the_last_slot_is_reserved(index: TimeIndex) -> None:
    for number in range(4):
        index.maybe_append(number, 100 + number)
    assert index.is_full
    with pytest.raises(AssertionError):
        index.maybe_append(9, 109)
    index.maybe_append(9, 109, skip_full_check=True)
    assert index.last_entry == (9, 109)


@pytest.mark.parametrize("offset", [99, 100 + 2**31])
def test_an_offset_that_the_segment_cannot_hold_is_left_out(index: TimeIndex, offset: int) -> None:
    index.maybe_append(1, offset)
    assert (index.entry_count, index.last_entry) == (0, (-1, 100))


def test_an_offset_below_the_last_is_left_out(index: TimeIndex) -> None:
    index.maybe_append(1, 105)
    index.maybe_append(2, 104)
    assert list(index.entries()) == [(1, 105)]


def test_truncation_goes_by_offset(index: TimeIndex) -> None:
    for number in range(4):
        index.maybe_append(number, 100 + number)
    index.truncate_to(102)
    assert list(index.entries()) == [(0, 100), (1, 101)]
    index.reset()
    assert (index.entry_count, index.last_entry) == (0, (-1, 100))


@pytest.mark.parametrize(
    "data", [b"123", bytes(11) + b"\x05" + bytes(7) + b"\x09" + b"\xff" * 4, bytes(7) + b"\x09" + bytes(16)]
)
def test_damage_is_found(index: TimeIndex, data: bytes) -> None:
    index._fs.write_bytes(PATH, data, sync=True)
    with pytest.raises(CorruptIndexError):
        TimeIndex(index._fs, PATH, 100, 60).sanity_check()
