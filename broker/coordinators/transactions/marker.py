"""A marker: the control batch that ends a transaction in one partition.

Source: KIP-98; Kafka's EndTransactionMarker (4.3).
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.records.batch import ControlType, end_txn_marker


class Marker(NamedTuple):
    """The content of a marker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0

    def batch(self, timestamp_ms: int) -> bytes:
        """Build the control batch."""
        return end_txn_marker(
            ControlType.COMMIT if self.is_commit else ControlType.ABORT, producer_id=self.producer_id,
            producer_epoch=self.producer_epoch, coordinator_epoch=self.coordinator_epoch, timestamp_ms=timestamp_ms,
        )  # fmt: skip
