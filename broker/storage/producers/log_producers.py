"""Updates producer state for appended batches: checks before the write, changes after it; replays the log at load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.producers.producer_append import ProducerAppend
from barnabas.broker.storage.producers.producer_entry import CompletedTxn
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.segments.scan import scan_batches
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.storage.segments.txn_index import AbortedTxn
from barnabas.protocol.records.batch import BatchHeader, iter_records, parse_end_txn_marker
from barnabas.protocol.records.compression import Buffer


class ProducerChanges:
    """The changes of one append, and the transactions that it ends, in order."""

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
    """Check batches, whose headers already have their offsets, against the producers' state; raises ApiError.

    A batch is checked against earlier batches of its producer in the same append, too.
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


def rebuild_producer_state(
    state: ProducerStateManager,
    segments: Sequence[LogSegment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Bring `state` to `end_offset`: the newest snapshot at or below it, then the batches after that."""
    state.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if state.map_end_offset < end_offset:
        # Why not strict: there may be no segment, if retention has deleted all below `end_offset`.
        for segment, after in zip(segments, (*segments[1:], None), strict=False):
            if after is not None and after.base_offset <= state.map_end_offset:
                continue
            _replay_segment(state, segment, end_offset)
    state.map_end_offset = end_offset


def _replay_segment(state: ProducerStateManager, segment: LogSegment, end_offset: int) -> None:
    from_offset = max(state.map_end_offset, segment.base_offset)
    start = segment.translate(from_offset, segment.size)
    if start is None:
        return
    for _, header, batch in scan_batches(segment.file, start[0], segment.size):
        if header.base_offset >= end_offset:
            return
        replay(state, header, batch)


def replay(
    state: ProducerStateManager,
    header: BatchHeader,
    batch: Buffer,
    on_aborted: Callable[[AbortedTxn], object] | None = None,
) -> None:
    """Apply one batch of the log to `state`; `on_aborted` is called with the transaction that it aborts."""
    if header.producer_id >= 0:
        changes = prepare_changes(state, [(header, batch)], AppendOrigin.REPLICATION, 0)
        for change in changes.producers:
            state.apply(change)
        for done in changes.completed:
            if on_aborted is not None and done.is_aborted:
                stable = state.last_stable_offset_after(done)
                on_aborted(AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable))
            state.complete(done)
    state.map_end_offset = header.next_offset
