"""Conversion of a message set (formats v0 and v1) to one record batch (v2), before a leader checks and appends it.

Rules
1. The batch has the records of the set in their order, with the set's compression. Offsets of the set have no meaning.
2. Memory is bounded: what the wrappers of a set decompress to by `decompressed_max`, a batch by `batch_max`. So is the
   work for a request (`RecordBudget`).
3. The bytes are read once. No list of records is made: each is encoded when it was read.

Source: Kafka's LogValidator, 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.limits import ELEMENTS_MAX
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    assemble_batch,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, DecompressedTooLargeError, compress
from barnabas.protocol.records.message_set import Message, iter_messages, iter_unwrapped, unwrap

#: The most records of one request: as many as elements of a request. Each takes 25 bytes of the set, or more.
RECORDS_MAX: Final = ELEMENTS_MAX
#: The most bytes to which the wrappers of one request may decompress: two seconds of a thread, or a few. Why a bound: a
#: wrapper of 64 KiB can decompress to 64 MiB, and a request can have more than a thousand.
BYTES_MAX: Final = 256 << 20


class SetTooLargeError(MalformedMessageError):
    """A message, or the batch that it would be in, is larger than the topic allows."""


class StampedMessageError(MalformedMessageError):
    """A producer claims that a broker stamped its messages."""


class UpConverted(NamedTuple):
    """A record batch, and how many records it has."""

    batch: bytearray
    record_count: int


class RecordBudget:
    """How many records and decompressed bytes of a request may still come; those of invalid sets count, too."""

    __slots__ = ("bytes_left", "left")

    def __init__(self) -> None:
        self.left = RECORDS_MAX
        self.bytes_left = BYTES_MAX


def to_batch(message_set: Buffer, *, batch_max: int, decompressed_max: int, budget: RecordBudget) -> UpConverted | None:
    """Return the record batch with the messages of a set; None for a set without a whole message.

    Raises MalformedMessageError, and these kinds of it: CorruptBatchError, SetTooLargeError, StampedMessageError,
    DecompressedTooLargeError.
    """
    builder = _Builder(batch_max, decompressed_max, budget)
    for message in iter_messages(message_set):
        builder.add(message)
    return builder.build()


class _Builder:
    """The batch in the making."""

    def __init__(self, batch_max: int, decompressed_max: int, budget: RecordBudget) -> None:
        self._batch_max = batch_max
        self._budget = budget
        self._left = decompressed_max  # bytes that wrappers may still decompress to
        self._magic: int | None = None
        self._kind = CompressionType.NONE
        self._payload = bytearray()
        self._count = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    def add(self, message: Message) -> None:
        """Add a message, or those in a wrapper."""
        if message.size_bytes > self._batch_max:
            raise SetTooLargeError(f"a message of {message.size_bytes} bytes is larger than {self._batch_max}")
        if self._magic not in (None, message.magic):
            raise MalformedMessageError(f"messages of magic {self._magic} and {message.magic} in one set")
        self._magic = message.magic
        kind = message.compression
        if kind is not CompressionType.NONE:
            self._kind = kind
        for each in self._unwrapped(message, kind):
            self._add_plain(each)

    def _unwrapped(self, message: Message, kind: CompressionType) -> Iterator[Message]:
        if message.is_log_append_time:
            raise StampedMessageError("Producer should not set timestamp type to LogAppendTime.")
        if kind is CompressionType.NONE:
            yield message
            return
        yield from iter_unwrapped(message, self._decompressed(message))

    def _decompressed(self, wrapper: Message) -> Buffer:
        budget = self._budget
        if budget.bytes_left <= 0:
            raise SetTooLargeError(f"more than {BYTES_MAX} decompressed bytes in a request")
        size_max = min(self._left, budget.bytes_left)
        try:
            messages = unwrap(wrapper, size_max)
        except DecompressedTooLargeError:
            budget.bytes_left -= size_max
            raise
        self._left -= len(messages)
        budget.bytes_left -= len(messages)
        return messages

    def _add_plain(self, message: Message) -> None:
        timestamp = message.timestamp
        if self._count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._budget.left -= 1
        if self._budget.left < 0:
            raise SetTooLargeError(f"more than {RECORDS_MAX} records in a request")
        self._payload += message.as_record(timestamp - self._base_timestamp, self._count)
        self._count += 1
        if self._kind is CompressionType.NONE and len(self._payload) + HEADER_SIZE > self._batch_max:
            raise SetTooLargeError(f"the messages of a set are larger than {self._batch_max} bytes together")

    def build(self) -> UpConverted | None:
        """Return the batch; None if there is no message."""
        if not self._count:
            return None
        payload: Buffer = self._payload
        if self._kind is not CompressionType.NONE:
            payload = compress(self._kind, payload)
            if len(payload) + HEADER_SIZE > self._batch_max:
                raise SetTooLargeError(f"the messages of a set are larger than {self._batch_max} bytes as a batch")
        header = BatchHeader(
            0, 0, NO_LEADER_EPOCH, MAGIC_V2, 0, int(self._kind), self._count - 1, self._base_timestamp,
            self._max_timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, self._count,
        )  # fmt: skip
        return UpConverted(bytearray(assemble_batch(header, payload)), self._count)
