"""Cleans one batch: decides which records stay, and writes the batch again without the others.

Rules
1. A batch that loses no record is copied byte for byte, CRC included. A batch that loses all its records is dropped.
2. A rewritten batch keeps its base offset, last offset, leader epoch, producer and base sequence, so that neither
   offsets nor sequences change.
3. A batch with a tombstone that may be dropped some day, or with the marker of a transaction that has no records left,
   gets a delete horizon: now + delete.retention.ms (KIP-534). A consumer that began before has that long to read it.
   Tombstones and markers are dropped after their horizon, and only while every replica has them. Otherwise a replica
   that was away would keep what they delete or abort, and could lead with it. (Kafka looks at the horizon alone.)
4. The last batch of a producer that is still known stays, even without records: the producer continues from its
   sequence and epoch. The last batch of a round stays, too: it holds the last offset.

Threads: none; pure. Source: Kafka's Cleaner.cleanInto and MemoryRecords.filterTo, 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.storage.cleaner.offset_map import DEAD, TOMBSTONE, VALUE
from barnabas.broker.storage.cleaner.record_filter import rebased, retained_records
from barnabas.broker.storage.log.log_types import LastRecord
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble_batch,
    records_payload,
    verify_crc,
)
from barnabas.protocol.records.compression import Buffer, CompressionType, compress

_DEAD_BYTE = bytes([DEAD])
_TOMBSTONE_BYTE = bytes([TOMBSTONE])


@dataclass(frozen=True, slots=True)
class Round:
    """What is the same for every batch of a cleaning round."""

    now_ms: int
    delete_retention_ms: int
    upper_bound: int
    """The first uncleanable offset (exclusive)."""
    last_records: Mapping[int, LastRecord]
    """By producer id."""
    may_forget: bool = True
    """Whether every replica has copied what is cleaned."""

    def must_stay(self, header: BatchHeader) -> bool:
        """Return whether the batch is kept even without records (rule 4)."""
        if header.next_offset == self.upper_bound:
            return True
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def is_past_horizon(self, header: BatchHeader) -> bool:
        """Return whether the batch's delete horizon is set and has passed, and no replica needs it any more."""
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self.now_ms and self.may_forget


def clean_data_batch(
    header: BatchHeader, batch: Buffer, flags: bytearray, cleaning: Round
) -> tuple[Buffer, int] | None:
    """Return the bytes that stay of a data batch and how many records they are; None if the batch is dropped.

    `flags` has one of `DEAD`, `VALUE`, `TOMBSTONE` for each record.
    """
    if cleaning.is_past_horizon(header):
        flags = flags.replace(_TOMBSTONE_BYTE, _DEAD_BYTE)
    return _kept(header, batch, flags, cleaning, needs_horizon=TOMBSTONE in flags)


def clean_control_batch(
    header: BatchHeader, batch: Buffer, cleaning: Round, *, can_go: bool
) -> tuple[Buffer, int] | None:
    """Clean a control batch, as `clean_data_batch`; `can_go`: no record of its transaction is left."""
    is_dropped = can_go and cleaning.is_past_horizon(header)
    flags = bytearray([DEAD if is_dropped else VALUE]) * header.record_count
    return _kept(header, batch, flags, cleaning, needs_horizon=can_go)


def _kept(
    header: BatchHeader, batch: Buffer, flags: bytearray, cleaning: Round, *, needs_horizon: bool
) -> tuple[Buffer, int] | None:
    count = len(flags) - flags.count(DEAD)
    if not count:
        return (_emptied(header), 0) if cleaning.must_stay(header) else None
    sets_horizon = needs_horizon and header.delete_horizon_ms is None
    if count == len(flags) and not sets_horizon:
        return batch, count
    horizon_ms = cleaning.now_ms + cleaning.delete_retention_ms if sets_horizon else None
    return _rebuilt(header, batch, flags, count, horizon_ms), count


def _rebuilt(header: BatchHeader, batch: Buffer, flags: bytearray, count: int, horizon_ms: int | None) -> bytes:
    # Why: a new CRC over damaged bytes would hide the damage.
    verify_crc(batch, 0, header)
    pieces, delta_max = retained_records(bytes(records_payload(batch, 0, header)), flags)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    max_timestamp = header.max_timestamp if attributes & LOG_APPEND_TIME_BIT else base_timestamp + delta_max
    if horizon_ms is not None:
        pieces = rebased(pieces, base_timestamp - horizon_ms)
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
    payload = b"".join(pieces)
    kind = header.compression_type
    return assemble_batch(
        header.replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=count
        ),
        payload if kind is CompressionType.NONE else compress(kind, payload),
    )


def _emptied(header: BatchHeader) -> bytes:
    """Return the batch without records: a header that keeps offsets, producer and sequence."""
    kept = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    return assemble_batch(
        header.replace(
            attributes=header.attributes & kept & ~COMPRESSION_MASK, base_timestamp=NO_TIMESTAMP, record_count=0
        ),
        b"",
    )
