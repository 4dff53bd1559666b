"""The record batches of a read: as many headers as matter, and the part that is sent."""

from __future__ import annotations

import pytest

from barnabas.broker.share.partition.values import Acquired, Span
from barnabas.broker.share.record_batches import CHUNK_BYTES, ReadBatch, aborted_spans, cut, scan
from barnabas.broker.storage.log.log_types import AbortedTransaction
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import FileSlice
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.message_set import MAGIC_V1, encode_message, encode_wrapper


def records(base: int, count: int, size: int = 10, **options: object) -> bytes:
    """A batch of so many records."""
    return build_batch([SimpleRecord(0, None, bytes(size))] * count, base_offset=base, **options)  # type: ignore[arg-type]


def marker(base: int, producer_id: int, type_: ControlType) -> bytes:
    return end_txn_marker(
        type_, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=base
    )


def slice_of(*batches: bytes) -> FileSlice:
    """A read that has these bytes, not from the beginning of its file."""
    content = b"".join(batches)
    handle = MemoryFileSystem().open("/file", create=True)
    handle.pwrite(b"before" + content + b"after", 0)
    return handle.slice(len(b"before"), len(content))


def everything(slice_: FileSlice) -> list[ReadBatch]:
    return scan(slice_, lambda _first: 1 << 40)


def spans(batches: list[ReadBatch]) -> list[tuple[int, int]]:
    return [tuple(batch.span) for batch in batches]


def test_batches_are_found_with_their_places() -> None:
    first, second = records(5, 3), records(8, 1)
    found = everything(slice_of(first, second))
    assert spans(found) == [(5, 7), (8, 8)]
    assert [(batch.start, batch.end) for batch in found] == [(0, len(first)), (len(first), len(first) + len(second))]


def test_headers_are_read_only_as_far_as_wanted() -> None:
    asked = []

    def wanted(first: int) -> int:
        asked.append(first)
        return 8

    assert spans(scan(slice_of(records(5, 3), records(8, 2), records(10, 1)), wanted)) == [(5, 7), (8, 9)]
    assert asked == [5]


def test_a_last_batch_that_is_cut_short_is_left_out() -> None:
    assert spans(everything(slice_of(records(0, 2), records(2, 2)[:-1]))) == [(0, 1)]
    assert everything(slice_of(records(0, 2)[:30])) == []
    assert everything(slice_of()) == []


def test_batches_larger_and_smaller_than_a_chunk() -> None:
    content = [records(n, 1, size) for n, size in enumerate([1, CHUNK_BYTES, 5, 3 * CHUNK_BYTES, *[7] * 100])]
    assert spans(everything(slice_of(*content))) == [(n, n) for n in range(104)]


def test_a_wrapper_of_an_old_format_has_all_its_offsets() -> None:
    inner = b"".join(encode_message(MAGIC_V1, at, 0, None, b"v") for at in range(3))
    wrapper = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 6, 0, inner)
    plain = encode_message(MAGIC_V1, 7, 0, None, b"v")
    assert spans(everything(slice_of(wrapper, plain))) == [(4, 6), (7, 7)]


def test_what_is_no_batch_is_an_error() -> None:
    with pytest.raises(MalformedMessageError):
        everything(slice_of(bytes(100)))


def test_the_part_with_the_acquired_records_is_sent() -> None:
    content = [records(n * 10, 10) for n in range(4)]
    read = slice_of(*content)
    found = everything(read)
    assert cut(read, found, [Acquired(0, 39, 1)]) is read
    assert cut(read, found, [Acquired(12, 14, 1), Acquired(25, 25, 2)]).read() == content[1] + content[2]


def test_acquired_records_that_compaction_removed_are_an_empty_part() -> None:
    read = slice_of(records(0, 2), records(50, 2))
    assert cut(read, everything(read), [Acquired(10, 19, 1)]).size == 0


def test_offsets_of_aborted_transactions() -> None:
    of = {"producer_epoch": 0, "base_sequence": 0}
    content = [
        records(0, 2, producer_id=7, is_transactional=True, **of),
        records(2, 2, producer_id=8, is_transactional=True, **of),
        records(4, 2),
        records(6, 1, producer_id=7, **of),
        marker(7, 7, ControlType.ABORT),
        marker(8, 8, ControlType.COMMIT),
        records(9, 1, producer_id=7, is_transactional=True, **of),
        marker(10, 7, ControlType.COMMIT),
    ]
    read = slice_of(*content)
    found = everything(read)
    assert aborted_spans(read, found, [AbortedTransaction(7, 0)]) == [Span(0, 1)]
    assert aborted_spans(read, found, []) == []
