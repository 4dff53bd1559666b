"""Checksums of Kafka's text files; tests/clients/test_partition_exchange.py checks that Kafka reads such files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.storage.directories import checksums
from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, parse_checkpoint
from barnabas.broker.storage.directories.checksums import ChecksumError

Transform = Callable[[bytes], bytes]

KINDS: list[tuple[bytes, Transform, Transform]] = [
    (b"0\n1\n0 0\n", checksums.add_to_entries, checksums.strip_from_entries),
    (b"0\n2\nflights 0 1041\ndelays 12 0\n", checksums.add_to_entries, checksums.strip_from_entries),
    (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", checksums.add_to_metadata, checksums.strip_from_metadata),
    (b"cluster.id=abc\nnode.id=7\nversion=1\n", checksums.add_to_properties, checksums.strip_from_properties),
]


@pytest.mark.parametrize(("text", "add", "strip"), KINDS)
def test_strip_undoes_add(text: bytes, add: Transform, strip: Transform) -> None:
    assert strip(add(text)) == text
    assert strip(text) == text, "as Kafka writes it"


@pytest.mark.parametrize(("text", "add", "strip"), KINDS)
def test_every_flipped_bit_is_found(text: bytes, add: Transform, strip: Transform) -> None:
    """Except in the word that marks a checksum; the content is whole then."""
    whole = add(text)
    found = 0
    for index in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[index] ^= 1 << bit
            try:
                assert text in strip(bytes(damaged)), (index, bit)
            except ChecksumError:
                found += 1
    assert found >= 8 * (len(whole) - len("#crc32c="))
    assert found == 8 * len(whole) or add is not checksums.add_to_entries


@pytest.mark.parametrize("data", [b"", b"0\n1\n0 0", b"0\n1\n0 0 \n", b"0\n1\n0 0\n\n", b"0\n1\n0 0\t\n"])
def test_a_file_that_neither_we_nor_kafka_write_is_refused(data: bytes) -> None:
    with pytest.raises(ChecksumError):
        checksums.strip_from_entries(data)


def test_a_torn_or_zeroed_file_is_refused() -> None:
    whole = checksums.add_to_entries(b"0\n2\n3 0\n4 1041\n")
    for kept in range(len(whole)):
        for data in (whole[:kept], whole[:kept] + bytes(len(whole) - kept), bytes(kept + 1) + whole[kept + 1 :]):
            with pytest.raises(CorruptCheckpointError):
                parse_checkpoint(data, "x")
