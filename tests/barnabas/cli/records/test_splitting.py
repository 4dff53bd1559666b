"""Splitting an input into records."""

from __future__ import annotations

import io
import random

import pytest

from barnabas.cli.records import splitting
from barnabas.cli.records.splitting import pieces


@pytest.mark.parametrize(
    ("content", "delimiter", "found"),
    [
        (b"a\nb\r\n\nc", b"\n", [b"a", b"b", b"", b"c"]),
        (b"a\r\r\n", b"\n", [b"a\r"]),
        (b"", b"\n", []),
        (b"a\0b\n\0", b"\0", [b"a", b"b\n"]),
        (b"a--b---c--", b"--", [b"a", b"b", b"-c"]),
        (b"", b"--", []),
    ],
)
def test_pieces(content: bytes, delimiter: bytes, found: list[bytes]) -> None:
    split = list(pieces(io.BytesIO(content), delimiter))
    assert [piece for piece, _ in split] == found
    assert sum(taken for _, taken in split) == len(content)


def test_a_delimiter_across_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(1)
    for _ in range(200):
        monkeypatch.setattr(splitting, "CHUNK_BYTES", numbers.randint(1, 5))
        content = bytes(numbers.choices(b"ab-", k=30))
        expected = content.split(b"--")
        if not expected[-1]:
            expected.pop()
        assert [piece for piece, _ in pieces(io.BytesIO(content), b"--")] == expected
