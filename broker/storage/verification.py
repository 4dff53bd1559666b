"""Proof that a transactional batch belongs to a transaction that its coordinator knows to be open (KIP-890).

Before the first batch of a transaction its partition's leader asks the coordinator. Meanwhile the transaction may be
ended: its marker comes, and the batch must not be appended any more. So the log draws a guard before the question, and
drops it with the next transactional batch or marker of the producer: a batch is appended only with the guard that is
still in force.

Threads: all under the log's lock.
Source: Kafka's VerificationGuard and VerificationStateEntry (4.3).
"""

from __future__ import annotations


class VerificationGuard:
    """Drawn for one transaction of one producer in one partition; known by identity."""

    __slots__ = ()


class Verification:
    """What is known of a producer whose transaction has not begun here."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence  # that the producer has sent in this epoch: it must be appended first
        self.supports_epoch_bump = supports_epoch_bump  # a client of transaction.version 2: epochs begin with 0
        self.timestamp_ms = now_ms  # wall

    def note(self, epoch: int, sequence: int) -> None:
        """Another batch of the producer wants to be appended."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
