"""Message sets (formats v0 and v1): those of Apache Kafka 0.10.2.2, and damaged ones. Also tests lz4_header.py."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import LOG_APPEND_TIME_BIT, CorruptBatchError
from barnabas.protocol.records.compression import CompressionType, DecompressedTooLargeError, compress
from barnabas.protocol.records.lz4_header import with_checksum_of_v0, with_right_checksum, xxhash32_short
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

GOLDEN = Path(__file__).parents[3] / "data" / "message_sets.txt"
RECORDS = ((1001, None, b"one"), (1003, b"k", b"two"), (1002, b"key", None))
BASE_OFFSET, APPENDED_MS = 100, 5000
SIZE_MAX = 1 << 20
COMPRESSED = [kind for kind in CompressionType if kind not in (CompressionType.NONE, CompressionType.ZSTD)]


def messages_in(wrapper: Message) -> list[Message]:
    """Return the messages in a compressed one."""
    return list(iter_unwrapped(wrapper, unwrap(wrapper, SIZE_MAX)))


class Golden(NamedTuple):
    """A message set that Apache Kafka built."""

    magic: int
    kind: CompressionType
    is_stamped: bool
    data: bytes

    def __str__(self) -> str:
        return f"v{self.magic} {self.kind.name} {'LogAppendTime' if self.is_stamped else 'CreateTime'}"


def golden() -> list[Golden]:
    rows = [line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    return [
        Golden(int(magic), CompressionType[kind.upper()], stamp == "LogAppendTime", bytes.fromhex(data))
        for magic, kind, stamp, data in rows
    ]


def plain(message: Message) -> tuple[int, int, bytes | None, bytes | None]:
    key, value = message.key, message.value
    return (
        message.offset, message.timestamp, None if key is None else bytes(key), None if value is None else bytes(value),
    )  # fmt: skip


def expected(of: Golden) -> list[tuple[int, int, bytes | None, bytes | None]]:
    base = 0 if of.kind and of.magic else BASE_OFFSET
    return [
        (base + i, -1 if of.magic == MAGIC_V0 else APPENDED_MS if of.is_stamped else timestamp, key, value)
        for i, (timestamp, key, value) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("of", golden(), ids=str)
def test_sets_of_apache_kafka_are_read(of: Golden) -> None:
    messages = list(iter_messages(of.data))
    if of.kind:
        (wrapper,) = messages
        assert (wrapper.compression, wrapper.offset) == (of.kind, BASE_OFFSET + 2)
        assert wrapper.is_log_append_time == of.is_stamped
        messages = messages_in(wrapper)
    assert [plain(message) for message in messages] == expected(of)
    assert {message.is_log_append_time for message in messages} == {of.is_stamped}


@pytest.mark.parametrize("of", [each for each in golden() if not each.kind], ids=str)
def test_messages_are_written_as_by_apache_kafka(of: Golden) -> None:
    attributes = LOG_APPEND_TIME_BIT if of.is_stamped else 0
    assert b"".join(encode_message(of.magic, *fields, attributes) for fields in expected(of)) == of.data


@pytest.mark.parametrize("of", [each for each in golden() if each.kind is CompressionType.SNAPPY], ids=str)
def test_a_wrapper_is_written_as_by_apache_kafka(of: Golden) -> None:
    """snappy has no settings, so that even the compressed bytes are the same."""
    attributes = LOG_APPEND_TIME_BIT if of.is_stamped else 0
    messages = b"".join(encode_message(of.magic, *fields, attributes) for fields in expected(of))
    timestamp = APPENDED_MS if of.is_stamped else 1003
    assert encode_wrapper(of.kind, of.magic, BASE_OFFSET + 2, timestamp, messages, attributes) == of.data


@pytest.mark.parametrize("of", [each for each in golden() if each.kind is CompressionType.LZ4], ids=str)
def test_the_checksum_of_an_lz4_header(of: Golden) -> None:
    """Kafka's own: the wrong one in v0 (KAFKA-3160), the right one in v1."""
    (wrapper,) = iter_messages(of.data)
    assert wrapper.value is not None
    frame = bytes(wrapper.value)
    if of.magic == MAGIC_V0:
        assert with_checksum_of_v0(with_right_checksum(frame)) == frame
        assert with_right_checksum(frame) != frame
    else:
        assert with_right_checksum(frame) == frame


def test_the_hash_of_short_data() -> None:
    """The values are xxHash's own."""
    assert (xxhash32_short(b""), xxhash32_short(b"a"), xxhash32_short(b"abc")) == (0x02CC5D05, 0x550D7456, 0x32D153FF)


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18\x60\x40", b"\x04\x22\x4d\x18\x68\x40" + bytes(8), bytes(20)])
def test_what_is_no_lz4_frame(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        with_right_checksum(frame)


_BYTES = st.none() | st.binary(max_size=20)


@given(
    st.sampled_from((MAGIC_V0, MAGIC_V1)),
    st.sampled_from(COMPRESSED),
    st.lists(st.tuples(st.integers(-1, 2**62), _BYTES, _BYTES), min_size=1, max_size=5),
)
def test_what_is_written_is_read(magic: int, kind: CompressionType, records: list[tuple[int, bytes, bytes]]) -> None:
    rows = [(i, timestamp if magic else -1, key, value) for i, (timestamp, key, value) in enumerate(records)]
    messages = b"".join(encode_message(magic, *row) for row in rows)
    assert [plain(message) for message in iter_messages(messages)] == rows
    (wrapper,) = iter_messages(encode_wrapper(kind, magic, 7, 9, messages))
    assert (wrapper.key, wrapper.offset) == (None, 7)
    assert [plain(message) for message in messages_in(wrapper)] == rows


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damage_is_nothing_but_malformed(noise: bytes, position: int, byte: int) -> None:
    damaged = bytearray(golden()[3].data + noise)
    damaged[position % len(damaged)] = byte
    for data in (noise, bytes(damaged)):
        try:
            for message in iter_messages(data):
                messages_in(message)
        except MalformedMessageError:
            pass


def test_a_message_that_the_end_cuts_is_left_out() -> None:
    data = golden()[0].data
    assert len(list(iter_messages(data[:-1]))) == 2
    assert list(iter_messages(data[:20])) == []


@pytest.mark.parametrize("size", [-1, 0, 13, -(2**31)])
def test_sizes_that_no_message_has(size: int) -> None:
    with pytest.raises(MalformedMessageError, match="smaller than any"):
        list(iter_messages(bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(30)))


def test_a_wrong_crc() -> None:
    data = bytearray(golden()[0].data)
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        list(iter_messages(data))


def wrapped(magic: int, messages: bytes) -> list[Message]:
    (wrapper,) = iter_messages(encode_wrapper(CompressionType.GZIP, magic, 0, 0, messages))
    return messages_in(wrapper)


def test_wrappers_that_no_client_writes() -> None:
    message = encode_message(MAGIC_V1, 0, 0, None, b"x")
    inner = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 0, message)
    assert len(wrapped(MAGIC_V1, message)) == 1
    for magic, content, words in (
        (MAGIC_V1, inner, "in a compressed message"),
        (MAGIC_V0, message, "magic 1 in one of magic 0"),
        (MAGIC_V1, b"", "without messages"),
    ):
        with pytest.raises(MalformedMessageError, match=words):
            wrapped(magic, content)
    (empty,) = iter_messages(encode_message(MAGIC_V1, 0, 0, None, None, CompressionType.GZIP))
    with pytest.raises(MalformedMessageError, match="without a value"):
        messages_in(empty)


@pytest.mark.parametrize("kind", [4, 5, 7])
def test_compressions_that_the_formats_lack(kind: int) -> None:
    (message,) = iter_messages(encode_message(MAGIC_V1, 0, 0, None, b"x", kind))
    with pytest.raises(MalformedMessageError, match="compression type id"):
        messages_in(message)


@pytest.mark.parametrize("kind", COMPRESSED, ids=lambda kind: kind.name)
def test_a_decompression_bomb_is_refused(kind: CompressionType) -> None:
    bomb = compress(kind, bytes(SIZE_MAX + 1))
    (wrapper,) = iter_messages(encode_message(MAGIC_V1, 0, 0, None, bomb, kind))
    with pytest.raises(DecompressedTooLargeError):
        messages_in(wrapper)
