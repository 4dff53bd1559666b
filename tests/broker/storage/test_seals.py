"""Seals: what Kafka makes of them is asked in tests/clients/test_sealed_files.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.storage import seals
from barnabas.broker.storage.checkpoints import CorruptCheckpointError, parse_checkpoint
from barnabas.broker.storage.seals import BrokenSealError

Transform = Callable[[bytes], bytes]

KINDS: list[tuple[bytes, Transform, Transform]] = [
    (b"0\n1\n0 0\n", seals.seal_entries, seals.unseal_entries),
    (b"0\n2\nflights 0 1041\ndelays 12 0\n", seals.seal_entries, seals.unseal_entries),
    (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", seals.seal_metadata, seals.unseal_metadata),
    (b"cluster.id=abc\nnode.id=7\nversion=1\n", seals.seal_properties, seals.unseal_properties),
]


@pytest.mark.parametrize(("text", "seal", "unseal"), KINDS)
def test_there_and_back(text: bytes, seal: Transform, unseal: Transform) -> None:
    assert unseal(seal(text)) == text
    assert unseal(text) == text, "as Kafka writes it"


@pytest.mark.parametrize(("text", "seal", "unseal"), KINDS)
def test_no_bit_flips_unseen(text: bytes, seal: Transform, unseal: Transform) -> None:
    """But in the word that makes a seal one, which leaves the content as it is."""
    sealed = seal(text)
    seen = 0
    for index in range(len(sealed)):
        for bit in range(8):
            damaged = bytearray(sealed)
            damaged[index] ^= 1 << bit
            try:
                assert text in unseal(bytes(damaged)), (index, bit)
            except BrokenSealError:
                seen += 1
    assert seen >= 8 * (len(sealed) - len("#crc32c="))
    assert seen == 8 * len(sealed) or seal is not seals.seal_entries


@pytest.mark.parametrize("data", [b"", b"0\n1\n0 0", b"0\n1\n0 0 \n", b"0\n1\n0 0\n\n", b"0\n1\n0 0\t\n"])
def test_what_is_neither_sealed_nor_kafkas(data: bytes) -> None:
    with pytest.raises(BrokenSealError):
        seals.unseal_entries(data)


def test_a_torn_or_zeroed_file_is_not_taken_for_a_whole_one() -> None:
    sealed = seals.seal_entries(b"0\n2\n3 0\n4 1041\n")
    for kept in range(len(sealed)):
        for data in (sealed[:kept], sealed[:kept] + bytes(len(sealed) - kept), bytes(kept + 1) + sealed[kept + 1 :]):
            with pytest.raises(CorruptCheckpointError):
                parse_checkpoint(data, "x")
