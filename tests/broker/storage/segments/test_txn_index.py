"""The transaction index: golden bytes, collecting, truncation, damage."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.broker.storage.segments.txn_index import AbortedTxn, TransactionIndex
from barnabas.common.disk.faulty_files import MemoryFileSystem

PATH = "/d/00000000000000000000.txnindex"
ENTRIES = [AbortedTxn(1, 0, 10, 11), AbortedTxn(2, 5, 15, 13), AbortedTxn(1, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]


@pytest.fixture
def fs() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    return disk


@pytest.fixture
def index(fs: MemoryFileSystem) -> TransactionIndex:
    made = TransactionIndex(fs, PATH, 0)
    for entry in ENTRIES:
        made.append(entry)
    return made


def test_no_file_before_the_first_entry(fs: MemoryFileSystem) -> None:
    index = TransactionIndex(fs, PATH, 0)
    index.flush()
    index.reset()
    assert index.is_empty
    assert not fs.exists(PATH)


def test_golden_bytes(fs: MemoryFileSystem, index: TransactionIndex) -> None:
    assert fs.read_bytes(PATH)[:34].hex() == "0000" + "".join(f"{n:016x}" for n in (1, 0, 10, 11))
    assert fs.size(PATH) == 4 * 34
    assert list(TransactionIndex(fs, PATH, 0).entries()) == ENTRIES


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [
        (0, 100, ENTRIES, False),
        (0, 32, ENTRIES[:3], True),
        (0, 35, ENTRIES, True),
        (10, 35, ENTRIES, True),
        (11, 35, ENTRIES[1:], True),
        (20, 41, ENTRIES[2:], False),
    ],
)
def test_collecting(index: TransactionIndex, start: int, end: int, found: list[AbortedTxn], complete: bool) -> None:
    assert index.collect(start, end) == (found, complete)


def test_order_is_kept(index: TransactionIndex) -> None:
    with pytest.raises(AssertionError):
        index.append(AbortedTxn(9, 1, 50, 51))


def test_truncation(fs: MemoryFileSystem, index: TransactionIndex) -> None:
    for offset, kept in ((51, 4), (50, 3), (16, 2), (10, 0)):
        index.truncate_to(offset)
        assert list(index.entries()) == ENTRIES[:kept]
    index.append(AbortedTxn(9, 1, 12, 13))
    assert fs.size(PATH) == 34


def test_sanity(fs: MemoryFileSystem, index: TransactionIndex) -> None:
    index.sanity_check()
    with pytest.raises(CorruptIndexError):
        TransactionIndex(fs, PATH, 11).sanity_check()
    fs.write_bytes(PATH, fs.read_bytes(PATH)[:-1], sync=True)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(fs, PATH, 0).sanity_check()
    fs.write_bytes(PATH, b"\x00\x09" + bytes(32), sync=True)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(fs, PATH, 0).sanity_check()
