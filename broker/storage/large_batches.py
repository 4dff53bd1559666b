"""Large compressed batches: how many records they may have, and that one at a time is decompressed.

A few kilobytes decompress to gigabytes. A thread holds at most ORDINARY_BYTES of decompressed records of a batch; more
only under LARGE_BATCH. A thread that waits for it may hold its partition's lock; the thread that has it takes no other
lock.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from barnabas.protocol.limits import ELEMENTS_MAX
from barnabas.protocol.records.batch import BatchHeader, Record, iter_records_without_headers, records_payload
from barnabas.protocol.records.compression import DECOMPRESSED_SIZE_MAX, Buffer, DecompressedTooLargeError
from barnabas.protocol.records.stored_messages import as_batch, base_offset_of

ORDINARY_BYTES: Final = 64 << 20
#: Of a compressed batch. Records of 7 bytes compress to next to nothing, and each may have to be looked at. No client
#: makes more: a million is also the greatest `batch.num.messages` of librdkafka.
RECORDS_MAX: Final = ELEMENTS_MAX

LARGE_BATCH: Final = threading.Lock()


def first_record(
    batch: Buffer, header: BatchHeader, is_wanted: Callable[[Record], bool], ordinary_max: int = ORDINARY_BYTES
) -> Record | None:
    """Return the first record of a batch that is wanted, without its headers; raises MalformedMessageError."""
    try:
        return _first(batch, header, is_wanted, ordinary_max)
    except DecompressedTooLargeError:
        with LARGE_BATCH:
            return _first(batch, header, is_wanted, DECOMPRESSED_SIZE_MAX)


def first_offset(batch: Buffer, header: BatchHeader, ordinary_max: int = ORDINARY_BYTES) -> int:
    """Return the offset of a batch's first record, which a wrapper's header lacks; raises MalformedMessageError."""
    try:
        return base_offset_of(header, batch, ordinary_max)
    except DecompressedTooLargeError:
        with LARGE_BATCH:
            return base_offset_of(header, batch)


def _first(batch: Buffer, header: BatchHeader, is_wanted: Callable[[Record], bool], size_max: int) -> Record | None:
    header, batch = as_batch(header, batch, size_max)
    payload = bytes(records_payload(batch, 0, header, size_max))
    for record in iter_records_without_headers(payload, header):
        if is_wanted(record):
            return record
    return None
