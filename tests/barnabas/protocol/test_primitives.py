from __future__ import annotations

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.primitives import (
    MAX_STRING_BYTES,
    encode_uvarint,
    read_text,
    read_uvarint,
    records_size,
    tag_section,
)

VARINTS = [
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (16383, b"\xff\x7f"),
    (16384, b"\x80\x80\x01"),
    (2**31 - 1, b"\xff\xff\xff\xff\x07"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("value", "wire"), VARINTS)
def test_unsigned_varints(value: int, wire: bytes) -> None:
    assert encode_uvarint(value) == wire
    assert read_uvarint(b"\xff" + wire + b"\xff", 1) == (value, 1 + len(wire))


def test_longer_forms_of_a_varint_are_read() -> None:
    """Kafka reads them too."""
    assert read_uvarint(b"\x81\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize("wire", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"])
def test_varints_beyond_32_bits(wire: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_uvarint(wire, 0)


def test_a_varint_cut_short() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80", 0)


def test_tag_section_sorts() -> None:
    assert tag_section([(1, b"one")], ((0, b""), (2, b"two"))) == b"\x03\x00\x00\x01\x03one\x02\x03two"
    assert tag_section((), ()) == b"\x00"


def test_records_size() -> None:
    assert [records_size(value) for value in (b"abc", bytearray(4), memoryview(bytes(5)))] == [3, 4, 5]


def test_text_of_another_character_set() -> None:
    latin_1 = "Bürö".encode("latin-1")
    assert read_text(latin_1) == read_text(memoryview(latin_1)) == "B\ufffdr\ufffd"
    assert read_text("Bürö".encode()) == "Bürö"
    assert read_text(b"\xff" * (MAX_STRING_BYTES // 3)) == "\ufffd" * (MAX_STRING_BYTES // 3)
    with pytest.raises(UnicodeDecodeError):
        read_text(b"\xff" * (MAX_STRING_BYTES // 3 + 1))
