"""What an append means for the log's producers: prepared and checked before the write, applied after it."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.records.batch import BatchHeader, iter_records, parse_end_txn_marker
from barnabas.protocol.records.compression import Buffer
from broker.storage.log_types import AppendOrigin
from broker.storage.producer_state import CompletedTxn, ProducerAppend, ProducerStateManager


class ProducerChanges:
    """The changes of one append, and the transactions that it closes, in order."""

    __slots__ = ("completed", "producers")

    def __init__(self, producers: list[ProducerAppend], completed: list[CompletedTxn]) -> None:
        self.producers = producers
        self.completed = completed


def prepare_changes(
    state: ProducerStateManager,
    batches: Iterable[tuple[BatchHeader, Buffer]],
    origin: AppendOrigin,
    transaction_version: int,
) -> ProducerChanges:
    """Check batches (headers already bear their offsets) against the producers' state; raises ApiError.

    Several batches of one producer in one append build on each other.
    """
    producers: dict[int, ProducerAppend] = {}
    completed: list[CompletedTxn] = []
    for header, batch in batches:
        producer_id = header.producer_id
        if producer_id < 0:
            continue
        change = producers.get(producer_id)
        if change is None:
            change = producers[producer_id] = state.prepare(producer_id, origin)
        if header.is_control:
            done = _append_control(change, header, batch, transaction_version)
            if done is not None:
                completed.append(done)
        else:
            change.append_data(header, header.base_offset, header.last_offset, header.max_timestamp)
    return ProducerChanges(list(producers.values()), completed)


def _append_control(
    change: ProducerAppend, header: BatchHeader, batch: Buffer, transaction_version: int
) -> CompletedTxn | None:
    record = next(iter_records(batch), None)
    marker = None if record is None else parse_end_txn_marker(record)
    if record is None or marker is None:
        return None
    return change.append_marker(marker, header, header.base_offset, record.timestamp, transaction_version)
