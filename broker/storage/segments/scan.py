"""Iterates over the batches of a `.log` file without reading more of it than needed.

`scan_headers` reads headers (lookups); `scan_batches` reads whole batches (recovery, rebuilding state). Both stop at
`end` and raise MalformedMessageError at bytes that are not a batch. An entry of format v0 or v1 is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.common.disk.files import FileHandle
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    LEGACY_HEADER_SIZE,
    MAGIC_V2,
    BatchHeader,
    peek_magic,
    read_stored_header,
)

HEADER_CHUNK_SIZE = 8 * 1024
BATCH_CHUNK_SIZE = 1024 * 1024


def scan_headers(file: FileHandle, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch that begins in [position, end).

    A last batch that is cut short is included if its header is whole.
    """
    chunk = b""
    chunk_start = position
    while end - position >= LEGACY_HEADER_SIZE:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = file.pread(min(HEADER_CHUNK_SIZE, end - position), position)
            chunk_start, at = position, 0
            if is_header_cut(chunk):
                return
        header = read_stored_header(chunk, at)
        yield position, header
        position += header.size_in_bytes


def is_header_cut(chunk: bytes) -> bool:
    """Return whether the bytes end before a header does; one of format v0 or v1 needs fewer bytes."""
    size = len(chunk)
    return size < LEGACY_HEADER_SIZE or (size < HEADER_SIZE and peek_magic(chunk) == MAGIC_V2)


def scan_batches(
    file: FileHandle, position: int, end: int, chunk_size: int = BATCH_CHUNK_SIZE
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, batch) of each whole batch in [position, end), reading `chunk_size` bytes at a time.

    Raises MalformedMessageError at a batch that is cut short.
    """
    chunk = memoryview(b"")
    chunk_start = position
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = _read_chunk(file, position, max(chunk_size, HEADER_SIZE), end), position, 0
        header = read_stored_header(chunk, at)
        size = header.size_in_bytes
        if size > end - position:
            raise MalformedMessageError(f"the batch at {position} is cut short")
        if at + size > len(chunk):
            chunk, chunk_start, at = _read_chunk(file, position, max(size, chunk_size), end), position, 0
            if size > len(chunk):
                raise MalformedMessageError(f"the batch at {position} is cut short")
        yield position, header, chunk[at : at + size]
        position += size


def _read_chunk(file: FileHandle, position: int, size: int, end: int) -> memoryview:
    return memoryview(file.pread(min(size, end - position), position))
