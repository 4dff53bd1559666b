"""Metadata records in the batches of the log and of snapshots.

Threads: none; pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.metadata_records import MetadataRecord, decode_record, encode_record
from barnabas.protocol.records.batch import BatchHeader, Record, SimpleRecord, build_batch, iter_headers, verify_crc

#: The bound of one batch, and so of the changes of one request (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
BATCH_BYTES_MAX: Final = 8 << 20


def encode_batch(records: Sequence[MetadataRecord], now_ms: int) -> bytearray:
    """Return records as one batch, which the log appends whole or not at all.

    Raises ApiError(RECORD_LIST_TOO_LARGE), and EncodeError for a value that a record cannot hold.
    """
    encoded: list[SimpleRecord] = []
    size = 0
    for record in records:
        value = encode_record(record)
        size += len(value)
        if size > BATCH_BYTES_MAX:  # Why inside the loop: an oversized batch is never built
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The records of this change take more than {BATCH_BYTES_MAX} bytes of the metadata log.",
            )
        encoded.append(SimpleRecord(now_ms, None, value))
    return bytearray(build_batch(encoded))


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
