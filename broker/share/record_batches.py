"""The record batches of a read: their headers, without reading the records.

A share fetch acquires some hundred records of a read that may have megabytes. So headers are read only as far as they
matter (`scan`), and what is sent is cut to the batches that were acquired (`cut`).

Pure, but for the reads of the file.
Source: Kafka's ShareFetchUtils.maybeSliceFetchRecords, SharePartition.fetchAbortedTransactionRecordBatches (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.share.partition.values import Acquired, Span
from barnabas.broker.storage.large_batches import first_offset
from barnabas.broker.storage.segments.scan import is_header_cut
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LEGACY_HEADER_SIZE,
    MAGIC_V2,
    BatchHeader,
    ControlType,
    iter_records,
    parse_control_type,
    read_stored_header,
)
from barnabas.protocol.records.compression import Buffer

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log_types import AbortedTransaction
    from barnabas.common.disk.files import FileSlice

#: Small batches share a read; a large one costs one read of this size.
CHUNK_BYTES: Final = 4096


class ReadBatch(NamedTuple):
    """A whole record batch of a read: its header, and where it begins in the slice."""

    start: int
    header: BatchHeader

    @property
    def span(self) -> Span:
        """Its offsets."""
        return Span(self.header.base_offset, self.header.last_offset)

    @property
    def end(self) -> int:
        """Where it ends in the slice."""
        return self.start + self.header.size_in_bytes


def scan(slice_: FileSlice, wanted_end: Callable[[int], int]) -> list[ReadBatch]:
    """Return the batches of a read up to the one that reaches `wanted_end(base offset of the first)`.

    A last batch that is cut short is left out. Raises MalformedMessageError or OSError.
    """
    found: list[ReadBatch] = []
    end: int | None = None
    for batch in _batches(slice_):
        found.append(batch)
        if end is None:
            end = wanted_end(batch.header.base_offset)
        if batch.header.last_offset >= end:
            break
    return found


def _batches(slice_: FileSlice) -> Iterator[ReadBatch]:
    size = slice_.size
    chunk = b""
    chunk_start = position = 0
    while size - position >= LEGACY_HEADER_SIZE:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = slice_.part(position, min(CHUNK_BYTES, size - position)).read()
            chunk_start, at = position, 0
            if is_header_cut(chunk):
                return
        header = read_stored_header(chunk, at)
        if header.last_offset_delta < 0:
            raise MalformedMessageError(f"the batch at offset {header.base_offset} ends before it begins")
        if position + header.size_in_bytes > size:
            return
        if header.magic < MAGIC_V2 and header.attributes & COMPRESSION_MASK:
            header = _with_all_offsets(header, slice_.part(position, header.size_in_bytes).read())
        yield ReadBatch(position, header)
        position += header.size_in_bytes


def _with_all_offsets(header: BatchHeader, wrapper: Buffer) -> BatchHeader:
    """Return the header of a compressed entry of format v0 or v1 with its first offset, which only its records have."""
    base_offset = first_offset(wrapper, header)
    return header.replace(base_offset=base_offset, last_offset_delta=header.last_offset - base_offset)


def cut(slice_: FileSlice, batches: Sequence[ReadBatch], acquired: Sequence[Acquired]) -> FileSlice:
    """Return the part of a read with the batches from the first acquired offset to the last; perhaps there are none."""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [batch for batch in batches if batch.header.last_offset >= first and batch.header.base_offset <= last]
    if not wanted:  # compaction has left nothing of what was acquired
        return slice_.part(0, 0)
    start, end = wanted[0].start, wanted[-1].end
    return slice_ if (start, end) == (0, slice_.size) else slice_.part(start, end - start)


def aborted_spans(slice_: FileSlice, batches: Sequence[ReadBatch], aborted: Sequence[AbortedTransaction]) -> list[Span]:
    """Return the offsets of the batches that belong to aborted transactions."""
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    producers: set[int] = set()
    spans = []
    for batch in batches if waiting else ():
        header = batch.header
        if header.producer_id < 0:
            continue
        while waiting and waiting[-1].first_offset <= header.last_offset:
            producers.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in producers and _is_abort(slice_, batch):
                producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            spans.append(batch.span)
    return spans


def _is_abort(slice_: FileSlice, batch: ReadBatch) -> bool:
    records = iter_records(slice_.part(batch.start, batch.header.size_in_bytes).read())
    first = next(iter(records), None)
    return first is not None and parse_control_type(first.key) == ControlType.ABORT
