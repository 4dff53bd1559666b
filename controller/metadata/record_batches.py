"""Reads metadata records from the batches of the log and of snapshots.

Threads: none; pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import MetadataRecord, decode_record
from barnabas.protocol.records.batch import BatchHeader, Record, iter_headers, verify_crc


def checked_batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the header and the bytes of each batch of a file; raises MalformedMessageError for a damaged one."""
    for position, header in iter_headers(data):
        verify_crc(data, position, header)
        yield header, memoryview(data)[position : position + header.size_in_bytes]


def decode_values(records: Iterable[Record]) -> Iterator[MetadataRecord]:
    """Yield the metadata records in the values of log records; raises MalformedMessageError."""
    for record in records:
        if record.value is None:
            raise MalformedMessageError("a metadata record has no value")
        yield decode_record(record.value)
