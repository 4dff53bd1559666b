"""Entries of formats v0 and v1 in a log, as batches: those of Apache Kafka 0.10.2.2, and damaged ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records import stored_messages
from barnabas.protocol.records.batch import (
    BatchHeader,
    CorruptBatchError,
    SimpleRecord,
    build_batch,
    is_intact,
    iter_headers,
    iter_records,
    read_stored_header,
    verify_crc,
)
from barnabas.protocol.records.compression import CompressionType, DecompressedTooLargeError
from barnabas.protocol.records.down_conversion import to_message_set
from barnabas.protocol.records.message_set import MAGIC_V0, MAGIC_V1, encode_message, encode_wrapper
from barnabas.protocol.records.stored_messages import as_batch, base_offset_of, iter_batches
from tests.barnabas.protocol.records.test_message_set import APPENDED_MS, BASE_OFFSET, RECORDS, Golden, golden


@pytest.mark.parametrize("of", golden(), ids=str)
def test_entries_of_apache_kafka_are_batches(of: Golden) -> None:
    found = []
    for header, batch in iter_batches(of.data):
        verify_crc(batch, 0, header)
        assert header.compression_type is of.kind
        found += [(each.offset, each.timestamp, each.key, each.value) for each in iter_records(batch)]
    assert found == [
        (BASE_OFFSET + i, -1 if of.magic == MAGIC_V0 else APPENDED_MS if of.is_stamped else timestamp, key, value)
        for i, (timestamp, key, value) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("of", golden(), ids=str)
def test_their_headers_are_read_and_their_crcs_checked(of: Golden) -> None:
    headers = [header for _, header in iter_headers(of.data, read_stored_header)]
    assert headers[-1].next_offset == BASE_OFFSET + len(RECORDS)
    assert is_intact(of.data, headers[0])
    damaged = bytearray(of.data)
    damaged[headers[0].size_in_bytes - 1] ^= 1
    assert not is_intact(damaged, headers[0])
    with pytest.raises(CorruptBatchError):
        as_batch(headers[0], damaged)
    assert base_offset_of(headers[0], of.data) == BASE_OFFSET


@pytest.mark.parametrize("of", [each for each in golden() if each.magic == MAGIC_V1], ids=str)
def test_old_consumers_get_them(of: Golden) -> None:
    assert to_message_set(of.data, MAGIC_V1, BASE_OFFSET, 1 << 20, 1 << 20).messages


def test_a_batch_stays_as_it_is() -> None:
    batch = build_batch([SimpleRecord(1, b"k", b"v")], base_offset=7)
    header = read_stored_header(batch)
    assert as_batch(header, batch) == (header, batch)
    assert base_offset_of(header, batch) == 7


def test_a_wrapper_of_offset_zero_has_absolute_offsets() -> None:
    inner = b"".join(encode_message(MAGIC_V1, at, 1, None, b"v") for at in range(3))
    wrapper = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 2, 1, inner)
    assert [each.offset for each in iter_records(as_batch(read_stored_header(wrapper), wrapper)[1])] == [0, 1, 2]


@pytest.mark.parametrize("offset", [1, 2**40])
def test_offsets_that_do_not_fit_the_wrapper_are_refused(offset: int) -> None:
    inner = b"".join(encode_message(MAGIC_V0, at, 1, None, b"v") for at in (3, 4))
    wrapper = encode_wrapper(CompressionType.GZIP, MAGIC_V0, offset, 1, inner)
    with pytest.raises(MalformedMessageError):
        as_batch(read_stored_header(wrapper), wrapper)


def wrapper_of(messages: bytes, offset: int = 3) -> bytes:
    return encode_wrapper(CompressionType.GZIP, MAGIC_V1, offset, 1, messages)


def test_the_first_offset_of_a_wrapper_is_found_without_reading_its_messages() -> None:
    inner = bytearray(b"".join(encode_message(MAGIC_V1, at, 1, None, b"v") for at in range(4)))
    inner[-1] ^= 1
    wrapper = wrapper_of(inner, 13)
    assert base_offset_of(read_stored_header(wrapper), wrapper) == 10
    with pytest.raises(CorruptBatchError):
        as_batch(read_stored_header(wrapper), wrapper)


@pytest.mark.parametrize("look", [as_batch, base_offset_of])
def test_a_wrapper_of_very_many_messages_is_refused(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[BatchHeader, bytes], object]
) -> None:
    wrapper = wrapper_of(b"".join(encode_message(MAGIC_V1, at, 1, None, b"v") for at in range(4)))
    monkeypatch.setattr(stored_messages, "MESSAGES_MAX", 4)
    look(read_stored_header(wrapper), wrapper)
    monkeypatch.setattr(stored_messages, "MESSAGES_MAX", 3)
    with pytest.raises(DecompressedTooLargeError):
        look(read_stored_header(wrapper), wrapper)


@pytest.mark.parametrize("look", [as_batch, base_offset_of])
@pytest.mark.parametrize("inner", [b"", encode_message(MAGIC_V1, 0, 1, None, b"v")[:-1], b"\0" * 30])
def test_a_wrapper_without_a_whole_message_is_refused(
    inner: bytes, look: Callable[[BatchHeader, bytes], object]
) -> None:
    wrapper = wrapper_of(inner)
    with pytest.raises(MalformedMessageError):
        look(read_stored_header(wrapper), wrapper)


def test_the_first_offset_is_found_within_a_bound_of_bytes() -> None:
    wrapper = wrapper_of(encode_message(MAGIC_V1, 0, 1, None, bytes(100_000)))
    header = read_stored_header(wrapper)
    assert base_offset_of(header, wrapper, 200_000) == 3
    with pytest.raises(DecompressedTooLargeError):
        base_offset_of(header, wrapper, 50_000)
