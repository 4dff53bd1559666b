"""Splits the input of `barnabas produce` into records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
LINE = b"\n"


def pieces(source: BinaryIO, delimiter: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each piece of the source without its delimiter, and its length in bytes with the delimiter.

    A delimiter at the end of the source starts no further piece. A line may end in CR LF.
    """
    if delimiter == LINE:
        for line in source:
            yield line.removesuffix(b"\n").removesuffix(b"\r"), len(line)
        return
    rest = b""
    read = getattr(source, "read1", source.read)  # Why read1: it returns as soon as a pipe has data
    while chunk := read(CHUNK_BYTES):
        begin = max(0, len(rest) - len(delimiter) + 1)  # Why not 0: the bytes before it were searched already
        rest += chunk
        start = 0
        while (end := rest.find(delimiter, max(start, begin))) >= 0:
            yield rest[start:end], end - start + len(delimiter)
            start = end + len(delimiter)
        rest = rest[start:]
    if rest:
        yield rest, len(rest)
