"""Decides which transactional batches the cleaner may drop, while it reads the log from its beginning.

- Data of an aborted transaction is dropped at once. Its marker stays if any of these batches was seen in this round,
  and is added to the cleaned segment's transaction index. Without them, it may be dropped after its delete horizon.
- A commit marker stays if a batch of its transaction was seen. Without one, it may be dropped in the same way.

Threads: one cleaner thread. Source: Kafka's CleanedTransactionMetadata, 4.3 (KIP-98).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from barnabas.broker.storage.segments.txn_index import AbortedTxn, TransactionIndex
from barnabas.protocol.records.batch import BatchHeader, ControlType, iter_records, parse_control_type
from barnabas.protocol.records.compression import Buffer


class CleanedTransactions:
    """The transactions that are open at the cleaner's position in the log."""

    def __init__(self) -> None:
        self.cleaned_index: TransactionIndex | None = None
        """Gets the aborted transactions whose marker stays."""
        self._committed: set[int] = set()  # producers with batches seen of a transaction that was not aborted
        self._aborted: dict[int, AbortedTxn] = {}  # by producer: the aborted transactions that are open here
        self._observed: set[int] = set()  # their producers, if a batch of theirs was seen
        self._ahead: list[tuple[int, AbortedTxn]] = []  # heap by first offset: those that begin later
        self._known: set[tuple[int, int]] = set()  # (producer, last offset) of every one that was added

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add entries of the transaction indexes; one may be added twice."""
        for transaction in transactions:
            identity = (transaction.producer_id, transaction.last_offset)
            if identity not in self._known:
                self._known.add(identity)
                heapq.heappush(self._ahead, (transaction.first_offset, transaction))

    def on_control_batch(self, header: BatchHeader, batch: Buffer) -> bool:
        """Pass a control batch; returns whether it may be dropped after its delete horizon."""
        self._open_up_to(header.last_offset)
        record = next(iter_records(batch), None)
        if record is None:
            return True  # emptied by an earlier round
        producer_id = header.producer_id
        match parse_control_type(record.key):
            case ControlType.ABORT:
                transaction = self._aborted.pop(producer_id, None)
                if transaction is None or producer_id not in self._observed:
                    return True
                self._observed.discard(producer_id)
                if self.cleaned_index is not None:
                    self.cleaned_index.append(transaction)
                return False
            case ControlType.COMMIT:
                was_seen = producer_id in self._committed
                self._committed.discard(producer_id)
                return not was_seen
            case _:
                return False

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Pass a data batch; returns whether it belongs to an aborted transaction."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._ahead)
            self._aborted.setdefault(transaction.producer_id, transaction)
