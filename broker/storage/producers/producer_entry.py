"""What a log remembers of one producer: epoch, last five batches, open transaction.

The five batches serve to recognise a retry (Kafka's idempotent producer keeps at most five requests in flight).

Threads: none of its own; changed under the log's lock.
Source: Kafka's ProducerStateEntry, BatchMetadata, CompletedTxn, 4.3 (KIP-98).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.broker.storage.log.log_types import NO_OFFSET, NO_TIMESTAMP
from barnabas.protocol.records.batch import INT32_MAX, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader

BATCHES_RETAINED: Final = 5


class BatchMetadata:
    """A batch that a producer wrote: enough to recognise a retry and to answer it. An immutable value."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchMetadata) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"BatchMetadata{self._values()!r}"

    def _values(self) -> tuple[int, int, int, int]:
        return self.last_sequence, self.last_offset, self.offset_delta, self.timestamp

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; sequences wrap from 2**31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction that its marker, appended at `last_offset`, ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """One producer's state."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset  # -1 if no transaction is open
        self.batches: list[BatchMetadata] = []  # the last ones; oldest first

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the last record; -1 if there is none."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus first offset of the last batch."""
        return self.batches[-1].offset_delta if self.batches else 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch that `header` repeats; None if it repeats none of the last five."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def copy(self) -> ProducerEntry:
        """Return a copy, which later appends do not change."""
        copied = ProducerEntry(
            self.producer_id, self.epoch, self.coordinator_epoch, self.last_timestamp, self.txn_first_offset
        )
        copied.add_batches(self.batches)
        return copied

    def set_epoch(self, epoch: int) -> None:
        """Move to another epoch, which begins with new sequences."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        """Add the newest batch."""
        self.set_epoch(epoch)
        self.add_batches([batch])
        self.last_timestamp = batch.timestamp

    def add_batches(self, batches: list[BatchMetadata]) -> None:
        """Add batches that are newer than all others of the same epoch."""
        self.batches.extend(batches)
        if len(self.batches) > BATCHES_RETAINED:
            del self.batches[:-BATCHES_RETAINED]
