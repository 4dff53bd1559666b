"""Reads a partition of a coordinator's topic record by record, and reports exactly where it had to stop.

Any client with write access may put anything into __consumer_offsets or __transaction_state, so every record is input.
A bad record raises a `ReplayError` that names the partition, the offset and the mistake. The coordinator then takes
that one shard offline. No record can end the process.

Threads: a coordinator's loader thread.
Source: Kafka's CoordinatorLoaderImpl (4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.protocol.errors import ApiError, MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, Record, iter_records
from barnabas.protocol.records.stored_messages import iter_batches

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log
    from barnabas.common.topic_partition import TopicPartition


class ReplayError(Exception):
    """A partition cannot be loaded; the text says where and why."""


class Replayed(NamedTuple):
    """The extent of a replay: the number of records, and the offset after the last one (exclusive)."""

    records: int
    end_offset: int


#: Receives each record with the header of its batch.
TakeRecord: TypeAlias = Callable[[BatchHeader, Record], object]


def replay(
    tp: TopicPartition, partition_log: Log, buffer_bytes: int, take: TakeRecord, goes_on: Callable[[], bool]
) -> Replayed:
    """Hand every record up to the log end to `take`, in order, reading `buffer_bytes` at a time.

    Stops early when `goes_on()` is false. Raises ReplayError for a bad record, ApiError and OSError when the partition
    moved or its disk failed.
    """
    offset = at = partition_log.log_start_offset
    count = 0
    while offset < partition_log.log_end_offset and goes_on():
        data = partition_log.read(offset, buffer_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
        buffer = memoryview(b"" if data.slice is None else data.slice.read())
        next_offset = offset
        try:
            for header, batch in iter_batches(buffer):
                at = max(header.base_offset, offset)
                for record in iter_records(batch):
                    if record.offset >= offset:
                        at = record.offset
                        take(header, record)
                        count += 1
                next_offset = max(next_offset, header.next_offset)
        except (ApiError, OSError):
            raise
        except Exception as error:  # Why every kind: no record may end the process, whatever error it causes here.
            raise ReplayError(f"{tp}: the record at offset {at} cannot be replayed: {describe(error)}") from error
        if next_offset == offset:
            raise ReplayError(f"{tp}: no record can be read at offset {offset}, before the log's end")
        offset = next_offset
    return Replayed(count, offset)


def describe(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, ReplayError | MalformedMessageError | ApiError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())
