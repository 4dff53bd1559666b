"""Where one record of `barnabas produce` ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
LINE = b"\n"


def pieces(source: BinaryIO, delimiter: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each piece of the source without its delimiter, and how many bytes of the source it took.

    Nothing follows a delimiter at the very end. A line may end in CR LF.
    """
    if delimiter == LINE:
        for line in source:
            yield line.removesuffix(b"\n").removesuffix(b"\r"), len(line)
        return
    rest = b""
    read = getattr(source, "read1", source.read)  # Why read1: what a pipe has is sent at once
    while chunk := read(CHUNK_BYTES):
        begin = max(0, len(rest) - len(delimiter) + 1)  # Why not 0: what was looked through is not looked through again
        rest += chunk
        start = 0
        while (end := rest.find(delimiter, max(start, begin))) >= 0:
            yield rest[start:end], end - start + len(delimiter)
            start = end + len(delimiter)
        rest = rest[start:]
    if rest:
        yield rest, len(rest)
