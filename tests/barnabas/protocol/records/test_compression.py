"""The four codecs: round trips, damage, decompression bombs, frames of other clients."""

from __future__ import annotations

import gzip
import random

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.compression import CompressionType, compress, decompress

CODECS = [kind for kind in CompressionType if kind is not CompressionType.NONE]
PAYLOADS = [b"", b"a", b"flights " * 20_000, random.Random(7).randbytes(100_000)]


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("payload", PAYLOADS, ids=["empty", "one", "repetitive", "random"])
def test_round_trip(kind: CompressionType, payload: bytes) -> None:
    assert bytes(decompress(kind, compress(kind, payload))) == payload


@pytest.mark.parametrize("kind", CODECS)
def test_a_view_of_a_larger_buffer_is_read(kind: CompressionType) -> None:
    packed = compress(kind, b"flights" * 100)
    frame = memoryview(b"xx" + packed + b"yy")[2:-2]
    assert bytes(decompress(kind, frame)) == b"flights" * 100


@pytest.mark.parametrize("kind", CODECS)
def test_a_bomb_is_refused(kind: CompressionType) -> None:
    packed = compress(kind, bytes(3_000_000))
    with pytest.raises(MalformedMessageError):
        decompress(kind, packed, size_max=1_000_000)


@pytest.mark.parametrize("kind", CODECS)
def test_damage_of_any_byte_is_an_error_or_data(kind: CompressionType) -> None:
    packed = compress(kind, b"flights from New York " * 50)
    for index in range(len(packed)):
        damaged = bytearray(packed)
        damaged[index] ^= 0xFF
        for data in (damaged, packed[:index]):
            try:
                decompress(kind, bytes(data), size_max=100_000)
            except MalformedMessageError:
                continue


@pytest.mark.parametrize("kind", CODECS)
def test_garbage_is_refused(kind: CompressionType) -> None:
    with pytest.raises(MalformedMessageError):
        decompress(kind, b"\xffgarbage that is no frame")


def test_gzip_of_another_writer() -> None:
    assert bytes(decompress(CompressionType.GZIP, gzip.compress(b"tail number" * 9))) == b"tail number" * 9


def test_snappy_without_the_java_frame() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(b"N14228" * 500))
    assert bytes(decompress(CompressionType.SNAPPY, raw)) == b"N14228" * 500


def test_snappy_begins_with_the_java_header() -> None:
    assert compress(CompressionType.SNAPPY, b"x")[:16] == bytes.fromhex("82534e41505059000000000100000001")


def test_lz4_blocks_are_independent_and_without_content_checksum() -> None:
    flags = compress(CompressionType.LZ4, b"x" * 1000)[4]
    assert flags & 0x20, "the Java client refuses linked blocks"
    assert not flags & 0x04


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (CompressionType.GZIP, -1),
        (CompressionType.GZIP, 1),
        (CompressionType.LZ4, 17),
        (CompressionType.ZSTD, -5),
        (CompressionType.ZSTD, 22),
    ],
)
def test_levels(kind: CompressionType, level: int) -> None:
    assert bytes(decompress(kind, compress(kind, b"EWR" * 1000, level))) == b"EWR" * 1000
