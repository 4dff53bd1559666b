"""Plain batches are found by C and by Python alike; everything else is left to those who look for its error."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from barnabas.protocol.records import plain
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    SimpleRecord,
    build_batch,
    read_header,
    records_payload,
    update_crc,
    write_offset_and_epoch,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.walk import summarize


def implementations(name: str, fallback: Callable[..., object]) -> dict[str, Callable[..., object]]:
    """The fallback, and the function in C if it was built."""
    try:
        from barnabas.protocol.records import _walk
    except ImportError:
        return {"Python": fallback}
    return {"Python": fallback, "C": getattr(_walk, name)}


READERS = implementations("read_plain", plain.find_plain)
PEEKERS = implementations("peek_one", plain.find_one)


@pytest.fixture(params=READERS)
def find(request: pytest.FixtureRequest) -> Callable[..., object]:
    """Each implementation of `find_plain`."""
    return READERS[request.param]


@pytest.fixture(params=PEEKERS)
def peek(request: pytest.FixtureRequest) -> Callable[..., object]:
    """Each implementation of `find_one`."""
    return PEEKERS[request.param]


def made(count: int = 1, size: int = 100, **options: int) -> bytearray:
    records = [SimpleRecord(1_000 - 7 * index, b"k" if index % 2 else None, bytes(size)) for index in range(count)]
    return bytearray(build_batch(records, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("count", "size"), [(1, 0), (1, 100), (16, 1), (9, 100), (10, 100), (16, 1_000), (2, 200_000)])
def test_a_plain_batch_is_read_whole(
    find: Callable[..., object], buffer: Callable[[bytearray], object], count: int, size: int
) -> None:
    batch = made(count, size, producer_id=2**40, producer_epoch=3, base_sequence=2**31 - 1)
    header = read_header(batch)
    summary = summarize(records_payload(batch, 0, header), count)
    assert find(buffer(batch)) == (*header.fields(), *summary)


def test_of_a_plain_batch_all_is_at_hand() -> None:
    batch = made(3)
    found = plain.read_plain(memoryview(batch))
    assert found is not None
    header, summary = found
    assert header == read_header(batch)
    assert summary.payload == batch[HEADER_SIZE:]
    assert (summary.timestamp_delta_min, summary.timestamp_delta_max) == (-14, 0)
    assert (summary.offsets_are_contiguous, summary.keyless) == (True, 2)


WRITERS = implementations("set_offset_and_epoch", write_offset_and_epoch)


@pytest.mark.parametrize("name", WRITERS)
def test_a_leader_writes_where_a_batch_begins_and_its_epoch(name: str) -> None:
    batch = made(2)
    before = read_header(batch)
    for offset, epoch in ((2**62, 2**31 - 1), (0, 0), (5, -1)):
        WRITERS[name](memoryview(batch), offset, epoch)
        assert read_header(batch) == before.replace(base_offset=offset, partition_leader_epoch=epoch)


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_out_of_range_or_into_what_is_fixed(name: str) -> None:
    for offset, epoch in ((2**63, 0), (0, 2**31)):
        with pytest.raises((OverflowError, ValueError, struct.error)):
            WRITERS[name](made(), offset, epoch)
    fixed = bytes(made())
    for buffer in (fixed, memoryview(fixed)):
        with pytest.raises((TypeError, BufferError)):
            WRITERS[name](buffer, 0, 0)


def with_crc(batch: bytearray) -> bytearray:
    update_crc(batch, 0, len(batch))
    return batch


def patched(position: int, value: int, batch: bytearray | None = None) -> bytearray:
    batch = made(3) if batch is None else batch
    batch[position] = value
    return batch


NOT_PLAIN = {
    "nothing": bytearray(),
    "a part of a header": made()[: HEADER_SIZE - 1],
    "a batch and a byte": made() + b"x",
    "two batches": made() + made(),
    "a cut batch": made()[:-1],
    "an older format": patched(16, 1),
    "a newer format": patched(16, 3),
    "a negative length": patched(8, 0xFF),
    "a wrong CRC": patched(17, 0x5A),
    "a large batch with a wrong CRC": patched(900, 1, made(3, 1_000)),
    "compressed records": bytearray(build_batch([SimpleRecord(1, b"k", b"v")], compression=CompressionType.GZIP)),
    "a damaged record": with_crc(patched(HEADER_SIZE, 1)),
    "too few records": with_crc(patched(60, 2)),
    "a negative number of records": with_crc(patched(57, 0xFF)),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_no_other_batch_is_read(find: Callable[..., object], what: str) -> None:
    assert find(memoryview(NOT_PLAIN[what])) is None


def test_no_buffer_is_an_error(find: Callable[..., object], peek: Callable[..., object]) -> None:
    for call in (find, peek):
        with pytest.raises(TypeError):
            call(None)


def test_one_whole_batch_is_told_by_its_attributes(peek: Callable[..., object]) -> None:
    assert peek(made()) == 0
    assert peek(memoryview(made(2, is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))) == 0x10
    assert peek(NOT_PLAIN["compressed records"]) == 1
    assert peek(NOT_PLAIN["a wrong CRC"]) == 0


@pytest.mark.parametrize(
    "what", ["nothing", "a part of a header", "a batch and a byte", "two batches", "a cut batch", "an older format"]
)
def test_anything_else_is_not_one_whole_batch(peek: Callable[..., object], what: str) -> None:
    assert peek(NOT_PLAIN[what]) == -1


@pytest.mark.parametrize("seed", range(20))
def test_c_and_python_find_the_same_in_damaged_batches(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        batch = made(chance.randint(1, 5), chance.randint(0, 400))
        for _ in range(chance.randint(0, 2)):
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        if chance.random() < 0.7:
            update_crc(batch, 0, len(batch))
        if chance.random() < 0.1:
            del batch[chance.randrange(len(batch)) :]
        for calls in (READERS, PEEKERS):
            found = [call(memoryview(batch)) for call in calls.values()]
            assert found.count(found[0]) == len(found), batch.hex()
