"""Decompression of what clients push."""

from __future__ import annotations

import pytest

from barnabas.broker.telemetry.payload import PayloadError, decompressed
from barnabas.protocol.records.compression import CompressionType, compress

DATA = b"0123456789" * 1000


@pytest.mark.parametrize("compression", CompressionType)
def test_every_compression(compression: CompressionType) -> None:
    assert decompressed(compression, compress(compression, DATA), len(DATA)) == DATA


@pytest.mark.parametrize("compression", set(CompressionType) - {CompressionType.NONE})
def test_a_bomb_and_damaged_data(compression: CompressionType) -> None:
    with pytest.raises(PayloadError, match="more than 9999 bytes"):
        decompressed(compression, compress(compression, DATA), len(DATA) - 1)
    with pytest.raises(PayloadError):
        decompressed(compression, b"\xff\x00damaged", len(DATA))
