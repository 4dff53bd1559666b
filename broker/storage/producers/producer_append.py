"""The change that one append makes to one producer: checked first, applied after the write.

Threads: none of its own; used under the log's lock.
Source: Kafka's ProducerAppendInfo, 4.3 (KIP-98, KIP-360, KIP-890's epochs).
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.broker.storage.log.log_types import NO_OFFSET, AppendOrigin
from barnabas.broker.storage.producers.producer_entry import BatchMetadata, CompletedTxn, ProducerEntry
from barnabas.broker.storage.producers.verification import Verification
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import INT32_MAX, NO_PRODUCER_EPOCH, BatchHeader, ControlType, EndTxnMarker

log = logging.getLogger("barnabas.storage.producer_state")

INT16_MAX: Final = 2**15 - 1


class ProducerAppend:
    """The change that one append makes to one producer.

    Its methods raise ApiError and do not touch the manager's state.
    """

    __slots__ = ("_current", "_origin", "_tp", "_verification", "is_transactional", "started", "updated")

    def __init__(
        self,
        tp: TopicPartition,
        producer_id: int,
        current: ProducerEntry | None,
        origin: AppendOrigin,
        verification: Verification | None = None,
    ) -> None:
        self._tp = tp
        self._origin = origin
        self._verification = verification
        self.is_transactional = False  # whether it held a transactional batch or a marker
        self._current = current if current is not None else ProducerEntry(producer_id)
        self.updated = ProducerEntry(
            producer_id,
            self._current.epoch,
            self._current.coordinator_epoch,
            self._current.last_timestamp,
            self._current.txn_first_offset,
        )
        self.started: list[int] = []  # first offsets of transactions begun by this append

    def append_data(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: int) -> None:
        """Check and add a data batch with offsets from `first_offset` to `last_offset`."""
        self._check_epoch(header.producer_epoch, first_offset, 0)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header, first_offset)
        delta = last_offset - first_offset
        self.is_transactional = self.is_transactional or header.is_transactional
        self.updated.add_batch(
            header.producer_epoch, BatchMetadata(header.last_sequence, last_offset, delta, timestamp)
        )
        if self.updated.txn_first_offset >= 0 and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset {first_offset} in "
                f"{self._tp}",
            )
        if header.is_transactional and self.updated.txn_first_offset < 0:
            self.updated.txn_first_offset = first_offset
            self.started.append(first_offset)

    def append_marker(
        self, marker: EndTxnMarker, header: BatchHeader, offset: int, timestamp: int, transaction_version: int
    ) -> CompletedTxn | None:
        """Check and add the marker that ends a transaction; returns that transaction, None if none was open."""
        self._check_epoch(header.producer_epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker, offset)
        completed = None
        self.is_transactional = True
        entry = self.updated
        if entry.txn_first_offset >= 0:
            completed = CompletedTxn(
                entry.producer_id, entry.txn_first_offset, offset, marker.control_type is ControlType.ABORT
            )
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.txn_first_offset = NO_OFFSET
        entry.last_timestamp = timestamp
        return completed

    def _check_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        current = self.updated.epoch
        is_v2 = transaction_version >= 2
        if epoch > current or (epoch == current and not is_v2):
            return
        if is_v2 and epoch == current and (self.updated.txn_first_offset < 0 or epoch == INT16_MAX):
            return  # a repeated marker: its transaction has ended already
        message = (
            f"Epoch of producer {self.updated.producer_id} at offset {offset} in {self._tp} is {epoch}, "
            f"which is smaller than the last seen epoch {current}"
        )
        if self._origin is AppendOrigin.REPLICATION:
            log.warning(message)
        else:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    def _check_sequence(self, header: BatchHeader, offset: int) -> None:
        first = header.base_sequence
        updated, current = self.updated, self._current
        if self._verification is not None:
            self._check_first_sequence(self._verification, header, offset)
        if header.producer_epoch != updated.epoch:
            if first != 0 and updated.epoch != NO_PRODUCER_EPOCH:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id} at offset {offset} in "
                    f"partition {self._tp}: {header.producer_epoch} (request epoch), {first} (seq. number), "
                    f"{updated.epoch} (current producer epoch)",
                )
            return
        last = updated.last_sequence if updated.batches else current.last_sequence
        in_sequence = first == last + 1 or (first == 0 and last == INT32_MAX)
        if current.epoch != NO_PRODUCER_EPOCH and not in_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number), {last} (current end sequence number)",
            )

    def _check_first_sequence(self, verification: Verification, header: BatchHeader, offset: int) -> None:
        """Check a batch that begins a transaction: a retry may arrive before an earlier batch (KIP-890)."""
        first = header.base_sequence
        if verification.supports_epoch_bump and first != 0 and self._current.epoch == NO_PRODUCER_EPOCH:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number). Expected sequence 0 for a producer with no existing "
                f"state.",
            )
        if first > verification.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number), {verification.lowest_sequence} (earliest seen sequence)",
            )

    def _check_coordinator_epoch(self, marker: EndTxnMarker, offset: int) -> None:
        if self.updated.coordinator_epoch <= marker.coordinator_epoch:
            return
        message = (
            f"Invalid coordinator epoch for producer {self.updated.producer_id} at offset {offset} in partition "
            f"{self._tp}: {marker.coordinator_epoch} (zombie), {self.updated.coordinator_epoch} (current)"
        )
        if self._origin is AppendOrigin.REPLICATION:
            log.info(message)
        else:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
