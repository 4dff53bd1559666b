"""Zigzag varints against the definition and at their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.varint import read_varint, read_varlong, write_varint, write_varlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_golden_bytes(value: int, encoded: str) -> None:
    output = bytearray()
    write_varint(output, value)
    assert output.hex() == encoded
    assert read_varint(bytes(output), 0) == (value, len(output))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varlong_round_trip(value: int, prefix: bytes) -> None:
    output = bytearray(prefix)
    write_varlong(output, value)
    assert read_varlong(bytes(output), len(prefix)) == (value, len(output))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x7f", b"\x80" * 5 + b"\x01"])
def test_a_varint_cut_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_varint(data, 0)


def test_a_varlong_too_long_is_refused() -> None:
    with pytest.raises(MalformedMessageError):
        read_varlong(b"\xff" * 10, 0)
