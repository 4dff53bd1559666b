"""Batches as producers write them: whole, of magic 2, not compressed, undamaged, and alone in their buffer.

`read_plain` reads and checks such a batch at once: its header, its CRC and every record. Of any other it returns None,
and does not say why: its caller looks at one thing after the other then, and finds the error that Kafka finds first.

A leader calls both functions for nearly every batch, so they are written in C (`_walk.c`), which needs no objects
between the steps. `find_plain` and `find_one` are their fallbacks; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAGIC_V2,
    BatchHeader,
    peek_attributes,
    peek_magic,
    peek_size,
    read_header,
    records_payload,
    verify_crc,
)
from barnabas.protocol.records.compression import Buffer
from barnabas.protocol.records.walk import RecordsSummary, summarize

try:
    from barnabas.protocol.records._walk import peek_one as _peek_compiled
    from barnabas.protocol.records._walk import read_plain as _read_compiled
except ImportError:  # the C extension was not built
    _read_compiled = None  # type: ignore[assignment]
    _peek_compiled = None  # type: ignore[assignment]

Found = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, bool, int]
"""The fields of a header in their order, then what `walk.summarize` returns."""


def read_plain(batch: Buffer) -> tuple[BatchHeader, RecordsSummary] | None:
    """Read a batch and all its records; None unless it is plain."""
    found = _find_plain(batch)
    return None if found is None else _made_of(batch, found)


def _made_of(batch: Buffer, found: Found) -> tuple[BatchHeader, RecordsSummary]:
    """Why a function: its parameter is unpacked once, a value that may be None at each access."""
    header = BatchHeader(
        found[0], found[1], found[2], found[3], found[4], found[5], found[6],
        found[7], found[8], found[9], found[10], found[11], found[12],
    )  # fmt: skip
    return header, RecordsSummary(batch, found[13], found[14], found[15], found[16], HEADER_SIZE)


def find_plain(batch: Buffer) -> Found | None:
    """Return the fields of a plain batch's header and the summary of its records; None for any other."""
    if find_one(batch) < 0 or peek_attributes(batch) & COMPRESSION_MASK:
        return None
    try:
        header = read_header(batch)
        verify_crc(batch, 0, header)
        seen = summarize(records_payload(batch, 0, header), header.record_count)
    except MalformedMessageError:
        return None
    return (*header.fields(), *seen)


def find_one(records: Buffer) -> int:
    """Return the attributes (low byte) of the one whole batch of magic 2 that `records` are; -1 if they are not."""
    if len(records) < HEADER_SIZE or peek_magic(records) != MAGIC_V2 or peek_size(records) != len(records):
        return -1
    return peek_attributes(records)


_find_plain: Final[Callable[[Buffer], Found | None]] = find_plain if _read_compiled is None else _read_compiled
peek_one: Final[Callable[[Buffer], int]] = find_one if _peek_compiled is None else _peek_compiled
