"""Record batches to message sets and back: up_conversion.py and down_conversion.py."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records import down_conversion, up_conversion
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    ControlType,
    CorruptBatchError,
    Record,
    SimpleRecord,
    TimestampType,
    assemble_batch,
    build_batch,
    end_txn_marker,
    iter_records,
    read_header,
    verify_crc,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, DecompressedTooLargeError, compress
from barnabas.protocol.records.down_conversion import WrapperTooLargeError, ZstdError, to_message_set
from barnabas.protocol.records.message_set import (
    MAGIC_V0,
    MAGIC_V1,
    Message,
    encode_message,
    encode_wrapper,
    iter_messages,
    iter_unwrapped,
    unwrap,
)
from barnabas.protocol.records.up_conversion import RecordBudget, SetTooLargeError, StampedMessageError, to_batch
from barnabas.protocol.records.varint import write_varint, write_varlong
from tests.barnabas.protocol.records.test_message_set import APPENDED_MS, BASE_OFFSET, COMPRESSED, RECORDS, golden

SIZE_MAX = 1 << 20
SIMPLE = [SimpleRecord(*fields) for fields in RECORDS]
KINDS = [CompressionType.NONE, *COMPRESSED]


def up(data: bytes, batch_max: int = SIZE_MAX, decompressed_max: int = SIZE_MAX) -> list[Record]:
    """The records of the batch that a set becomes; its CRC and header are right."""
    converted = to_batch(data, batch_max=batch_max, decompressed_max=decompressed_max, budget=RecordBudget())
    if converted is None:
        return []
    header = read_header(converted.batch)
    verify_crc(converted.batch, 0, header)
    records = list(iter_records(converted.batch))
    assert converted.record_count == header.record_count == len(records)
    assert [record.offset for record in records] == list(range(len(records)))
    assert header.max_timestamp == max(record.timestamp for record in records)
    return records


def flat(data: bytes) -> list[Message]:
    """The messages of a set, with absolute offsets."""
    found = []
    for message in iter_messages(data):
        if not message.compression:
            found.append(message)
            continue
        inner = list(iter_unwrapped(message, unwrap(message, SIZE_MAX)))
        base = message.offset - inner[-1].offset if message.magic else 0
        found += [each._replace(offset=base + each.offset) for each in inner]
    return found


def fields(rows: Sequence[Record | Message]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (r.timestamp, None if r.key is None else bytes(r.key), None if r.value is None else bytes(r.value))
        for r in rows
    ]


def down(batches: bytes, magic: int = MAGIC_V1, first_offset: int = 0, size_max: int = SIZE_MAX) -> list[Message]:
    return flat(to_message_set(batches, magic, first_offset, size_max, SIZE_MAX).messages)


# Up


@pytest.mark.parametrize("of", [each for each in golden() if not each.is_stamped], ids=str)
def test_sets_of_apache_kafka_become_batches(of: object) -> None:
    magic, kind, _, data = of  # type: ignore[misc]
    records = up(data)
    assert fields(records) == [(t if magic else -1, key, value) for t, key, value in RECORDS]
    converted = to_batch(data, batch_max=SIZE_MAX, decompressed_max=SIZE_MAX, budget=RecordBudget())
    assert converted is not None
    assert read_header(converted.batch).compression_type is kind


@pytest.mark.parametrize("of", [each for each in golden() if each.is_stamped], ids=str)
def test_a_producer_must_not_stamp(of: object) -> None:
    with pytest.raises(StampedMessageError):
        up(of.data)  # type: ignore[attr-defined]


def test_a_set_without_a_whole_message_becomes_nothing() -> None:
    assert up(b"") == up(golden()[0].data[:20]) == []


def test_messages_beside_a_wrapper_join_it() -> None:
    message = encode_message(MAGIC_V1, 0, 5, None, b"a")
    data = message + encode_wrapper(CompressionType.GZIP, MAGIC_V1, 1, 6, encode_message(MAGIC_V1, 0, 6, b"k", b"b"))
    assert fields(up(data)) == [(5, None, b"a"), (6, b"k", b"b")]


def test_what_makes_a_set_invalid() -> None:
    v0, v1 = encode_message(MAGIC_V0, 0, -1, None, b"a"), encode_message(MAGIC_V1, 0, 1, None, b"a")
    for data in (v0 + v1, encode_message(2, 0, 0, None, b"a"), encode_message(MAGIC_V1, 0, 0, None, b"a", 4)):
        with pytest.raises(MalformedMessageError):
            up(data)
    with pytest.raises(CorruptBatchError):
        up(v1[:-1] + b"b")


def test_a_message_larger_than_the_topic_allows() -> None:
    message = encode_message(MAGIC_V1, 0, 1, None, bytes(1000))
    assert len(up(message, batch_max=len(message) + HEADER_SIZE)) == 1
    with pytest.raises(SetTooLargeError, match="a message of"):
        up(message, batch_max=len(message) - 1)


def test_messages_that_are_too_large_together() -> None:
    with pytest.raises(SetTooLargeError, match="together"):
        up(encode_message(MAGIC_V1, 0, 1, None, bytes(100)) * 100, batch_max=5000)


def test_a_decompression_bomb_is_refused() -> None:
    inner = encode_message(MAGIC_V1, 0, 1, None, bytes(1000))
    bomb = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 1, inner * 100)
    assert len(up(bomb, decompressed_max=len(inner) * 100)) == 100
    with pytest.raises(DecompressedTooLargeError):
        up(bomb, decompressed_max=len(inner) * 100 - 1)
    with pytest.raises(DecompressedTooLargeError):
        up(bomb * 3, decompressed_max=len(inner) * 250)


def test_what_the_wrappers_of_a_request_decompress_to_is_counted_together() -> None:
    """Also where a set turns out to be invalid, and behind the last whole message: it was decompressed all the same."""
    inner = encode_message(MAGIC_V1, 0, 1, None, bytes(1000))
    good = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 1, inner)
    behind = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 1, inner + bytes(11))
    empty = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 1, bytes(11))
    budget = RecordBudget()
    budget.bytes_left = 3 * len(inner)

    def send(data: bytes, decompressed_max: int = SIZE_MAX) -> None:
        to_batch(data, batch_max=SIZE_MAX, decompressed_max=decompressed_max, budget=budget)

    send(good)
    send(behind)
    assert budget.bytes_left == len(inner) - 11
    with pytest.raises(MalformedMessageError):
        send(empty)
    assert budget.bytes_left == len(inner) - 22
    with pytest.raises(DecompressedTooLargeError):
        send(good, decompressed_max=900)
    assert budget.bytes_left == len(inner) - 922
    with pytest.raises(DecompressedTooLargeError):
        send(good)
    assert budget.bytes_left == 0
    with pytest.raises(SetTooLargeError, match="in a request"):
        send(good)
    send(inner)


def test_a_batch_that_is_larger_than_its_wrapper() -> None:
    """It is refused before the next set is read: compressed by another hand, it can be many times as large."""
    inner = encode_message(MAGIC_V1, 0, 1, None, random.Random(1).randbytes(1000))
    wrapper = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 1, inner)
    assert len(up(wrapper, batch_max=len(wrapper) + HEADER_SIZE)) == 1
    with pytest.raises(SetTooLargeError, match="as a batch"):
        up(wrapper, batch_max=len(wrapper))


def test_the_records_of_a_set_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_conversion, "RECORDS_MAX", 3)
    message = encode_message(MAGIC_V0, 0, -1, None, b"")
    assert len(up(message * 3)) == 3
    with pytest.raises(SetTooLargeError, match="more than 3 records in a request"):
        up(message * 4)


# Down


@pytest.mark.parametrize("of", golden(), ids=str)
def test_batches_become_the_sets_of_apache_kafka(of: object) -> None:
    """The same wrappers and messages; compressed bytes may differ."""
    magic, kind, is_stamped, data = of  # type: ignore[misc]
    stamp = TimestampType.LOG_APPEND_TIME if is_stamped else TimestampType.CREATE_TIME
    batch = build_batch(
        SIMPLE, base_offset=BASE_OFFSET, compression=kind, timestamp_type=stamp, log_append_time_ms=APPENDED_MS
    )
    made = to_message_set(batch, magic, 0, SIZE_MAX, SIZE_MAX).messages
    ours, theirs = list(iter_messages(made)), list(iter_messages(data))
    assert [m[:4] for m in ours] == [m[:4] for m in theirs]
    assert fields(flat(made)) == fields(flat(data))
    assert [m.offset for m in flat(made)] == [100, 101, 102]
    if kind in (CompressionType.NONE, CompressionType.SNAPPY):
        assert made == data


def test_headers_and_control_batches_are_left_out() -> None:
    marker = end_txn_marker(
        ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=9, base_offset=1
    )
    first = build_batch([SimpleRecord(1, b"k", b"v", [("h", b"x")])], producer_id=1, is_transactional=True)
    last = build_batch([SimpleRecord(2, None, b"w")], base_offset=2)
    messages = down(first + marker + last)
    assert [m.offset for m in messages] == [0, 2]
    assert fields(messages) == [(1, b"k", b"v"), (2, None, b"w")]
    assert to_message_set(marker, MAGIC_V1, 0, SIZE_MAX, SIZE_MAX).messages == b""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_only_uncompressed_records_before_the_offset_are_left_out(kind: CompressionType) -> None:
    batch = build_batch(SIMPLE, base_offset=BASE_OFFSET, compression=kind)
    offsets = [m.offset for m in down(batch, first_offset=102)]
    assert offsets == ([100, 101, 102] if kind else [102])


def test_a_set_ends_before_it_is_too_large_but_has_the_first_batch() -> None:
    batches = b"".join(build_batch([SimpleRecord(1, None, bytes(100))], base_offset=i) for i in range(10))
    size = len(to_message_set(batches[: len(batches) // 10], MAGIC_V1, 0, SIZE_MAX, SIZE_MAX).messages)
    for size_max, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (SIZE_MAX, 10)):
        assert [m.offset for m in down(batches, size_max=size_max)] == list(range(count))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_work_for_a_set_is_bounded(kind: CompressionType) -> None:
    """By the bytes before compression; the first batch is always there."""
    batches = b"".join(
        build_batch([SimpleRecord(1, None, bytes(1000))], base_offset=i, compression=kind) for i in range(10)
    )
    work = to_message_set(batches, MAGIC_V1, 0, 1 << 30, 1 << 30).work_bytes
    assert work > 10_000
    for work_max, count in ((0, 1), (1, 1), (work // 2, 5), (work, 10)):
        assert len(flat(to_message_set(batches, MAGIC_V1, 0, 1 << 30, work_max).messages)) == count


def test_the_records_of_several_sets_are_counted_together() -> None:
    message = encode_message(MAGIC_V0, 0, -1, None, b"")
    budget = RecordBudget()
    budget.left = 3
    for data in (message, message[:-1] + b"!" + message, message):
        try:
            to_batch(data, batch_max=SIZE_MAX, decompressed_max=SIZE_MAX, budget=budget)
        except CorruptBatchError:
            assert budget.left == 2
    assert budget.left == 1
    with pytest.raises(SetTooLargeError):
        to_batch(message * 2, batch_max=SIZE_MAX, decompressed_max=SIZE_MAX, budget=budget)


def test_a_batch_that_the_end_cuts_is_left_out() -> None:
    batch = build_batch(SIMPLE)
    assert to_message_set(batch[:-1], MAGIC_V1, 0, SIZE_MAX, SIZE_MAX).messages == b""
    assert len(down(batch + batch[:-1])) == len(SIMPLE)


def test_zstd_cannot_be_converted() -> None:
    plain = build_batch(SIMPLE)
    zstd = build_batch(SIMPLE, base_offset=3, compression=CompressionType.ZSTD)
    assert len(down(plain + zstd)) == len(SIMPLE), "what precedes it is there"
    with pytest.raises(ZstdError):
        down(zstd + plain)


def test_a_small_batch_of_many_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([SimpleRecord(1, None, b"")] * 1000, compression=CompressionType.GZIP)
    assert len(down(batch)) == 1000
    monkeypatch.setattr(down_conversion, "WRAPPED_MAX", 30_000)
    with pytest.raises(WrapperTooLargeError):
        down(batch)


def of_one_record(body: bytes, kind: CompressionType, base_timestamp: int = 5) -> bytes:
    """A batch whose only record has this body: attributes, deltas, key, value, headers."""
    payload = bytearray()
    write_varint(payload, len(body))
    records: Buffer = payload + body
    if kind is not CompressionType.NONE:
        records = compress(kind, records)
    header = BatchHeader(0, 0, 0, 2, 0, int(kind), 0, base_timestamp, base_timestamp, -1, -1, -1, 1)
    return assemble_batch(header, records)


def with_headers(count: int) -> bytes:
    """The body of a record with so many empty headers: two bytes each, and two objects each if they are read."""
    body = bytearray(b"\0\0\0\1\2v")
    write_varint(body, count)
    return bytes(body + b"\0\1" * count)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_headers_are_not_read(kind: CompressionType) -> None:
    """A batch of a few kilobytes can have millions of them: gigabytes, and minutes."""
    batch = of_one_record(with_headers(200_000), kind)
    tracemalloc.start()
    try:
        assert fields(down(batch)) == [(5, None, b"v")]
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_decompressed_is_work(kind: CompressionType) -> None:
    """Or many small batches with large headers cost far more than what is made of them."""
    batch = of_one_record(with_headers(100_000), kind)
    made = to_message_set(batch * 3, MAGIC_V1, 0, SIZE_MAX, 300_000)
    assert (len(flat(made.messages)), made.work_bytes > 400_000) == (2, True)


def test_a_batch_that_decompresses_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = of_one_record(with_headers(100_000), CompressionType.GZIP)
    monkeypatch.setattr(down_conversion, "WRAPPED_MAX", 100_000)
    with pytest.raises(WrapperTooLargeError):
        down(batch)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_records_are_refused(kind: CompressionType) -> None:
    """A leader that trusts headers (`barnabas.record.validation`) stores them."""
    largest = bytearray(1)
    write_varlong(largest, 2**63 - 1)
    for body, base_timestamp in (
        (b"", 5),
        (b"\0\0", 5),
        (b"\0\0\0\1\x08v\0", 5),
        (b"\0\0\0\3\2v\0", 5),
        (bytes(largest) + b"\0\1\2v\0", 5),
        (b"\0\1\0\1\2v\0", -(2**63)),
    ):
        with pytest.raises(MalformedMessageError):
            down(of_one_record(body, kind, base_timestamp))
    whole = of_one_record(with_headers(0), CompressionType.NONE)
    for payload in (whole[HEADER_SIZE:] + b"\0", b"\xff" * 6):
        with pytest.raises(MalformedMessageError):
            down(assemble_batch(read_header(whole), payload))


# Both


@given(
    st.sampled_from((MAGIC_V0, MAGIC_V1)),
    st.sampled_from(KINDS),
    st.lists(
        st.tuples(st.integers(-1, 2**41), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 2**40),
)
def test_down_and_up_again(magic: int, kind: CompressionType, rows: list[tuple[int, bytes, bytes]], base: int) -> None:
    batch = build_batch([SimpleRecord(*row) for row in rows], base_offset=base, compression=kind)
    messages = to_message_set(batch, magic, 0, SIZE_MAX, SIZE_MAX).messages
    assert [m.offset for m in flat(messages)] == [base + i for i in range(len(rows))]
    assert fields(up(messages)) == [(t if magic else -1, key, value) for t, key, value in rows]


def test_the_gaps_of_compaction_stay() -> None:
    for kind in KINDS:
        batches = build_batch(SIMPLE[:1], base_offset=10, compression=kind) + build_batch(
            SIMPLE[1:2], base_offset=50, compression=kind
        )
        for magic in (MAGIC_V0, MAGIC_V1):
            assert [m.offset for m in down(batches, magic)] == [10, 50]


def wrapper_v1(first: int, size: int) -> bytes:
    """Return a wrapper of format v1 with one message."""
    return encode_wrapper(CompressionType.GZIP, MAGIC_V1, first, 0, encode_message(MAGIC_V1, 0, 0, None, bytes(size)))


def test_an_old_wrapper_that_decompresses_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_conversion, "WRAPPED_MAX", 100_000)
    assert len(down(wrapper_v1(5, 50_000))) == 1
    with pytest.raises(WrapperTooLargeError):
        down(wrapper_v1(5, 100_000))


def test_an_old_wrapper_after_what_is_enough_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_conversion, "WRAPPED_MAX", 100_000)
    made = to_message_set(wrapper_v1(5, 50_000) + wrapper_v1(6, 200_000), MAGIC_V1, 0, SIZE_MAX, 50_000)
    assert len(flat(made.messages)) == 1
