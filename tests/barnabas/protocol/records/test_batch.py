"""Batches: round trips, golden bytes, agreement with kafka-python, every kind of damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    CompressionType,
    ControlType,
    CorruptBatchError,
    EndTxnMarker,
    LegacyMagicError,
    SimpleRecord,
    TimestampType,
    build_batch,
    corrupt_crc,
    encode_record,
    end_txn_marker,
    iter_headers,
    iter_records,
    parse_control_type,
    parse_end_txn_marker,
    peek_attributes,
    peek_magic,
    peek_producer,
    peek_size,
    read_header,
    renumbered,
    set_attributes,
    set_attributes_and_max_timestamp,
    set_max_timestamp,
    set_offset_and_epoch,
    verify_crc,
)

RECORDS = st.lists(
    st.builds(
        SimpleRecord,
        st.integers(0, 2**42),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
FLIGHT = SimpleRecord(1357034400000, b"N14228", b"EWR-IAH", (("carrier", b"UA"), ("empty", None)))


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from(CompressionType), st.integers(0, 2**40))
def test_round_trip(records: list[SimpleRecord], kind: CompressionType, base_offset: int) -> None:
    batch = build_batch(
        records, base_offset=base_offset, compression=kind, producer_id=9, producer_epoch=1, base_sequence=5
    )
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert (header.size_in_bytes, header.record_count) == (len(batch), len(records))
    assert (header.last_offset, header.next_offset) == (base_offset + len(records) - 1, base_offset + len(records))
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    for index, (read, written) in enumerate(zip(iter_records(batch), records, strict=True)):
        assert read[:5] == (base_offset + index, *written)
        assert read.sequence == 5 + index


@settings(max_examples=30, deadline=None)
@given(RECORDS)
def test_kafka_python_reads_what_we_build(records: list[SimpleRecord]) -> None:
    batch = build_batch(records, base_offset=100)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(100 + i, *record) for i, record in enumerate(records)]


def test_we_read_what_kafka_python_builds() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=4,
        producer_epoch=2,
        base_sequence=0,
        batch_size=10_000,
    )
    for index in range(3):
        builder.append(index, 1000 + index, b"k", b"v%d" % index, [("h", b"x")])
    batch = bytes(builder.build())
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_transactional
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in iter_records(batch)] == [
        (i, 1000 + i, b"k", b"v%d" % i, (("h", b"x"),)) for i in range(3)
    ]


def test_golden_header() -> None:
    batch = build_batch([FLIGHT], base_offset=7, leader_epoch=3)
    assert batch[:17].hex() == "0000000000000007" + f"{len(batch) - 12:08x}" + "00000003" + "02"
    assert batch[21:61].hex() == (
        "0000" + "00000000" + "0000013bf58da900" + "0000013bf58da900" + "ff" * 8 + "ffff" + "ffffffff" + "00000001"
    )


def test_attributes() -> None:
    plain = read_header(build_batch([FLIGHT]))
    assert (plain.compression_type, plain.timestamp_type) == (CompressionType.NONE, TimestampType.CREATE_TIME)
    assert (plain.is_transactional, plain.is_control, plain.delete_horizon_ms) == (False, False, None)
    stamped = build_batch([FLIGHT], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=99)
    assert read_header(stamped).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(stamped)] == [99]


@pytest.mark.parametrize("position", [0, 5])
def test_peeks_agree_with_the_header(position: int) -> None:
    batch = build_batch(
        [FLIGHT], compression=CompressionType.ZSTD, producer_id=2**40, producer_epoch=3, base_sequence=9,
        is_transactional=True,
    )  # fmt: skip
    header = read_header(batch)
    buffer = memoryview(bytes(position) + batch)
    assert peek_size(buffer, position) == header.size_in_bytes == len(batch)
    assert peek_magic(buffer, position) == header.magic
    assert peek_attributes(buffer, position) == header.attributes
    assert peek_producer(buffer, position) == (header.producer_id, header.producer_epoch, header.base_sequence)


def test_a_field_set_in_place_changes_no_other() -> None:
    batch = bytearray(build_batch([FLIGHT]))
    header = read_header(batch)
    set_offset_and_epoch(batch, 2**40, 8)
    assert read_header(batch) == header.replace(base_offset=2**40, partition_leader_epoch=8)
    set_max_timestamp(batch, 77)
    assert read_header(batch).replace(crc=0).max_timestamp == 77
    set_attributes(batch, 8)
    assert (read_header(batch).attributes, read_header(batch).max_timestamp) == (8, 77)
    set_attributes_and_max_timestamp(batch, 0, header.max_timestamp)
    verify_crc(batch, 0, read_header(batch))
    assert read_header(batch) == header.replace(base_offset=2**40, partition_leader_epoch=8)
    corrupt_crc(batch)
    with pytest.raises(CorruptBatchError):
        verify_crc(batch, 0, read_header(batch))


def test_sequences_wrap() -> None:
    batch = build_batch([FLIGHT] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0
    assert [record.sequence for record in iter_records(batch)] == [2**31 - 2, 2**31 - 1, 0]


def test_end_txn_marker() -> None:
    batch = end_txn_marker(ControlType.ABORT, producer_id=5, producer_epoch=1, coordinator_epoch=12, timestamp_ms=1)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = iter_records(batch)
    assert record.key == b"\x00\x00\x00\x00"
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"
    assert parse_end_txn_marker(record) == EndTxnMarker(ControlType.ABORT, 12)


def test_unknown_control_types_are_skipped() -> None:
    assert parse_control_type(b"\x00\x00\x00\x63") is None
    with pytest.raises(MalformedMessageError):
        parse_control_type(b"\x00")


def test_iter_headers_leaves_out_a_cut_batch() -> None:
    first, second = build_batch([FLIGHT]), build_batch([FLIGHT] * 2, base_offset=1)
    both = first + second
    assert [(at, h.base_offset) for at, h in iter_headers(both)] == [(0, 0), (len(first), 1)]
    for cut in range(len(first), len(both)):
        assert [at for at, _ in iter_headers(both[:cut])] == [0]


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_formats_are_refused_by_name(magic: int) -> None:
    batch = bytearray(build_batch([FLIGHT]))
    batch[16] = magic
    with pytest.raises(LegacyMagicError):
        read_header(batch)


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_length_less_than_a_header_is_refused(length: int) -> None:
    batch = bytearray(build_batch([FLIGHT]))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedMessageError):
        read_header(batch)


def test_every_flipped_bit_under_the_crc_is_found() -> None:
    batch = build_batch([FLIGHT])
    for index in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[index] ^= 1
        with pytest.raises(CorruptBatchError):
            verify_crc(damaged, 0, read_header(damaged))


def test_any_damage_to_records_raises_malformed_message_error() -> None:
    batch = build_batch([FLIGHT, SimpleRecord(1, None, None), SimpleRecord(2, b"", b"x" * 200)])
    for index in range(HEADER_SIZE, len(batch)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[index] = value
            try:
                list(iter_records(damaged))
            except MalformedMessageError:
                continue


def test_a_batch_cut_short_is_refused() -> None:
    batch = build_batch([FLIGHT])
    for cut in range(len(batch)):
        with pytest.raises(MalformedMessageError):
            list(iter_records(batch[:cut]))


def test_renumbered_records_are_those_that_were_built_so() -> None:
    """Headers, nulls and long fields stay; only the offset deltas change, whatever their lengths were."""
    records = [
        SimpleRecord(index * 100, None if index % 3 else b"k", bytes(index % 90) if index % 5 else None, (("h", b"x"),))
        for index in range(200)
    ]
    expected = build_batch(records)[HEADER_SIZE:]
    gaps = b"".join(encode_record(record, record.timestamp_ms, 7 * index) for index, record in enumerate(records))
    same = b"".join(encode_record(record, record.timestamp_ms, 0) for record in records)
    for payload in (gaps, same, expected):
        assert renumbered(payload, 200) == expected
