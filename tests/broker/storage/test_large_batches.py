"""Records of client batches are looked at one after another, and large ones by one thread at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.broker.storage.large_batches import LARGE_BATCH, first_offset, first_record
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import Record, SimpleRecord, build_batch, read_header, read_stored_header
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.message_set import MAGIC_V0, MAGIC_V1, encode_message, encode_wrapper


def batch_of(*sizes: int) -> bytes:
    records = [SimpleRecord(index, None, bytes(size), (("h", b"x"),)) for index, size in enumerate(sizes)]
    return build_batch(records, base_offset=50, compression=CompressionType.ZSTD)


def find(batch: bytes, timestamp: int) -> Record | None:
    return first_record(batch, read_header(batch), lambda record: record.timestamp >= timestamp, ordinary_max=100_000)


def test_the_first_one_that_is_wanted_is_found_without_its_headers() -> None:
    found = find(batch_of(1, 1, 1), 1)
    assert found is not None
    assert (found.offset, found.timestamp, found.headers) == (51, 1, ())
    assert find(batch_of(1, 1, 1), 3) is None


def test_damage_is_found() -> None:
    batch = bytearray(batch_of(1000))
    batch[-20:] = bytes(20)
    with pytest.raises(MalformedMessageError):
        find(bytes(batch), 0)


def test_a_large_batch_waits_for_another_one() -> None:
    with LARGE_BATCH, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(find, batch_of(200_000), 0)
        assert find(batch_of(90_000), 0) is not None
        assert not waiting.done()
        LARGE_BATCH.release()
        try:
            assert waiting.result(30) is not None
        finally:
            LARGE_BATCH.acquire()


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1])
def test_the_first_offset_of_a_large_wrapper_waits_for_another_large_batch(magic: int) -> None:
    inner = b"".join(encode_message(magic, at, 1, None, bytes(100_000)) for at in (5, 6))
    wrapper = encode_wrapper(CompressionType.GZIP, magic, 6, 1, inner)
    with LARGE_BATCH, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first_offset, wrapper, read_stored_header(wrapper), 100_000)
        assert first_offset(wrapper, read_stored_header(wrapper), 300_000) == 5
        assert not waiting.done()
        LARGE_BATCH.release()
        try:
            assert waiting.result(30) == 5
        finally:
            LARGE_BATCH.acquire()
