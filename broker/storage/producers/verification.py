"""Verifies that a transactional batch belongs to a transaction that its coordinator knows to be open (KIP-890).

Before the first batch of a transaction the partition's leader asks the coordinator. The transaction may end meanwhile:
then its marker arrives, and the batch must not be appended. So the log creates a guard before the request, and drops it
with the producer's next transactional batch or marker. A batch is appended only with the guard that is still valid.

Threads: all under the log's lock.
Source: Kafka's VerificationGuard and VerificationStateEntry (4.3).
"""

from __future__ import annotations


class VerificationGuard:
    """Stands for one transaction of one producer in one partition; compared by identity."""

    __slots__ = ()


class Verification:
    """The verification of a producer whose transaction has not begun here."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence  # sent by the producer in this epoch; this batch must be appended first
        self.supports_epoch_bump = supports_epoch_bump  # transaction.version 2: each epoch begins with sequence 0
        self.timestamp_ms = now_ms  # wall

    def note(self, epoch: int, sequence: int) -> None:
        """Take in one more batch that waits to be appended."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
